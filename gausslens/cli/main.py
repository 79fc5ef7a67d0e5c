"""Shows whether a diffusion model has learned to generalise or only memorises.

Commands:
  train         train a denoiser on a set of images
  sample        sample images from a trained denoiser or from its closed-form references
  measure       measure a trained denoiser at every noise level, with controls
  convert       convert the pickle of an EDM network to safetensors, without executing it
  study         repeat the paper's studies on a set of images and report every figure on one page
  audit         find out whether a model, trained here or elsewhere, memorises its training images
  how-many      find out how many images a network needs so that it does not memorise them
  report        judge the paper's claims again and rewrite the pages of finished studies

Options:
  -h, --help    show this help; after a command, show its options
  --version     show the version
  --print-completion {bash,zsh,fish}
                print a script that completes commands and options in a shell

Examples:
  gausslens train digits --split 1400
  gausslens sample runs/train-digits-1a2b3c4d --count 1000
  gausslens measure runs/train-digits-1a2b3c4d
  gausslens measure --help
  gausslens study digits
  gausslens audit runs/train-digits-1a2b3c4d
  gausslens how-many digits
  gausslens report runs

Exit codes:
  0 done, 1 failed, 2 bad usage or input, 3 a result named by audit --fail-on, 130 after Ctrl-C, 143 after SIGTERM
"""

# The docstring above is what `gausslens --help` prints. Nothing here imports torch before a command needs it, so that help
# takes no time. An error is one readable message; `--debug` shows its traceback.

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
from .completion import completion
from .parsing import as_typed, make_parser, parse, usage_error

_COMMANDS = ("train", "sample", "measure", "convert", "study", "audit", "how-many", "report")
_STOPPED = "stopped; the same command continues with what is not finished."


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
        with _ending_on_sigterm(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _dispatch([word for word in words if word != "--debug"])  # which may also stand before the command
            sys.stdout.flush()
    except (KeyboardInterrupt, _Terminated) as stopped:
        print(f"\ngausslens: {str(stopped) or _STOPPED}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stopped, _Terminated) else signal.SIGINT)
    except BrokenPipeError:  # whoever was reading, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its end
        return 1
    except Exception as error:
        if debug:
            raise
        if isinstance(error, GausslensError):
            print(f"gausslens: {error}", file=sys.stderr)
        else:
            print(f"gausslens: {type(error).__name__}: {error}. Run with --debug for the traceback.", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | DataError) else 1
    return code


def _show_warning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
    """Print a warning in one line like an error, without the line of code that it comes from."""
    print(f"gausslens: {message}", file=sys.stderr)


def _dispatch(words: list[str]) -> int:
    match words:
        case ["-h" | "--help", *_]:
            print(f"usage: gausslens COMMAND [options] [--dry-run] [--quiet] [--debug]\n\n{__doc__}", end="")
        case ["--version", *_]:
            print(f"gausslens {gausslens.__version__}")
        case ["--print-completion", *shell]:
            options = {command: make_parser(_module(command).Options).options for command in _COMMANDS}
            print(completion("".join(shell[:1]), options), end="")
        case [command, *rest] if command in _COMMANDS:
            return _run(command, rest)
        case _:
            got = words[0] if words else "none"
            usage_error("gausslens", f"expected a command, one of {', '.join(_COMMANDS)}; got {got}")
    return 0


def _run(command: str, words: list[str]) -> int:
    module = _module(command)
    options, how = parse(module.Options, words, program=f"gausslens {command}", description=module.__doc__)
    try:
        return module.run(options, how) or 0
    except GausslensError as error:  # in the words of the command line
        error.args = (as_typed(str(error), module.Options),)
        raise


def _module(command: str) -> Any:
    return import_module(f".{command.replace('-', '_')}", __package__)


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
