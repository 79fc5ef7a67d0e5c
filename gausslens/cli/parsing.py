"""From the words of a command to a dataclass of options, by tyro; bad usage is one line and exit code 2.

Fields without a default are given by position (a single one by its name, too), the others as `--name VALUE`. A tuple takes
its values one by one or joined by commas: `--multipliers 1 2 2` or `--multipliers 1,2,2`. A field that may be None is None
if it is not given, which nobody has to type or read: help calls it unset.
"""

import io
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Generic, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from . import GlobalOptions

T = TypeVar("T")

_KINDS = {int: "a whole number", float: "a number", str: "a text"}
_NOT_SET = "unset"


@dataclass(frozen=True)
class _Command(Generic[T]):
    """All options of a verb."""

    what: T
    how: GlobalOptions


def parse(kind: type[T], words: Sequence[str], *, program: str, description: str) -> tuple[T, GlobalOptions]:
    """Read the options of a verb."""
    import tyro

    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(lambda info: _rule(info.type))
    conf = tyro.conf
    markers = (
        *(conf.OmitArgPrefixes, conf.PositionalRequiredArgs),
        *(conf.PositionalMetavarFromFieldName, conf.FlagCreatePairsOff, conf.HelptextFromCommentsOff),
    )
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            command = tyro.cli(
                _Command[kind],  # type: ignore[valid-type]
                prog=program,
                description=description,
                args=_placed(words, kind),
                config=markers,
                registry=registry,
            )
    except SystemExit as end:
        if end.code:
            usage_error(program, as_typed(_sentence(complaint.getvalue(), program), kind))
        raise
    return command.what, command.how


def _placed(words: Sequence[str], kind: type[Any]) -> list[str]:
    """The words with the one that must be there in its place, also if it was named: `audit --model M` is `audit M`."""
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    option = f"--{needed[0].replace('_', '-')}" if len(needed) == 1 else None
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option and (equals or index + 1 < len(words)):
            rest = words[index + 1 :] if equals else words[index + 2 :]
            return [value if equals else words[index + 1], *words[:index], *rest]
    return list(words)


def usage_error(program: str, message: str) -> NoReturn:
    """End with one line on what is wrong with the words, and exit code 2."""
    stop = "" if message.endswith((".", "?")) else "."
    print(f"{program}: {message}{stop} See {program} --help.", file=sys.stderr)
    raise SystemExit(2)


def as_typed(message: str, kind: type[Any]) -> str:
    """A message with the names of fields as the options that a user types."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        renamed = [part.name for part in getattr(hints[field.name], "__metadata__", ()) if getattr(part, "name", None)]
        option = "--" + (renamed or [field.name])[0].replace("_", "-")
        if field.default is MISSING:
            option = field.name.upper()
        message = re.sub(rf" \({field.name}=(?:[^()]|\([^()]*\))*\)", "", message)
        message = re.sub(rf"(?<![\w-]){field.name}(=True\b|(?= must | needs ))", option, message)
        if "_" in field.name:
            message = re.sub(rf"(?<![\w/.-]){field.name}(?![\w/.=])", option, message)
    return message


def _sentence(boxed: str, program: str) -> str:
    """What tyro says in a box below its title, up to the next rule, as one line; with what it suggests."""
    rows = re.sub(r"\x1b\[[0-9;]*m", "", boxed).strip().splitlines()[1:]
    lines = [row.strip("│|╰╯ ") for row in rows]
    sections = [" ".join(part.split()) for part in re.split(r"^[─-]+$", "\n".join(lines), flags=re.MULTILINE)]
    text = next(section for section in sections if section)
    text = text.replace(f"Missing from {program}:", "missing:").replace(" (required)", "")
    text = re.sub(r"^Error parsing (what: )?", "", text)
    text = re.sub(r"'what\.(\w+)'", lambda name: name[1].upper(), text)
    suggested = re.search(r"Perhaps you meant: (--[\w-]+)", " ".join(sections))
    return f"{text}; did you mean {suggested[1]}?" if suggested else text


def _rule(kind: Any) -> Any:
    """How values of a type are read, where tyro's own way is not the one described above."""
    from tyro.constructors import PrimitiveConstructorSpec

    options = [part for part in get_args(kind) if part is not NoneType]
    optional = get_origin(kind) in (Union, UnionType) and len(options) == 1
    plain = options[0] if optional else kind
    members = get_args(plain) if get_origin(plain) is tuple else ()
    if members and members[0] in _KINDS:
        listed = members[1:] == (Ellipsis,)
        one, name = _reader(members[0]), members[0].__name__.upper()
        return PrimitiveConstructorSpec(
            nargs="*" if listed else len(members),
            metavar=f"{name},…" if listed else " ".join([name] * len(members)),
            instance_from_str=lambda words: tuple(one(part) for word in words for part in word.split(",") if part),
            is_instance=lambda value: value is None or isinstance(value, tuple),
            str_from_instance=lambda value: [_NOT_SET] if value is None else [f"{part}" for part in value],
        )
    if optional and plain in _KINDS:
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=plain.__name__.upper(),
            instance_from_str=lambda words: _reader(plain)(words[0]),
            is_instance=lambda value: value is None or isinstance(value, plain),
            str_from_instance=lambda value: [_NOT_SET if value is None else str(value)],
        )
    if optional and (plain is bool or get_origin(plain) is Literal):
        choices = {str(choice): choice for choice in (get_args(plain) or (True, False))}
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=f"{{{','.join(choices)}}}",
            instance_from_str=lambda words: choices[words[0]],
            is_instance=lambda value: value is None or value in choices.values(),
            str_from_instance=lambda value: [_NOT_SET if value is None else str(value)],
            choices=tuple(choices),
        )
    return None


def _reader(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"expected {_KINDS[kind]}, got {text!r}") from None

    return read
