"""Pickles are read without running them: what is in order comes out whole, everything else is refused, at once.

Whatever is hostile is read by a process of its own, which tells all that Python did meanwhile.
"""

import json
import pickle
import random
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import hostile_reader
import numpy as np
import pytest
import torch
from edm_files import EasyDict, edm_pickle, network, pickled
from hostile_pickles import TINY, bombs, calls, in_storage, mutated, placed

from gausslens.errors import CheckpointError
from gausslens.safe_pickle import Instance
from gausslens.zoo.pickles import read_pickle

SECONDS, MEGABYTES = 5, 200
BROKEN = {
    "it is empty": b"",
    "zip archive, as torch.save writes it": b"PK\x03\x04rest",
    "does not begin as pickles do": b"hello",
    "at byte 2 it ends": b"\x80\x04",
    "at byte 3 it ends, or has what is no instruction": b"\x80\x04\xff",
    "takes more from its stack than": b"\x80\x04.",
    "1 bytes follow its end": b"\x80\x04N.N",
    "recalls a value that it never stored": b"\x80\x04h\x07.",
    "ends a list that was never begun": b"\x80\x04t.",
    "appends to a value of type int": b"\x80\x04K\x01K\x02a.",
    "a value of type int for a key": b"\x80\x04}K\x01K\x02s.",
    "calls a value of type NoneType": b"\x80\x04N)R.",
    "a value of type NoneType for arguments": b"\x80\x04ccollections\nOrderedDict\nNR.",
    "OrderedDict with 1 arguments that do not fit": b"\x80\x04ccollections\nOrderedDict\n(K\x01tR.",
    "sets the state of a value of type dict": b"\x80\x04}}b.",
    "the instruction BINPERSID": b"\x80\x04NQ.",
    "the instruction PERSID": b"\x80\x04P1\n.",
    "the instruction INST": b"\x80\x04(ios\nsystem\n.",
    "asks for 'os.system'": b"\x80\x04(cos\nsystem\no.",
    "the instruction OBJ": b"\x80\x04(No.",
    "the instruction EXT1": b"\x80\x04\x82\x01.",
    "the instruction NEWOBJ_EX": b"\x80\x04N)}\x92.",
    "the instruction NEXT_BUFFER": b"\x80\x05\x97.",
    "the instruction DUP": b"\x80\x04N2.",
    "the instruction LIST": b"\x80\x04(l.",
    "the instruction DICT": b"\x80\x04(d.",
    "the instruction INT": b"\x80\x04I1\n.",
    "names something by a value that is not a text": b"\x80\x04K\x01K\x02\x93.",
    "asks for 'xxxx": b"\x80\x04c" + b"x" * 1_000_000 + b"\ny\n.",
}


def tried(folder, contents):
    """What happened to each of some files, by name."""
    for name, content in {"": edm_pickle(TINY), **contents}.items():
        (folder / f"{name}.pkl").write_bytes(content)
    script = [sys.executable, hostile_reader.__file__, str(folder)]
    ran = subprocess.run(script, capture_output=True, text=True, check=True, timeout=600)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    found = {line.pop("name"): line for line in lines}
    assert found.keys() == contents.keys()
    for name, result in found.items():
        assert result["events"] == [], name
        assert result["seconds"] < SECONDS, name
        assert result["megabytes"] < MEGABYTES, name
        assert not result["outcome"].startswith("FAILED"), (name, result["outcome"])
        assert len(result["outcome"]) < 1500
    assert {path.name for path in folder.iterdir()} == {f"{name}.pkl" for name in ["", *contents]}
    return {name: result["outcome"] for name, result in found.items()}


