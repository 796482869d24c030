"""The recipes of models/: help always, and one real run of each."""

from __future__ import annotations

import os
import runpy
import sys

import pytest

from optimum_neuron.models import families
from tests import warm
from tests.tree import ROOT

MODELS = ROOT / "models"
LIBRARY = "kernels"
"""Folder of modules that no one runs as a script; `tests/nki/test_library.py` has its tests."""
SCRIPTS = sorted(p.relative_to(MODELS).as_posix() for p in MODELS.glob("*/*.py") if p.parent.name != LIBRARY)


def run(folder, script, *words, **environment):
    return warm.run(str(MODELS / script), *words, cwd=folder, env={**os.environ, **environment})


def test_every_family_has_card_and_script():
    families = {path.name for path in MODELS.iterdir() if path.is_dir()}
    assert families == {path.parent.name for path in MODELS.glob("*/README.md")}
    assert families == {LIBRARY, *(script.split("/")[0] for script in SCRIPTS)}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--no_such_option"], 2)])
def test_help_and_usage_error(script, words, code, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [script, *words])
    monkeypatch.syspath_prepend(str((MODELS / script).parent))
    with pytest.raises(SystemExit) as excinfo:
        runpy.run_path(str(MODELS / script), run_name="__main__")
    assert excinfo.value.code == code
    assert "--optlevel" in "".join(capsys.readouterr())


@pytest.mark.full(days=14)
@pytest.mark.checkpoint
def test_llama_exports_answers_and_finds_export_again(tmp_path, real_environment):
    words = ("llama/export.py", "--prompt", "Name three fruits.")
    first = run(tmp_path, *words, "--optlevel", "1", "--sequence_length", "128", **real_environment)
    assert first.returncode == 0, first.stderr[-4000:]
    assert first.stdout == "1. Bananas\n2. Oranges\n3. Grapes\n"
    result = run(tmp_path, *words, "--model", "no/such", **real_environment)
    assert (result.returncode, result.stdout) == (0, first.stdout), result.stderr[-4000:]


@pytest.mark.full(days=14)
@pytest.mark.checkpoint
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("albert/reactions.py", "132 of 134 masked tokens right; 134 as transformers says"),
        ("bert/embed.py", "against transformers: cosine 1.000000 or more, largest difference"),
        ("pp_lcnet/orientation.py", "4 of 4 as transformers says; largest difference"),
        ("whisper/transcribe.py", "word error rate over 71 words: ours 0.056, transformers 0.056"),
        ("roberta/antibody.py", "7 of 7 as transformers says; largest difference"),
    ],
)
def test_recipe_prints_its_documented_output(tmp_path, real_environment, script, says):
    result = run(tmp_path, script, "--optlevel", "1", **real_environment)
    assert result.returncode == 0, result.stderr[-4000:]
    *lines, last = result.stdout.splitlines()
    assert last.startswith(says)
    card = (MODELS / script).with_name("README.md").read_text(encoding="utf-8")
    assert [line for line in (*lines, says) if line not in card] == []


@pytest.mark.full(days=14)
@pytest.mark.checkpoint
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("bert/fine_tune.py", ("--max_steps", "2", "--num_held_out", "32", "--optlevel", "1")),
        ("llama/fine_tune.py", ("--max_steps", "2", "--num_held_out", "4", "--batch_size", "2")),
        ("whisper/fine_tune.py", ("--max_steps", "2")),
    ],
)
def test_recipe_trains_exports_and_uses(tmp_path, real_environment, script, words):
    pytest.importorskip("peft")
    result = run(tmp_path, script, *words, "--output", "tuned", **real_environment)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "\nloss: " in result.stdout and "held-out" in result.stdout
    assert (tmp_path / "tuned" / "exported" / "neuron_config.json").is_file()


@pytest.mark.full(days=14)
@pytest.mark.checkpoint
def test_llama_trains_a_draft(tmp_path, checkpoint, real_environment):
    words = ["--num_words", "4", "--num_held_out", "1", "--max_new_tokens", "4", "--max_steps", "2", "--optlevel", "1"]
    words += ["--model", str(checkpoint), "--sequence_length", "48", "--draft_vocab_size", "32"]
    result = run(tmp_path, "llama/eagle3.py", *words, **real_environment)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "1 of 1 answers as without a draft" in result.stdout and "step 2: loss" in result.stdout
    assert (tmp_path / "eagle3_out" / "model.safetensors").is_file()


@pytest.mark.full(days=14)
@pytest.mark.checkpoint
def test_llama_trains_medusa_heads(tmp_path, checkpoint, real_environment):
    words = ["--num_words", "4", "--num_held_out", "1", "--max_new_tokens", "6", "--max_steps", "2", "--optlevel", "1"]
    words += ["--model", str(checkpoint), "--sequence_length", "48"]
    result = run(tmp_path, "llama/medusa.py", *words, **real_environment)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "1 of 1 answers as without heads" in result.stdout and "step 2: loss" in result.stdout
    assert (tmp_path / "medusa_out" / "medusa_lm_head.safetensors").is_file()


def test_card_lists_every_row_of_weight_map():
    card = (MODELS / "llama" / "README.md").read_text(encoding="utf-8")
    for parameter in families()["llama"].WEIGHT_MAP:
        assert f"| `{parameter.removesuffix('.weight').replace('{}', 'N')}` |" in card
