"""Pickles that would do harm if they were run, or cost time and memory to refuse."""

import io
import pickle
import pickletools
import struct
from functools import cache

import torch
from edm_files import Case, Persistent, network, pickled

TINY = Case(
    0,
    size=4,
    channels=1,
    arguments={"model_channels": 4, "channel_mult": [1, 1], "num_blocks": 1, "attn_resolutions": [2]},
)

DOUBLE = b"q\x00h\x00\x86"
"""Instructions that make a pair of the last value and itself."""


class Call:
    """Pickled as a call of any function by name; `state` is set on the result."""

    def __init__(self, module, name, *arguments):
        self.target, self.arguments = (module, name), arguments


class _Pickler(pickle._Pickler):
    """Writes `Call` by its name, whether there is such a function or not."""

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, Call):
            module, name = (part.encode() for part in obj.target)
            self.write(b"c" + module + b"\n" + name + b"\n")
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
        else:
            super().save(obj, save_persistent_id)


def pickled_calls(content, protocol=4):
    """Bytes of anything that may hold `Call`."""
    stream = io.BytesIO()
    _Pickler(stream, protocol).dump(content)
    return stream.getvalue()


def calls(canary):
    """Calls that would make the file `canary`, or fetch the means to do so."""
    touch, program = f"touch {canary}", f"open({str(canary)!r}, 'w').close()"
    return {
        "os.system": Call("os", "system", touch),
        "posix.system": Call("posix", "system", touch),
        "nt.system": Call("nt", "system", touch),
        "subprocess.Popen": Call("subprocess", "Popen", ["touch", str(canary)]),
        "subprocess.check_output": Call("subprocess", "check_output", ["touch", str(canary)]),
        "exec": Call("builtins", "exec", program),
        "exec of Python 2": Call("__builtin__", "exec", program),
        "eval": Call("builtins", "eval", program),
        "compile": Call("builtins", "compile", program, "x", "exec"),
        "__import__": Call("builtins", "__import__", "antigravity"),
        "open": Call("builtins", "open", str(canary), "w"),
        "importlib": Call("importlib", "import_module", "antigravity"),
        "runpy": Call("runpy", "run_path", str(canary)),
        "chain of getattr": Call("builtins", "getattr", Call("importlib", "import_module", "os"), "system"),
        "chain of reduce": Call("functools", "reduce", Call("operator", "call"), [Call("os", "system"), touch]),
        "partial": Call("functools", "partial", Call("os", "system"), touch),
        "attrgetter": Call("operator", "attrgetter", "system"),
        "dotted name": Call("torch", "serialization.os.system", touch),
        "pickle.loads": Call("pickle", "loads", b"cos\nsystem\n."),
        "torch.load": Call("torch", "load", str(canary)),
        "torch.hub": Call("torch.hub", "load", "owner/repository", "model"),
        "numpy.load": Call("numpy", "load", str(canary), None, True),
        "_reconstructor": Call("copyreg", "_reconstructor", Call("os", "system"), object, None),
        "shutil.rmtree": Call("shutil", "rmtree", str(canary.parent)),
        "socket": Call("socket", "create_connection", ("localhost", 9)),
        "sys.exit": Call("sys", "exit", 0),
    }


def placed(call):
    """A call in every place a file has for it, by name."""
    persistent = ("torch_utils.persistence", "_reconstruct_persistent_obj")
    return {
        "alone": pickled_calls(call),
        "protocol 2": pickled_calls(call, 2),
        "in state": pickled_calls({"ema": {"state": [("deep", {"down": call})]}}),
        "in a network": _with_state(call),
        "in arguments": pickled_calls({"ema": Call(*persistent, _meta(call))}),
        "as the source": pickled_calls({"ema": Call(*persistent, {**_meta({}), "module_src": call})}),
        **{f"in storage, part {part}": in_storage(pickled_calls(call, 2), part) for part in range(5)},
        "in storage, outer": pickled_calls({"ema": Call("torch.storage", "_load_from_bytes", call)}),
    }


def _meta(keywords):
    state = {"_modules": {}, "_parameters": {}, "_buffers": {}, "_init_args": (), "_init_kwargs": {"size": keywords}}
    return {"type": "class", "version": 6, "module_src": "", "class_name": "EDMPrecond", "state": state}


def _with_state(call):
    """The bytes of a whole network with a call among the attributes of a module deep inside."""
    before, after = _around_an_attribute()
    return before + pickled_calls(call, 2)[2:-1] + after


@cache
def _around_an_attribute():
    marker = "a text that stands in for the call"
    module = network(TINY)
    module.model.map_layer0.marker = marker
    # Frames would have to be counted again; without them a pickle is as good.
    before, after = _without_frames(pickled({"ema": module})).split(b"\x8c" + bytes([len(marker)]) + marker.encode())
    return before, after


def _without_frames(content):
    frames = [position for opcode, _, position in pickletools.genops(content) if opcode.name == "FRAME"]
    kept, start = [], 0
    for position in frames:
        kept.append(content[start:position])
        start = position + 9
    return b"".join([*kept, content[start:]])


def in_storage(payload, part=3):
    """A file with a storage of one number, of whose five pickles one is the payload."""
    parts = [
        pickle.dumps(0x1950A86A20F9469CFC6C, 2),
        pickle.dumps(1001, 2),
        pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, 2),
        b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01NtQ.",
        pickle.dumps(["0"], 2),
    ]
    if payload is not None:
        parts[part] = payload
    content = b"".join(parts) + struct.pack("<qf", 1, 0.5)
    return pickled_calls({"ema": Call("torch.storage", "_load_from_bytes", content)})


