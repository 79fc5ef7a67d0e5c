"""Studies of the paper: grids of tasks (train, distil, measure), the engine that runs them, and what they answer."""
