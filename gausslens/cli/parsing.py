"""Reads the words of a command into a dataclass of options, with argparse. Bad usage is one line and exit code 2.

Each field of the dataclass is an option, and the docstring below it is its help. Fields without a default are given by
position or by name, the others as `--name VALUE`. The values of a tuple are separated by spaces or commas: `--sizes 9 48` or
`--sizes 9,48`. Dashes in a name may be underscores, and `--no-flip` takes `--flip` back.
"""

import argparse
import ast
import inspect
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from ..errors import ConfigError
from ..store.typed_command import option_name
from . import GlobalOptions

T = TypeVar("T")

GROUPS = {
    "data": "size value_range skip_broken train held_out unseen split split_seed groups augment flip data",
    "network and training": "network width multipliers blocks attention dropout labels preconditioning sigma level_mean "
    "level_spread batch learning_rate ramp_kimg ema_kimg kimg weights snapshots monitor stop_when_memorizing",
    "method": "only full sizes few subset widths narrow early seeds shown repetition denoiser solver sigmas count noises "
    "samples steps calls features seed",
    "execution": "on workers budget precision compile cpu dry_run quiet debug",
    "output": "format fail_on json page svg no_images blur tracker out",
}
"""The groups in which help shows the options, by the names of fields."""

_RENAMED = {"--model": "--network"}
_KINDS = {int: ("N", "a whole number"), float: ("NUMBER", "a number"), str: ("TEXT", "a text")}
_BOOLEANS = {"True": True, "False": False}


