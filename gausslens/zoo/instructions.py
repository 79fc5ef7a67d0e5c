"""A machine that walks the instructions of a pickle and has nothing to call.

A pickle is a program for a machine with a stack, and Python's machine lets it import and call anything. This one is
given all names that a pickle may contain, each with a function that makes data of the arguments; any other name, and
any instruction that such pickles have no use for, is a ValueError that says what was found.

The instructions are counted, keys are strings (others can be made to collide), sets are lists, and nothing is compared,
hashed or printed that may hold itself. So a walk costs no more than its budget.
"""

import io
import mmap
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""What a pickle may name, as "module.name", with what is made of the arguments if it is called."""

_INTEGERS = ["BININT", "BININT1", "BININT2", "LONG1"]
_TEXTS = ["SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"]
_BYTES = ["SHORT_BINBYTES", "BINBYTES", "BINBYTES8"]
_VALUES = frozenset([*_INTEGERS, *_TEXTS, *_BYTES, "BINFLOAT"])
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_CONTAINERS: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,  # a set hashes its members, and nobody needs them
}
_INSTRUCTIONS = {info.code.encode("latin1"): info for info in pickletools.opcodes}


@dataclass(frozen=True, eq=False)
class Name:
    """A class or function that a file names; nothing but its name is known."""

    text: str


@dataclass(eq=False)
class Instance:
    """What a file wants to be an object.

    Attributes:
        class_name: of an object that brings its source along, the class's name there; of others, with the module.
        arguments: what its constructor would get.
        state: its attributes, if the file sets them.
    """

    class_name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None


@dataclass
class Budget:
    """What reading may still cost.

    Attributes:
        instructions: how many may still be walked.
        n_bytes: how many may still be copied out of the file.
    """

    instructions: int
    n_bytes: int

    def spend_bytes(self, count: int) -> None:
        """Account for a copy; raises ValueError if that is more than is left."""
        self.n_bytes -= count
        if self.n_bytes < 0:
            raise ValueError("it uses the same bytes over and over, for more memory than its own size")


class Machine:
    """Walks one pickle.

    Args:
        stream: where it starts; afterwards, where it ends.
        functions: all that the pickle may name.
        budget: what it may cost.
        stored: what is made of a persistent identity; None allows none.
    """

    def __init__(
        self,
        stream: io.BytesIO | mmap.mmap,
        functions: Functions,
        budget: Budget,
        stored: Callable[[Any], Any] | None = None,
    ) -> None:
        self._stream, self._functions, self._budget, self._stored = stream, functions, budget, stored
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Walk to the end."""
        stack, memo, budget = self._stack, self._memo, self._budget
        try:
            while (instruction := _INSTRUCTIONS.get(self._stream.read(1))) is not None:
                name = instruction.name
                budget.instructions -= 1
                if budget.instructions < 0:
                    raise ValueError("it has far more instructions than a network needs")
                if instruction.proto == 0 and instruction.arg and name != "GLOBAL":
                    self._refuse(name)  # arguments in lines of text take codecs to read
                argument: Any = instruction.arg.reader(self._stream) if instruction.arg else None  # type: ignore[arg-type]
                if name in _VALUES:
                    stack.append(argument)
                elif name in _CONSTANTS:
                    stack.append(_CONSTANTS[name])
                elif name in _CONTAINERS:
                    stack.append(_CONTAINERS[name]())
                elif name in ("BINPUT", "LONG_BINPUT"):
                    memo[argument] = stack[-1]
                elif name == "MEMOIZE":
                    memo[len(memo)] = stack[-1]
                elif name in ("BINGET", "LONG_BINGET"):
                    stack.append(memo[argument])
                elif name == "STOP":
                    return stack.pop()
                elif name not in ("PROTO", "FRAME"):
                    self._act(name, argument)
        except IndexError:
            raise ValueError("it takes more from its stack than it has put there") from None
        except KeyError:
            raise ValueError("it recalls a value that it never stored") from None
        raise ValueError(f"at byte {self._stream.tell()} it ends, or has what is no instruction")

    def _act(self, name: str, argument: Any) -> None:
        """Carry out an instruction that takes something from the stack."""
        push, pop = self._stack.append, self._stack.pop
        match name:
            case "MARK":
                self._marks.append(len(self._stack))
            case "POP":
                pop()
            case "DUP":
                push(self._stack[-1])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(reversed([pop() for _ in range(int(name[-1]))])))
            case "TUPLE" | "FROZENSET":
                push(tuple(self._since_mark()))
            case "LIST":
                push(self._since_mark())
            case "APPEND":
                self._extend([pop()])
            case "APPENDS" | "ADDITEMS":
                self._extend(self._since_mark())
            case "DICT":
                pairs = self._since_mark()
                push({})
                self._set_items(pairs)
            case "SETITEM":
                value, key = pop(), pop()
                self._set_items([key, value])
            case "SETITEMS":
                self._set_items(self._since_mark())
            case "GLOBAL":
                push(self._named(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                attribute, module = pop(), pop()
                push(self._named(module, attribute))
            case "REDUCE" | "NEWOBJ":
                arguments, function = pop(), pop()
                push(self._made(function, arguments))
            case "BUILD":
                state, instance = pop(), self._stack[-1]
                if not isinstance(instance, Instance) or instance.state is not None:
                    raise ValueError(f"it sets the state of {kind_of(instance)}")
                instance.state = state
            case "BINPERSID" if self._stored is not None:
                push(self._stored(pop()))
            case _:
                self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise ValueError(f"it has the instruction {name}, which pickles of networks do not need")

    def _named(self, module: Any, attribute: Any = "") -> Name:
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise ValueError("it names something by a value that is not a text")
        text = f"{module}.{attribute}"
        if text not in self._functions:
            raise ValueError(f"it asks for {text[:120]!r}, which is no part of a network")
        return Name(text)

    def _made(self, function: Any, arguments: Any) -> Any:
        if type(function) is not Name:
            raise ValueError(f"it calls {kind_of(function)}")
        if type(arguments) is not tuple:
            raise ValueError(f"it calls {function.text} with {kind_of(arguments)} for arguments")
        try:
            return self._functions[function.text](*arguments)
        except TypeError:
            raise ValueError(f"it calls {function.text} with {len(arguments)} arguments that do not fit") from None

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise ValueError(f"it appends to {kind_of(target)}")
        target.extend(values)

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(pairs) % 2:
            raise ValueError(f"it sets {len(pairs)} keys and values of {kind_of(target)}")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) is not str:
                raise ValueError(f"it has {kind_of(key)} for a key, where modules have texts")
            target[key] = value

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise ValueError("it ends a list that was never begun")
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values


def kind_of(value: Any) -> str:
    """What sort of value it is, without looking inside."""
    return value.text if type(value) is Name else f"a value of type {type(value).__name__}"
