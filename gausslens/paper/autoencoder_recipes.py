"""Names of `architectures`, for files that still look for them here."""

from .architectures import AUTOENCODERS, autoencoder, kinds

__all__ = ["AUTOENCODERS", "autoencoder", "kinds"]
