"""gausslens: whether a diffusion model has learned to generalise or only memorises.

A diffusion model is a family of denoisers D(x, σ). This package makes them, writes them down in closed form, fits
them, compares them, integrates them and judges them. Names are imported on first use, so `import gausslens` is fast.
"""

from importlib import import_module
from typing import Any

from . import _moved as _moved

__version__ = "0.2.0"

_HOME = {
    "karras_sigmas": "noise",
    "Moments": "denoisers.moments",
    "GaussianDenoiser": "denoisers.gaussian",
    "MultiDeltaDenoiser": "denoisers.multidelta",
    "PerClassDenoiser": "denoisers.composite",
    "distill": "denoisers.distillation",
    "LinearDenoiser": "denoisers.linear",
    "Denoiser": "denoisers.protocol",
    "linearity": "measures.linearity",
    "gap": "measures.gap",
    "identity_gap": "measures.gap",
    "Curve": "measures.curve",
    "Estimate": "measures.intervals",
    "alignment": "measures.alignment",
    "memorization": "measures.memorization",
    "agreement": "measures.agreement",
    "jacobian_spectrum": "measures.jacobian",
    "Preconditioned": "denoisers.preconditioned",
    "TrainConfig": "config",
    "train": "training.train",
    "Run": "store.run",
    "load_denoiser": "zoo.loading",
    "from_eps": "zoo.parametrizations",
    "from_v": "zoo.parametrizations",
    "from_x0": "zoo.parametrizations",
    "from_flow": "zoo.parametrizations",
    "audit": "auditing.audit",
    "GeneralizationMonitor": "monitor.monitor",
    "sample": "sampling",
    "Step": "sampling",
    "GausslensError": "errors",
    "ConfigError": "errors",
    "DataError": "errors",
    "CheckpointError": "errors",
    "MissingExtraError": "errors",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gausslens' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
