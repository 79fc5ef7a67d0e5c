"""Studies of the paper: grids of cells (train, distil, measure), the engine that runs them, and what they answer."""
