"""What computed a result is written down with it."""

import subprocess
from pathlib import Path

import pytest
import torch

from gausslens.store import provenance


@pytest.fixture(autouse=True)
def _forget():
    yield
    provenance._commit.cache_clear()


@pytest.mark.parametrize("told", [None, "abc1234"])
def test_outside_a_git_tree_the_version_is_what_a_variable_says(tmp_path, monkeypatch, told):
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "gausslens" / "store" / "provenance.py"))
    monkeypatch.delenv("GAUSSLENS_COMMIT", raising=False)
    if told:
        monkeypatch.setenv("GAUSSLENS_COMMIT", told)
    provenance._commit.cache_clear()
    found = provenance.describe_machine(torch.device("cpu"))
    assert found["commit"] == told
    assert found["device"].startswith("cpu: ")


def test_in_a_git_tree_it_is_the_commit(tmp_path, monkeypatch):
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "gausslens" / "store" / "provenance.py"))
    monkeypatch.setenv("GAUSSLENS_COMMIT", "abc1234")
    provenance._commit.cache_clear()
    head = (tmp_path / ".git" / "HEAD").read_text().split()[-1]
    assert (
        provenance.describe_machine(torch.device("cpu"))["commit"] == Path(tmp_path / ".git" / head).read_text().strip()
    )
