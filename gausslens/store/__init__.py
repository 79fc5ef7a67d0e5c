"""What is kept on disk: the folders of runs, weights, tensors, images, and where they come from."""
