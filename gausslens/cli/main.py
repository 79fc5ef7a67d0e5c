"""The command line, `gausslens`: one verb for each thing people ask of the package (see `verbs`).

Nothing here imports torch before a verb needs it, so `--help` answers at once. Exit codes: 0 done, 1 failed, 2 bad
usage or input, 3 a verdict that `--fail-on` asked about, 130 and 143 after Ctrl-C and SIGTERM. An error is one readable
message; `--debug` shows where it came from.
"""

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import gausslens

from ..errors import ConfigError, DataError, GausslensError
from .completion import SHELLS, completion
from .parsing import as_typed, make_parser, parse, usage_error

_VERBS = {
    "train": "train a denoiser on a set of images",
    "sample": "sample images from a trained denoiser, or from one in closed form",
    "measure": "take every measure of a trained denoiser, beside its controls",
    "convert": "convert an EDM network's pickle to safetensors, without executing anything in it",
    "study": "do the paper's studies on a set of images, from training to one page with every figure",
    "audit": "say whether a model memorises its training images, for anybody's model",
    "how-many": "find how many images a network needs before it stops memorising, and how long it may train",
    "report": "judge the paper's claims and write the page again, from studies that were done",
}

_HELP = """\
usage: gausslens VERB [options] [--dry-run] [--quiet] [--debug]

Shows whether a diffusion model has learned to generalise or only memorises.

verbs:
{verbs}

options:
  -h, --help    show this help; after a verb, that verb's
  --version     show the version
  --print-completion {{bash,zsh,fish}}
                show a script that completes verbs and options in a shell

examples:
  gausslens train digits --split 1400
  gausslens sample runs/train-digits-1a2b3c4d --count 1000
  gausslens measure runs/train-digits-1a2b3c4d
  gausslens measure --help
  gausslens study digits
  gausslens audit runs/train-digits-1a2b3c4d
  gausslens how-many digits
  gausslens report runs
"""


_STOPPED = "stopped; the same command continues with what is not finished."


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Inside, warnings are one line like errors, without the line of code that they come from."""

    def show(message: Warning | str, *unused: Any) -> None:
        print(f"gausslens: {message}", file=sys.stderr)

    before = warnings.showwarning
    warnings.showwarning = show  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = before


class _Terminated(BaseException):
    """SIGTERM has come."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a σ shows a question mark
            stream.reconfigure(errors="replace")
    try:
        with _ending_on_sigterm(), _plain_warnings():
            code = _dispatch([word for word in words if word != "--debug"])  # which may also stand before the verb
            sys.stdout.flush()
    except (KeyboardInterrupt, _Terminated) as stopped:
        print(f"\ngausslens: {str(stopped) or _STOPPED}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stopped, _Terminated) else signal.SIGINT)
    except GausslensError as error:
        if debug:
            raise
        print(f"gausslens: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | DataError) else 1
    except BrokenPipeError:  # whoever was reading, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its end
        return 1
    except Exception as error:
        if debug:
            raise
        print(f"gausslens: {type(error).__name__}: {error}. Run with --debug for the traceback.", file=sys.stderr)
        return 1
    return code


def _dispatch(words: list[str]) -> int:
    match words:
        case ["-h" | "--help", *_]:
            print(_HELP.format(verbs="\n".join(f"  {name:14}{summary}" for name, summary in _VERBS.items())), end="")
        case ["--version", *_]:
            print(f"gausslens {gausslens.__version__}")
        case ["--print-completion", *shell]:
            print(_completion(*shell[:1]), end="")
        case [verb, *rest] if verb in _VERBS:
            return _run(verb, rest)
        case _:
            got = words[0] if words else "none"
            usage_error("gausslens", f"expected a verb, one of {', '.join(_VERBS)}; got {got}")
    return 0


def _run(verb: str, words: list[str]) -> int:
    module = _module(verb)
    options, how = parse(module.Options, words, program=f"gausslens {verb}", description=module.DESCRIPTION)
    try:
        return module.run(options, how) or 0
    except GausslensError as error:  # in the words of the command line
        error.args = (as_typed(str(error), module.Options),)
        raise


def _completion(shell: str = "none") -> str:
    """A script that completes verbs and options in a shell."""
    if shell not in SHELLS:
        usage_error("gausslens", f"--print-completion: expected one of {', '.join(SHELLS)}; got {shell}")
    parsers = {verb: make_parser(_module(verb).Options, program="gausslens", description="") for verb in _VERBS}
    return completion(shell, {verb: parser.options for verb, parser in parsers.items()})


def _module(verb: str) -> Any:
    return import_module(f".{verb.replace('-', '_')}", __package__)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends the program as Ctrl-C does, after temporary files are removed."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():  # Python allows handlers there alone
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