class _Parser(argparse.ArgumentParser):
    """Reports bad usage in one line, with a suggestion for a misspelled option."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: .*?--([\w-]+)", message):
            near = get_close_matches(unknown[1], [option[2:] for option in self._option_string_actions], 1)
            message = f"unrecognized option --{unknown[1]}" + (f"; did you mean --{near[0]}?" if near else "")
        usage_error(self.prog, message.removeprefix("argument "))

    @property
    def options(self) -> list[str]:
        """The options that help shows."""
        found = self._option_string_actions.items()
        return [name for name, action in found if name.startswith("--") and action.help != argparse.SUPPRESS]

    def spelled(self, words: Sequence[str]) -> list[str]:
        """The words, with options under the names that help shows."""
        found = []
        for word in words:
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                name = name.replace("_", "-")
                new = _RENAMED.get(name)
                if new in self._option_string_actions and name not in self._option_string_actions:
                    warnings.warn(f"{name} is now {new}.", FutureWarning, stacklevel=2)
                    name = new
            found.append(name + equals + value)
        return found

    def needed_first(self, words: list[str], needed: Sequence[str]) -> list[str]:
        """The words with the positional one first, where a list of values would swallow it: `--only size time digits`."""
        known = self._option_string_actions
        starts = [place for place, word in enumerate(words) if word in known]
        if len(needed) != 1 or not starts or starts[0] > 0 or f"--{option_name(needed[0])}" in words:
            return words
        place = 0  # of the positional word
        for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
            arity, values = known[words[start]].nargs, words[start + 1 : end]
            taken = {None: 1, 0: 0, 2: 2, "?": values[:1] in (["True"], ["False"]), "*": len(values)}[arity]
            if len(values) > taken:
                place = start + 1 + taken
                break
            if arity == "*" and len(values) > 1:
                place = end - 1
        return [words[place], *words[:place], *words[place + 1 :]]


def parse(kind: type[T], words: Sequence[str], *, program: str, description: str = "") -> tuple[T, GlobalOptions]:
    """Read the options of a command."""
    parser = make_parser(kind, program=program, description=description)
    needed = _needed(kind)
    given = vars(parser.parse_intermixed_args(parser.needed_first(parser.spelled(words), needed)))
    for name in needed:
        if name not in given:
            parser.error(f"missing {name.upper()}. {field_docs(kind)[name]}")
    for name, value in given.items():
        if isinstance(value, list):  # of tuples, one for each word
            given[name] = sum(value, ())
    how = {field.name: given.pop(field.name) for field in fields(GlobalOptions) if field.name in given}
    try:
        return kind(**given), GlobalOptions(**how)
    except ConfigError as error:
        usage_error(program, as_typed(str(error), kind))


def make_parser(kind: type[Any], *, program: str = "gausslens", description: str = "") -> _Parser:
    """The parser of a command's options. All paragraphs of the description but the last, the examples, are wrapped."""
    *paragraphs, examples = description.rstrip().split("\n\n")
    width = shutil.get_terminal_size().columns - 2
    parser = _Parser(
        prog=program,
        usage=" ".join([program, *map(str.upper, _needed(kind)), "[options]"]),
        description="\n\n".join([*(textwrap.fill(text, width) for text in paragraphs), examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser._negative_number_matcher = re.compile(r"-\.?\d")  # by itself argparse takes -1e-3 for an option
    groups = {name: parser.add_argument_group(name) for name in GROUPS}
    group_of = {field: groups[name] for name, members in GROUPS.items() for field in members.split()}
    for of in (kind, GlobalOptions):
        docs, hints = field_docs(of), get_type_hints(of)
        for field in fields(of):
            option, reading = option_name(field.name), _reading(hints[field.name])
            text = docs[field.name].replace("%", "%%")
            if field.name in _needed(of):
                place = {"nargs": "?"} | reading | {"metavar": field.name.upper()}
                parser.add_argument(field.name, help=text, **place)
                parser.add_argument(f"--{option}", dest=field.name, help=argparse.SUPPRESS, **reading)
                continue
            if not isinstance(field.default, bool | None) and field.default != ():
                default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
                text += f" Default: {default}."
            group_of[field.name].add_argument(f"--{option}", dest=field.name, help=text, **reading)
            if isinstance(field.default, bool):
                parser.add_argument(f"--no-{option}", dest=field.name, help=argparse.SUPPRESS, action="store_false")
    return parser


def usage_error(program: str, message: str) -> NoReturn:
    """Print what is wrong with the words in one line, and end with exit code 2."""
    stop = "" if message.endswith((".", "?")) else "."
    print(f"{program}: {message}{stop} See {program} --help.", file=sys.stderr)
    raise SystemExit(2)


def as_typed(message: str, kind: type[Any]) -> str:
    """A message with the names of fields replaced by the options that a user types."""
    for field in fields(kind):
        option = field.name.upper() if field.name in _needed(kind) else f"--{option_name(field.name)}"
        message = re.sub(rf" \({field.name}=(?:[^()]|\([^()]*\))*\)", "", message)
        message = re.sub(rf"(?<![\w-]){field.name}(=True\b|(?= must | needs ))", option, message)
        if "_" in field.name:
            message = re.sub(rf"(?<![\w/.-]){field.name}(?![\w/.=])", option, message)
    return message


def field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstrings below the fields of a dataclass and of those that it inherits from, by field, on one line each."""
    docs: dict[str, str] = {}
    for base in filter(is_dataclass, kind.__mro__):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for node, below in pairwise(body):
            match node, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    docs.setdefault(name, " ".join(text.split()))
    return docs


def _needed(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind) if field.default is MISSING]


def _reading(hint: Any) -> dict[str, Any]:
    """How argparse reads values of a type."""
    optional = NoneType in get_args(hint)
    plain = next(part for part in get_args(hint) if part is not NoneType) if optional else hint
    members = get_args(plain)
    if plain is bool and optional:
        choices = {"type": lambda word: _BOOLEANS.get(word, word), "choices": list(_BOOLEANS.values())}
        return {"nargs": "?", "const": True, **choices}
    if plain is bool:
        return {"action": "store_true"}
    if get_origin(plain) is Literal:
        return {"choices": members}
    if get_origin(plain) is not tuple:
        return {"type": _reader(plain), "metavar": _KINDS[plain][0]}
    one = _reader(members[0])
    if members[0] is Path:  # whose name may hold a comma
        return {"nargs": "*", "type": lambda word: (one(word),)}
    several = {"nargs": "*", "metavar": f"{_KINDS[members[0]][0]},"}
    shape = several if Ellipsis in members else {"nargs": 2, "metavar": ("LOW", "HIGH")}
    return shape | {"type": lambda word: tuple(one(part) for part in word.split(",") if part)}


def _reader(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {_KINDS[kind][1]}, got {text!r}") from None

    return read
