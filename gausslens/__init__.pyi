# What type checkers read: the lazy exports of __init__.py, one by one (a test holds them to each other).
from .auditing.audit import audit as audit
from .config import TrainConfig as TrainConfig
from .denoisers.composite import PerClassDenoiser as PerClassDenoiser
from .denoisers.distillation import distill as distill
from .denoisers.gaussian import GaussianDenoiser as GaussianDenoiser
from .denoisers.linear import LinearDenoiser as LinearDenoiser
from .denoisers.moments import Moments as Moments
from .denoisers.multidelta import MultiDeltaDenoiser as MultiDeltaDenoiser
from .denoisers.preconditioned import Preconditioned as Preconditioned
from .denoisers.protocol import Denoiser as Denoiser
from .errors import CheckpointError as CheckpointError
from .errors import ConfigError as ConfigError
from .errors import DataError as DataError
from .errors import GausslensError as GausslensError
from .errors import MissingExtraError as MissingExtraError
from .measures.agreement import agreement as agreement
from .measures.alignment import alignment as alignment
from .measures.curve import Curve as Curve
from .measures.gap import gap as gap
from .measures.gap import identity_gap as identity_gap
from .measures.intervals import Estimate as Estimate
from .measures.jacobian import jacobian_spectrum as jacobian_spectrum
from .measures.linearity import linearity as linearity
from .measures.memorization import memorization as memorization
from .monitor.monitor import GeneralizationMonitor as GeneralizationMonitor
from .noise import karras_sigmas as karras_sigmas
from .sampling import Step as Step
from .sampling import sample as sample
from .store.run import Run as Run
from .training.train import train as train
from .zoo.loading import load_denoiser as load_denoiser
from .zoo.parametrizations import from_eps as from_eps
from .zoo.parametrizations import from_flow as from_flow
from .zoo.parametrizations import from_v as from_v
from .zoo.parametrizations import from_x0 as from_x0

__version__: str
__all__: list[str]
