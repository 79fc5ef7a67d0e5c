"""What a user types and reads: options, never the names of Python."""

import pytest

from gausslens.cli.audit import Options as Audit
from gausslens.cli.how_many import Options as HowMany
from gausslens.cli.measure import Options as Measure
from gausslens.cli.parsing import as_typed, parse
from gausslens.cli.report import Options as Report
from gausslens.cli.sample import Options as Sample
from gausslens.cli.study import Options as Study
from gausslens.cli.train import Options as Train


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("held_out must leave something; got 5.", "--held-out must leave something; got 5."),
        ("value_range must be two numbers.", "--range must be two numbers."),
        ("width must be an integer from 1 on; got 0.", "--width must be an integer from 1 on; got 0."),
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


@pytest.mark.parametrize("kind", [Train, Sample, Measure, Study, Audit, HowMany, Report])
def test_help_never_speaks_of_none(kind, capsys):
    with pytest.raises(SystemExit):
        parse(kind, ["--help"], program="gausslens", description="")
    shown = capsys.readouterr().out
    assert "None" not in shown
    assert "(default: unset)" in " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ([], "compile", None),
        (["--compile", "False"], "compile", False),
        (["--preconditioning", "none"], "preconditioning", "none"),
        ([], "preconditioning", None),
    ],
)
def test_choices_that_may_be_left_open(words, field, value):
    options, _ = parse(Train, ["digits", *words], program="gausslens train", description="")
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
    options, _ = parse(Audit, words, program="gausslens audit", description="")
    assert (options.model, options.train) == ("here:model", "a.npz")


def test_an_option_without_its_value_is_said_as_typed(capsys):
    with pytest.raises(SystemExit) as end:
        parse(Audit, ["--model"], program="gausslens audit", description="")
    assert end.value.code == 2
    assert "what." not in capsys.readouterr().err
