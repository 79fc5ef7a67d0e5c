"""Denoisers D(x, σ): the protocol, the closed forms and the linear fits."""
