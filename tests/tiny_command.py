"""The command line in this process, on a network of two seconds."""

from gausslens.cli import main as cli

TINY = ("--width", "8", "--multipliers", "1", "--blocks", "1", "--batch", "32", "--kimg", "1.6", "--ramp-kimg", "0.2")


def command(capsys, *words):
    """Exit code, standard output and standard error of a command."""
    capsys.readouterr()
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as end:
        code = end.code
    output = capsys.readouterr()
    return code, output.out, output.err


def train_tiny(out, *words):
    """The folder of a run on the digits, trained for a moment."""
    code = cli.main(["train", "digits", "--split", "200", *TINY, "--out", str(out), "--quiet", "--cpu", *words])
    assert code == 0
    (folder,) = out.glob("train-*")
    return folder
