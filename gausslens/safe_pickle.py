"""Pickles read as data: nothing that a file names is imported, called or created.

A pickle is a program for a machine with a stack, and Python's machine lets it import and call anything. The machine here
knows the instructions that Python writes since protocol 2, and a short list of names, each with a function that makes inert
data of its arguments. Any other name or instruction is a ValueError that says what was found. A walk costs no more than its
budget: instructions and copied bytes are counted, keys are texts (others can be made to collide), sets become lists, and
nothing that may hold itself is compared or printed.
"""

import io
import mmap
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

Stream: TypeAlias = io.BytesIO | mmap.mmap
Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""What a pickle may name, as "module.name", with what is made of the arguments if it is called."""

_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_MAKERS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,  # a set would hash its members
}
_TO_MARK = -1
# How many values an instruction takes from the stack.
_TAKES = {
    **dict.fromkeys(("POP", "TUPLE1", "APPEND", "BUILD", "BINPERSID"), 1),
    **dict.fromkeys(("TUPLE2", "SETITEM", "STACK_GLOBAL", "REDUCE", "NEWOBJ"), 2),
    "TUPLE3": 3,
    **dict.fromkeys(("TUPLE", "FROZENSET", "APPENDS", "ADDITEMS", "SETITEMS"), _TO_MARK),
}
_INSTRUCTIONS = {info.code.encode("latin1"): info for info in pickletools.opcodes}
# Others, such as those with arguments in lines of text, which take codecs to read, are refused.
_KNOWN = {*_VALUES, *_MAKERS, *_TAKES, "PROTO", "FRAME", "MARK", "GLOBAL", "STOP"}
_KNOWN |= {"BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"}


@dataclass(frozen=True, eq=False)
class Name:
    """A class or function that a file names; nothing but its name is known."""

    text: str


@dataclass(eq=False)
class Instance:
    """What a file wants to be an object."""

    class_name: str  # with the module; without it if the file brings the source of the class along
    arguments: tuple[Any, ...] = ()  # what its constructor would get
    state: Any = None  # its attributes, if the file sets them


def instance_makers(*names: str) -> Functions:
    """For each name a function that makes an `Instance` of any arguments."""

    def make(class_name: str, *arguments: Any) -> Instance:
        return Instance(class_name, arguments)

    return {name: partial(make, name) for name in names}


ARRAYS = instance_makers(
    *("numpy.dtype", "numpy.ndarray", "numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"),
    *("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
    *("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
)
"""The names in pickles of NumPy's arrays and numbers."""


@dataclass
class Budget:
    """What reading may still cost: instructions to walk, and bytes to copy out of the file."""

    instructions: int
    n_bytes: int

    def spend_bytes(self, count: int) -> None:
        """Account for a copy; raises ValueError if that is more than is left."""
        self.n_bytes -= count
        _require(self.n_bytes >= 0, "it uses the same bytes over and over, for more memory than its own size")

    def encode(self, text: Any, encoding: Any) -> bytes:
        """Bytes, as protocol 2 writes them, the arguments of `_codecs.encode`."""
        _require(type(text) is str and encoding == "latin1", "it has bytes in an encoding that is not latin1")
        self.spend_bytes(len(text))
        return bytes(text, "latin1")


def safe_load(stream: Stream, size: int, functions: Callable[[Budget], Functions], *, instructions: int) -> Any:
    """The value of a pickle that fills a stream of `size` bytes; errors of any kind if it is broken or names others.

    `functions` gives all names that the pickle may use, in addition to `_codecs.encode`, for a budget of `instructions`.
    """
    start = stream.read(4)
    stream.seek(0)
    _require(start != b"PK\x03\x04", "this is a zip archive, as torch.save writes it, not a plain pickle")
    _require(start[:1] == b"\x80", "it does not begin as pickles do since protocol 2")
    budget = Budget(instructions, n_bytes=2 * size)  # twice: protocol 2 writes bytes as text
    value = Machine(stream, {**functions(budget), "_codecs.encode": budget.encode}, budget).run()
    _require(stream.tell() >= size, f"{size - stream.tell():,} bytes follow its end")
    return value


