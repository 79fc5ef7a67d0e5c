"""What the README says is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gausslens import TrainConfig
from gausslens.data import load_images
from gausslens.training.train import resolve

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e"
COMMANDS = [f"{INSTALL} . && .venv/bin/gausslens study digits", f"{INSTALL} '.[test]' && .venv/bin/pytest"]


@pytest.mark.parametrize("command", COMMANDS)
def test_both_commands_stand_on_a_line_of_their_own(command):
    assert README.splitlines().count(command) == 1


def test_the_continuous_checks_run_both_commands_as_written():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    patterns = re.findall(r"^readme_command '(.+?)'", script, flags=re.MULTILINE)
    matched = [[line for line in README.splitlines() if re.search(pattern, line)] for pattern in patterns]
    assert matched == [[command] for command in COMMANDS]


def test_the_example_runs_as_it_is():
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(block.splitlines()) <= 15
    answer = subprocess.run([sys.executable, "-W", "error", "-"], input=block, capture_output=True, text=True)
    assert answer.stderr == ""
    linearity = [float(value) for value in re.findall(r"minimum linearity: ([\d.]+)", answer.stdout)]
    distance = [float(value) for value in re.findall(r"maximum distance from the Gaussian: ([\d.]+)", answer.stdout)]
    assert linearity[0] == 1 > linearity[1]  # the Gaussian denoiser is affine, memory is not
    assert distance[0] == 0 < distance[1]


def test_the_folder_that_training_makes_has_the_name_that_is_shown():
    digits = load_images("digits")
    config = resolve(TrainConfig("digits", split="1400"), digits)
    assert f"gausslens train digits --split {config.split}\n" in README
    shown = set(re.findall(r"runs/train-digits-(\S+)", README + (ROOT / "docs" / "commands.md").read_text("utf-8")))
    assert {name.split("/")[0].rstrip(".") for name in shown} == {config.identity(digits.content_hash)}


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)", README)
    missing = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
    assert missing == []
