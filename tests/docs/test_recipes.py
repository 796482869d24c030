"""The recipes of models/: help always, and one real run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from optimum_neuron.models.llama import WEIGHT_MAP
from tests.docs.fences import ROOT

LLAMA = ROOT / "models" / "llama"


def run(folder, *words, **environment):
    command = [sys.executable, str(LLAMA / "export.py"), *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_help(tmp_path):
    done = run(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert "--prompt" in done.stdout and "--optlevel" in done.stdout


def test_a_typing_mistake_is_refused(tmp_path):
    assert run(tmp_path, "--promt", "x").returncode == 2


@pytest.mark.checkpoint
def test_it_exports_answers_and_finds_the_export_again(tmp_path, apart):
    first = run(tmp_path, "--optlevel", "1", "--sequence_length", "128", "--prompt", "Name three fruits.", **apart)
    assert first.returncode == 0, first.stderr[-4000:]
    assert first.stdout == "1. Bananas\n2. Oranges\n3. Grapes\n"
    again = run(tmp_path, "--prompt", "Name three fruits.", "--model", "no/such", **apart)
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr[-4000:]


def test_the_card_lists_every_row_of_the_weight_map():
    card = (LLAMA / "README.md").read_text(encoding="utf-8")
    for parameter in WEIGHT_MAP:
        assert f"| `{parameter.removesuffix('.weight').replace('{}', 'N')}` |" in card
