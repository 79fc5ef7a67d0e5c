"""Other people's models as denoisers: the only place that knows their formats.

Each reader makes a `Model` of what it finds, a denoiser D(x, σ) with all that is needed to use it: the shape of an
image, the number of classes, the range of values, and for latent models the encoder. Nothing else in the package knows
where a denoiser came from.
"""