@pytest.fixture
def read(tmp_path):
    """Reads the pickle of a value."""

    def write_and_read(content, protocol=4):
        path = tmp_path / "value.pkl"
        path.write_bytes(content if isinstance(content, bytes) else pickled(content, protocol))
        return read_pickle(path)

    return write_and_read


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_come_out_as_they_are(read, protocol):
    values = {
        "numbers": [0, -1, 255, 65536, 2**31, -(2**70), 0.5, float("inf")],
        "texts": ("", "σ", "x" * 300, "y" * 70_000),
        "bytes": [b"\x00\xff", b"z" * 300],
        "constants": (None, True, False),
        "nested": {"a": {"b": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]}},
    }
    again = [values["texts"], values["texts"]]
    assert read({**values, "again": again}, protocol) == {**values, "again": again}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_dictionaries_of_other_classes_come_out_as_dictionaries(read, protocol):
    assert read(OrderedDict(a=EasyDict(b=1, c=EasyDict())), protocol) == {"a": {"b": 1, "c": {}}}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool],
)
def test_tensors_come_out_as_they_are(read, dtype, protocol):
    values = torch.arange(24).reshape(2, 3, 4).to(dtype)
    given = {
        "whole": values,
        "view": values[1:, :, ::2],
        "turned": values.permute(2, 0, 1),
        "scalar": values[0, 1, 1],
        "none": values[:0],
        "parameter": torch.nn.Parameter(values, requires_grad=False),
    }
    found = read(given, protocol)
    assert found.keys() == given.keys()
    for name, tensor in given.items():
        assert type(found[name]) is torch.Tensor
        assert found[name].dtype == dtype
        torch.testing.assert_close(found[name], tensor.data, rtol=0, atol=0)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_objects_come_out_as_their_class_and_state(read, protocol):
    module = network(TINY)
    found = read({"ema": module, "number": np.float64(0.5)}, protocol)
    assert isinstance(found["ema"], Instance)
    assert found["ema"].class_name == "EDMPrecond"
    assert found["ema"].state["_init_args"] == (4, 1)
    inner = found["ema"].state["_modules"]["model"]
    assert inner.class_name == "SongUNet"
    assert inner.state["_init_kwargs"] == module.model._init_kwargs
    encoder = inner.state["_modules"]["enc"]
    assert encoder.class_name == "torch.nn.modules.container.ModuleDict"
    bias = encoder.state["_modules"]["4x4_conv"].state["_parameters"]["bias"]
    torch.testing.assert_close(bias, module.model.enc["4x4_conv"].bias.data, rtol=0, atol=0)


def test_calls_are_refused_by_name_wherever_they_are(tmp_path):
    contents = {
        f"{name}, {place}": content
        for name, call in calls(tmp_path / "canary").items()
        for place, content in placed(call).items()
    }
    assert len(contents) > 300
    for name, outcome in tried(tmp_path, contents).items():
        assert "it asks for '" in outcome, (name, outcome)
        assert "Nothing in it was executed" in outcome
        if name.startswith("os.system"):
            assert "it asks for 'os.system'" in outcome


@pytest.mark.parametrize("place", ["alone", "protocol 2", "in state"])
@pytest.mark.parametrize("name", ["os.system", "exec", "eval", "subprocess.check_output"])
def test_the_calls_would_do_harm_if_they_were_run(name, place, tmp_path):
    """What the test above rests on."""
    pickle.loads(placed(calls(tmp_path / "canary")[name])[place])
    assert (tmp_path / "canary").exists()


def test_the_reader_sees_what_is_done(tmp_path, monkeypatch):
    """What all these tests rest on."""
    script = (
        "import os, pickle, sys; sys.path.append(sys.argv[1]); import hostile_reader; watch = hostile_reader.Watch()\n"
        "def load(path): os.system('true'); exec('1'); pickle.loads(pickle.dumps(os.system)); open(path, 'w')\n"
        "hostile_reader.load_edm = load; print(watch.read(sys.argv[2]))"
    )
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        script,
        str(Path(hostile_reader.__file__).parent),
        str(tmp_path / "a"),
    ]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    for event in ("os.system", "exec", "pickle.find_class", "open"):
        assert f"'{event}'" in ran.stdout


def test_the_storages_that_are_attacked_are_in_order_otherwise(read):
    assert read(in_storage(None))["ema"].tolist() == [0.5]


def test_what_asks_for_too_much_or_is_broken_is_refused_with_the_reason(tmp_path):
    whole = in_storage(None)
    cut = {f"cut {length}": whole[:length] for length in range(0, len(whole), 3)}
    broken = {f"broken {index}": content for index, content in enumerate(BROKEN.values())}
    outcomes = tried(tmp_path, {**bombs(), **cut, **broken})
    assert "read" not in outcomes.values()
    for index, message in enumerate(BROKEN):
        assert message in outcomes[f"broken {index}"]
    assert "far more instructions" in outcomes["more instructions than allowed"]
    assert "the same bytes over and over" in outcomes["the same storage over and over"]
    assert "more than 3,000 modules" in outcomes["networks that double"]
    assert "a name of more than 1,000 letters" in outcomes["a network in itself, with a long name"]
    assert "a short text for embedding_type" in outcomes["a long word"]


def damaged(count, seed):
    chance = random.Random(seed)
    bases = [edm_pickle(TINY, protocol) for protocol in (2, 4, 5)]
    return {f"{index}": mutated(chance.choice(bases), chance) for index in range(count)}


@pytest.mark.parametrize("count", [50, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_read_and_nothing_else_happens(count, tmp_path):
    """Flipped bits inside the weights are weights, and inside the source nobody looks; all other damage is found."""
    outcomes = list(tried(tmp_path, damaged(count, seed=count)).values())
    assert 0 < outcomes.count("read") < count / 3


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "missing.pkl", tmp_path):
        with pytest.raises(CheckpointError, match="no such file"):
            read_pickle(path)
