"""What a user types and reads: options, never the names of Python."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from gausslens.cli import GlobalOptions
from gausslens.cli.audit import Options as Audit
from gausslens.cli.convert import Options as Convert
from gausslens.cli.how_many import Options as HowMany
from gausslens.cli.measure import Options as Measure
from gausslens.cli.parsing import GROUPS, as_typed, field_docs, make_parser, parse
from gausslens.cli.report import Options as Report
from gausslens.cli.sample import Options as Sample
from gausslens.cli.study import Options as Study
from gausslens.cli.train import Options as Train


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("held_out must leave something; got 5.", "--held-out must leave something; got 5."),
        ("value_range must be two numbers.", "--range must be two numbers."),
        ("width must be an integer of at least 1; got 0.", "--width must be an integer of at least 1; got 0."),
        ("data must be a text that is not empty", "DATA must be a text that is not empty"),
        ("labels=True needs labelled images", "--labels needs labelled images"),
        ("Pass --size S (size=S) to crop them.", "Pass --size S to crop them."),
        ("for example --range 0 1 (value_range=(0, 1)).", "for example --range 0 1."),
        ("no images in set/held_out/split_seed.npy", "no images in set/held_out/split_seed.npy"),
        ("the width of an image", "the width of an image"),
    ],
)
def test_messages_name_the_options(said, typed):
    assert as_typed(said, Train) == typed


KINDS = [Train, Sample, Measure, Study, Audit, HowMany, Report, Convert]


@pytest.mark.parametrize("kind", [*KINDS, GlobalOptions])
def test_every_option_is_explained_with_its_default_and_has_a_group(kind):
    docs, places = field_docs(kind), " ".join(GROUPS.values()).split()
    for field in fields(kind):
        text = docs[field.name]
        assert text.endswith(".")
        if field.default is MISSING:
            continue
        assert places.count(field.name) == 1, field.name
        assert ("Default: " in text) is (field.default is None or field.default == ()), field.name


@pytest.mark.parametrize("kind", KINDS)
def test_help_speaks_plainly(kind, capsys):
    with pytest.raises(SystemExit):
        parse(kind, ["--help"], program="gausslens")
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("None", "unset", "Default: .", "()", "by default", "what options", "│"):
        assert words not in shown
    assert "\nexecution:\n" in make_parser(kind).format_help()


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ([], "compile", None),
        (["--compile", "False"], "compile", False),
        (["--compile"], "compile", True),
        (["--flip"], "flip", True),
        (["--flip", "--no-flip"], "flip", False),
        (["--held_out", "5"], "held_out", 5),
        (["--held-out=5"], "held_out", 5),
        (["--multipliers", "1", "2"], "multipliers", (1, 2)),
        (["--multipliers", "1,2"], "multipliers", (1, 2)),
        (["--range", "-1e-3", "2"], "value_range", (-0.001, 2.0)),
        (["--preconditioning", "none"], "preconditioning", "none"),
        ([], "preconditioning", None),
    ],
)
def test_values_are_read(words, field, value):
    options, _ = parse(Train, ["digits", *words], program="gausslens train")
    assert getattr(options, field) is value or getattr(options, field) == value


@pytest.mark.parametrize(
    "words",
    [
        ["here:model", "--train", "a.npz"],
        ["--train", "a.npz", "--model", "here:model"],
        ["--model=here:model", "--train=a.npz"],
    ],
)
def test_the_one_thing_that_must_be_named_may_be_named_as_an_option(words):
    options, _ = parse(Audit, words, program="gausslens audit")
    assert (options.model, options.train) == ("here:model", "a.npz")


@pytest.mark.parametrize(
    "words", [["--only", "size", "time", "digits"], ["--only", "size", "time", "digits", "--seeds", "3"]]
)
def test_the_images_may_follow_a_list_of_values(words):
    options, _ = parse(Study, words, program="gausslens study")
    assert (options.data, options.only) == ("digits", ("size", "time"))


def test_the_old_name_of_an_option_works_and_warns():
    for kind in (Study, HowMany):
        with pytest.warns(FutureWarning, match="--model is now --network."):
            options, _ = parse(kind, ["digits", "--model", "dit"], program="gausslens study")
        assert options.network == "dit"


def test_options_may_stand_between_the_folders_of_a_report():
    options, _ = parse(Report, ["a", "--svg", "b,c"], program="gausslens report")
    assert options == Report(runs=(Path("a"), Path("b,c")), svg=True)


def test_an_option_without_its_value_is_said_as_typed(capsys):
    with pytest.raises(SystemExit) as end:
        parse(Audit, ["--model"], program="gausslens audit")
    assert end.value.code == 2
    assert "what." not in capsys.readouterr().err
