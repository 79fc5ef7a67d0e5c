"""The tasks of the studies: each trains, measures or compares, and returns records."""
