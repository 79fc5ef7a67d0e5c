"""Other people's models as denoisers: the only place that knows their formats.

Each reader makes a `Model` of what it finds. Nothing else in the package knows where a denoiser came from.
"""
