"""Training a denoiser: the loop, what it draws, what it minimises and what it keeps."""
