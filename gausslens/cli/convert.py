"""Convert the pickle of an EDM network into a safetensors file.

`gausslens audit` and `gausslens.load_denoiser` read the resulting safetensors file. Nothing in the pickle is executed:
weights, class names and constructor arguments are read as data, and anything else is refused.

Examples:
  gausslens convert edm-cifar10-32x32-uncond-vp.pkl cifar10-vp.safetensors
  gausslens convert network-snapshot-050176.pkl network.safetensors --dry-run
"""

from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from . import GlobalOptions, bad_input, print_options


@dataclass(frozen=True)
class Options:
    """The options of `gausslens convert`."""

    source: str
    """The pickle (.pkl). It must hold a network under the name `ema`."""
    out: str
    """The file to write (.safetensors)."""

    def __post_init__(self) -> None:
        for name, suffix in (("source", ".pkl"), ("out", ".safetensors")):
            if Path(getattr(self, name)).suffix != suffix:
                raise ConfigError(f"{name} must be a file whose name ends in {suffix}; got {getattr(self, name)}.")


def run(options: Options, how: GlobalOptions) -> None:
    """Convert, unless the file exists already."""
    from ..store.weights import save_denoiser
    from ..zoo.edm import read_edm

    out = Path(options.out)
    if out.exists():
        raise ConfigError(f"{out} exists already. Remove it, or choose another name for out.")
    with bad_input():
        description, denoiser = read_edm(options.source)
    if how.dry_run:
        print_options(options, **description)
        return
    save_denoiser(out, description, ema=denoiser.state_dict(), source=Path(options.source).name)
    network = description["network"]
    labels = f", {network['classes']} classes" if network["classes"] else ""
    count = sum(parameter.numel() for parameter in denoiser.parameters())
    print(f"wrote {out}: {network['name']} for {'×'.join(map(str, network['shape']))}{labels}, {count:,} weights.")
