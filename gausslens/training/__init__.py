"""Training a denoiser: the loop, what it draws, what it minimises, what it keeps, and how it is made fast."""
