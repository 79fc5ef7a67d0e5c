"""The command answers quickly and readably, and what it shows is true."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import gausslens
from gausslens.cli import main as cli
from gausslens.cli import study as studying
from gausslens.errors import CheckpointError, ConfigError, DataError


def run(*words, module="gausslens"):
    return subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=120)


def test_version():
    answer = run("--version")
    assert answer.stdout == f"gausslens {gausslens.__version__}\n"
    assert answer.returncode == 0


@pytest.mark.parametrize(
    ("words", "examples"),
    [(["--help"], "gausslens train digits"), (["train", "--help"], "gausslens train digits --split 1400")],
)
def test_help_answers_at_once(words, examples):
    started = time.perf_counter()
    answer = run(*words)
    seconds = time.perf_counter() - started
    assert answer.returncode == 0
    assert examples in answer.stdout
    assert seconds < 2  # 0.15 s on an idle machine


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["study", "--help"]])
def test_help_imports_neither_torch_nor_numpy(words):
    program = (
        "import sys; from gausslens.cli.main import main\n"
        f"try: main({words})\n"
        "finally: print('imported:', [m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert answer.stdout.endswith("imported: []\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "gausslens: expected a command, one of train, "),
        (["trian"], "got trian. See gausslens --help."),
        (["study"], "gausslens study: missing DATA. The images: "),
        (["study", "digits", "--only", "sise"], "gausslens study: --only must be among references"),
        (["report"], "gausslens report: missing RUNS. Folders of studies"),
        (["study", "digits", "--fast"], "unrecognized option --fast"),
        (["train"], "gausslens train: missing DATA."),
        (["train", "digits", "--widht", "3"], "did you mean --width?"),
        (["train", "digits", "--width", "wide"], "--width: expected a whole number, got 'wide'"),
        (["train", "digits", "--width", "0"], "gausslens train: --width must be an integer of at least 1; got 0."),
        (["train", "digits", "--multipliers", "1,x"], "--multipliers: expected a whole number, got 'x'"),
        (["train", "digits", "--network", "gan"], "--network: invalid choice: 'gan' (choose from "),
        (["train", "digits", "--range", "1"], "--range: expected 2 arguments"),
        (["train", "digits", "--kimg"], "--kimg: expected one argument"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1
    assert "--help" in output.err


@pytest.mark.parametrize(("error", "code"), [(ConfigError, 2), (DataError, 2), (CheckpointError, 1)])
def test_errors_are_one_message_unless_debugging(error, code, monkeypatch, capsys):
    def fail(options, how):
        raise error("expected this, got that")

    monkeypatch.setattr(studying, "run", fail)
    assert cli.main(["study", "digits"]) == code
    assert capsys.readouterr().err == "gausslens: expected this, got that\n"
    for words in (["--debug", "study", "digits"], ["study", "digits", "--debug"]):
        with pytest.raises(error):
            cli.main(words)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_in_either_way_it_says_the_same(number, code, monkeypatch, capsys):
    def stop(options, how):
        signal.raise_signal(number)

    monkeypatch.setattr(studying, "run", stop)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background are started without
    try:
        assert cli.main(["study", "digits"]) == code
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "\ngausslens: stopped; the same command continues with what is not finished.\n"


def test_a_reader_who_has_read_enough_hears_nothing_more():
    unread, written = os.pipe()
    os.close(unread)
    try:
        answer = subprocess.run([sys.executable, "-m", "gausslens", "--help"], stdout=written, stderr=subprocess.PIPE)
    finally:
        os.close(written)
    assert (answer.returncode, answer.stderr) == (1, b"")


def test_a_terminal_without_greek_letters_gets_question_marks():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "gausslens", "audit", "--help"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert answer.returncode == 0, answer.stderr


def test_a_comma_in_the_name_of_a_folder_is_part_of_it(tmp_path, capsys):
    assert cli.main(["report", str(tmp_path / "my,runs")]) == 2
    assert "my,runs" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_its_options(shell, capsys):
    assert cli.main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    for words in ("how-many", "stop-when-memorizing", "fail-on", "dry-run"):
        assert words in script
    assert "no-flip" not in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [("st", "study"), ("study digits --net", "--network"), ("train digits --stop", "--stop-when-memorizing")],
)
def test_bash_completes(typed, completed, capsys):
    assert cli.main(["--print-completion", "bash"]) == 0
    words = f"COMP_WORDS=(gausslens {typed}); COMP_CWORD={len(typed.split())}; _gausslens; echo ${{COMPREPLY[@]}}"
    answer = subprocess.run(
        ["bash", "-c", f"{capsys.readouterr().out}\n{words}"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == completed


def test_completion_for_another_shell_is_bad_usage(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--print-completion", "cmd"])
    assert caught.value.code == 2
    assert "expected one of bash, zsh, fish; got cmd" in capsys.readouterr().err
