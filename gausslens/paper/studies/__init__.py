"""The studies of the paper, one file each: the question that it asks, its tasks, its claims and its figures."""
