"""`gausslens study`: until the studies are here, what this version can do."""

from dataclasses import dataclass
from typing import Literal

import gausslens

from . import Manner

DESCRIPTION = """\
Studies of the paper. They are not part of this version yet; until they are, this says what it can do.

examples:
  gausslens study digits"""

EXAMPLE = """\
import torch
import gausslens as gl

def discs(n, seed):  # 16 x 16 images of one soft disc each, in [-1, 1]
    x, y, size = torch.rand(3, n, 1, 1, 1, generator=torch.Generator().manual_seed(seed))
    distance = torch.hypot(torch.linspace(0, 1, 16) - x, torch.linspace(0, 1, 16)[:, None] - y)
    return torch.tanh(20 * (0.1 + 0.2 * size - distance))

train, held_out, latents = discs(500, seed=0), discs(500, seed=1), torch.randn(200, 1, 16, 16)
gaussian = gl.GaussianDenoiser(gl.Moments.fit(train))  # a model that generalises comes close to this
memory = gl.MultiDeltaDenoiser(train)  # a model that memorises comes close to this
for model in (gaussian, memory):  # your own D(x, sigma) can stand here
    print("least linearity:", gl.linearity(model, held_out, gl.karras_sigmas(10), affine=True).minimum())
    print("furthest from the Gaussian:", gl.gap(gaussian, model, held_out, gl.karras_sigmas(10)).maximum())
    print(gl.memorization(gl.sample(model, latents), train, held_out))
"""


@dataclass(frozen=True)
class Options:
    """What to study."""

    data: Literal["digits"]
    """The data set to study."""


def perform(options: Options, how: Manner) -> None:
    """Print what this version can do: every public function and class, and an example to run."""
    print(f"Studies are not part of gausslens {gausslens.__version__} yet; they come with a later version.")
    print("What this version can do, from Python:\n")
    for name in gausslens.__all__:
        if not name.startswith("__") and not name.endswith("Error"):
            print(f"  {name:20}{getattr(gausslens, name).__doc__.splitlines()[0]}")
    print(f"\nAn example that runs as it is:\n\n{EXAMPLE}", end="")