class Machine:
    """Walks one pickle from where a stream stands; `stored` makes a value of a persistent identity, None allows none."""

    def __init__(
        self, stream: Stream, functions: Functions, budget: Budget, stored: Callable[[Any], Any] | None = None
    ) -> None:
        self._stream, self._functions, self._budget, self._stored = stream, functions, budget, stored
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Walk to the end."""
        stack, memo, budget, push = self._stack, self._memo, self._budget, self._stack.append
        try:
            while (instruction := _INSTRUCTIONS.get(self._stream.read(1))) is not None:
                name = instruction.name
                budget.instructions -= 1
                if budget.instructions < 0:
                    raise ValueError("it has far more instructions than its data needs")
                if name not in _KNOWN or (name == "BINPERSID" and self._stored is None):
                    raise ValueError(f"it has the instruction {name}, which plain data does not need")
                argument: Any = instruction.arg.reader(self._stream) if instruction.arg else None  # type: ignore[arg-type]
                values = self._take(_TAKES[name]) if name in _TAKES else []
                match name:  # POP, PROTO and FRAME ask for nothing more
                    case _ if name in _VALUES:
                        push(argument)
                    case _ if name in _MAKERS:
                        push(_MAKERS[name]())
                    case "BINPUT" | "LONG_BINPUT":
                        memo[argument] = stack[-1]
                    case "MEMOIZE":
                        memo[len(memo)] = stack[-1]
                    case "BINGET" | "LONG_BINGET":
                        push(memo[argument])
                    case "MARK":
                        self._marks.append(len(stack))
                    case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3" | "FROZENSET":
                        push(tuple(values))
                    case "APPEND" | "APPENDS" | "ADDITEMS":
                        _require(type(stack[-1]) is list, f"it appends to {kind_of(stack[-1])}")
                        stack[-1].extend(values)
                    case "SETITEM" | "SETITEMS":
                        self._set_items(values)
                    case "GLOBAL":
                        push(self._name(*argument.split(" ", 1)))
                    case "STACK_GLOBAL":
                        push(self._name(*values))
                    case "REDUCE" | "NEWOBJ":
                        push(self._call(*values))
                    case "BUILD":
                        is_new = isinstance(stack[-1], Instance) and stack[-1].state is None
                        _require(is_new, f"it sets the state of {kind_of(stack[-1])}")
                        stack[-1].state = values[0]
                    case "BINPERSID" if self._stored is not None:
                        push(self._stored(values[0]))
                    case "STOP":
                        return stack.pop()
        except IndexError:
            raise ValueError("it takes more from its stack than it has put there") from None
        except KeyError:
            raise ValueError("it recalls a value that it never stored") from None
        raise ValueError(f"at byte {self._stream.tell()} it ends, or has what is no instruction")

    def _take(self, count: int) -> list[Any]:
        if count == _TO_MARK:
            _require(self._marks, "it ends a list that was never begun")
            start = self._marks.pop()
        elif (start := len(self._stack) - count) < 0:
            raise IndexError
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _name(self, module: Any, attribute: Any = "") -> Name:
        are_texts = isinstance(module, str) and isinstance(attribute, str)
        _require(are_texts, "it names something by a value that is not a text")
        text = f"{module}.{attribute}"
        _require(text in self._functions, f"it asks for {text[:120]!r}, which plain data does not need")
        return Name(text)

    def _call(self, function: Any, arguments: Any) -> Any:
        _require(type(function) is Name, f"it calls {kind_of(function)}")
        _require(type(arguments) is tuple, f"it calls {function.text} with {kind_of(arguments)} for arguments")
        try:
            return self._functions[function.text](*arguments)
        except TypeError:
            raise ValueError(f"it calls {function.text} with {len(arguments)} arguments that do not fit") from None

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        can_be_set = type(target) is dict and len(pairs) % 2 == 0
        _require(can_be_set, f"it sets {len(pairs)} keys and values of {kind_of(target)}")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) is bytes:  # a text to Python 2
                self._budget.spend_bytes(len(key))
                key = key.decode("latin1")
            if type(key) is not str:
                raise ValueError(f"it has {kind_of(key)} for a key, where a text was expected")
            target[key] = value


def _require(condition: object, message: str) -> None:
    if not condition:
        raise ValueError(message)


def kind_of(value: Any) -> str:
    """What sort of value it is, without looking inside."""
    return value.text if type(value) is Name else f"a value of type {type(value).__name__}"