def bombs():
    """Small files that ask for much."""
    storage = _load_bytes(torch.zeros(4))
    tensor = ("torch._utils", "_rebuild_tensor_v2")
    multiples = [(index * (2**61 - 1)).to_bytes(12, "little") for index in range(50_000)]  # all with the same hash
    return {
        "more instructions than allowed": b"\x80\x04(" + b"N0" * 3_000_000 + b"t.",
        "nested lists": b"\x80\x04" + b"]" * 150_000 + b"a" * 149_999 + b".",
        "tuples that double": b"\x80\x04)" + DOUBLE * 300 + b".",
        "a key of doubled tuples": b"\x80\x04})" + DOUBLE * 300 + b"Ns.",
        "keys that collide": b"\x80\x04}(" + b"".join(b"\x8a\x0c" + key + b"N" for key in multiples) + b"u.",
        "eight exabytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
        "four gigabytes": b"\x80\x04B" + struct.pack("<I", 2**32 - 1) + b"x.",
        "two gigabytes of digits": b"\x80\x04\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",
        "a million digits": b"\x80\x04L" + b"9" * 1_000_000 + b"L\n.",
        "a text that goes on": b"\x80\x04V" + b"x" * 1_000_000 + b"\n.",
        "a frame of exabytes": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
        "a memo of billions": b"\x80\x04Nr\xff\xff\xff\xff.",
        "a huge tensor": pickled_calls({"ema": Call(*tensor, storage, 0, (2**20, 2**20), (0, 0), False, {})}),
        "a negative offset": pickled_calls({"ema": Call(*tensor, storage, -8, (2,), (1,), False, {})}),
        "beyond its storage": pickled_calls({"ema": Call(*tensor, storage, 1, (4,), (1,), False, {})}),
        "a tensor of 99 axes": pickled_calls({"ema": Call(*tensor, storage, 0, (1,) * 99, (1,) * 99, False, {})}),
        "a huge storage": in_storage(None).replace(b"K\x01NtQ.", b"J\xff\xff\xff\x7fNtQ."),
        "the same storage over and over": _repeated_storage(),
        "the same text over and over": _repeated_text(),
        "a network in itself": _module_in_itself(),
        "a network in itself, with a long name": _module_in_itself("loop" * 500_000),
        "a long word": _with_arguments(embedding_type="x" * 5_000_000),
        "networks that double": _modules_that_double(),
        "a network of billions": _with_arguments(channel_mult=[2**16] * 2, model_channels=2**16),
        "a wide network": _with_arguments(model_channels=60_000),
        "a deep network": _with_arguments(num_blocks=60_000),
        "a network of many levels": _with_arguments(channel_mult=[1] * 60, num_blocks=1),
        "a huge image": _with_arguments(img_resolution=2**63),
        "many classes": _with_arguments(label_dim=65_000),
    }


def _load_bytes(values):
    return Call("torch.storage", "_load_from_bytes", _stored(values))


def _stored(values):
    """The bytes that torch writes for a tensor's storage."""
    return values.__reduce_ex__(2)[1][0].__reduce__()[1][0]


def _repeated_storage():
    """Thousands of storages of one megabyte each, made of the same bytes."""
    content = _stored(torch.zeros(250_000))
    once = b"B" + struct.pack("<I", len(content)) + content + b"q\x01"
    load = b"ctorch.storage\n_load_from_bytes\nq\x000" + once + b"0"
    return b"\x80\x02" + load + b"(" + b"h\x00h\x01\x85R" * 20_000 + b"t."


def _repeated_text():
    once = b"X" + struct.pack("<I", 1_000_000) + b"x" * 1_000_000 + b"q\x010"
    name = b"c_codecs\nencode\nq\x000X\x06\x00\x00\x00latin1q\x020"
    return b"\x80\x02" + name + once + b"(" + b"h\x00h\x01h\x02\x86R" * 20_000 + b"t."


def _with_arguments(**changed):
    module = network(TINY)
    module.model._init_kwargs = {**module.model._init_kwargs, **changed}
    return pickled({"ema": module})


def _module_in_itself(name="loop"):
    module = network(TINY)
    module.model._modules[name] = module.model
    return pickled({"ema": module})


def _modules_that_double():
    module = network(TINY)
    inside = Persistent("Layer")
    for _ in range(60):
        around = Persistent("Layer")
        around._modules |= {"left": inside, "right": inside}
        inside = around
    module.model._modules["doubling"] = inside
    return pickled({"ema": module})


def mutated(content, random):
    """A damaged copy, in one of eight ways.

    Args:
        content: the bytes of a file.
        random: a `random.Random`.
    """
    damaged = bytearray(content)
    place = random.randrange(len(damaged))
    length = min(random.choice((1, 2, 4, 16, 256, 4096)), len(damaged) - place)
    match random.randrange(8):
        case 0:  # cut short
            del damaged[place:]
        case 1:  # flipped bits
            for _ in range(random.choice((1, 1, 2, 8, 64))):
                damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        case 2:
            damaged[place : place + length] = random.randbytes(length)
        case 3:
            del damaged[place : place + length]
        case 4:  # something put in between
            damaged[place:place] = random.randbytes(length)
        case 5:  # a part again, elsewhere
            start = random.randrange(len(damaged))
            damaged[place:place] = damaged[start : start + length]
        case 6:  # an instruction for another
            damaged[place] = ord(random.choice(pickletools.opcodes).code)
        case _:  # a call, wherever it lands
            damaged[place:place] = b"cos\nsystem\n\x8c\x04true\x85R"
    return bytes(damaged)
