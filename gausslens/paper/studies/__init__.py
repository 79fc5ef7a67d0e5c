"""The studies of the paper, one file each: its first line names its claims and the figures of the paper that it redraws."""
