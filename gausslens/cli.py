"""The command line, `gausslens`: one verb for each thing people ask of the package.

Nothing here imports torch before a verb needs it, so `--help` answers at once. Exit codes: 0 done, 1 failed, 2 bad
usage or input. An error is one readable message; `--debug` shows where it came from.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

import gausslens

from .errors import ConfigError, DataError, GausslensError

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


class _Parser(argparse.ArgumentParser):
    """Answers bad usage in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after the program's name; by default those it was started with.

    Returns:
        The exit code.

    Raises:
        GausslensError: with `--debug`, whatever went wrong.
    """
    options = _parser().parse_args(arguments)
    try:
        describe_package()
    except GausslensError as error:
        if options.debug:
            raise
        print(f"gausslens: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | DataError) else 1
    return 0


def describe_package() -> None:
    """Print what this version can do: every public function and class, and an example to run."""
    print(f"Studies are not part of gausslens {gausslens.__version__} yet; they come with a later version.")
    print("What this version can do, from Python:\n")
    for name in gausslens.__all__:
        if not name.startswith("__") and not name.endswith("Error"):
            print(f"  {name:20}{getattr(gausslens, name).__doc__.splitlines()[0]}")
    print(f"\nAn example that runs as it is:\n\n{EXAMPLE}", end="")


def _parser() -> _Parser:
    parser = _Parser(
        prog="gausslens",
        description="Shows whether a diffusion model has learned to generalise or only memorises.",
        epilog="examples:\n  gausslens study digits\n  gausslens --version",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gausslens {gausslens.__version__}")
    debug = "show the traceback of an error"
    parser.add_argument("--debug", action="store_true", help=debug)
    verbs = parser.add_subparsers(metavar="verb", required=True)
    study = verbs.add_parser("study", help="studies of the paper; until they are here, what this version can do")
    study.add_argument("data", choices=["digits"], help="the data set to study")
    study.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=debug)
    return parser
