"""The studies of the paper, one file each."""
