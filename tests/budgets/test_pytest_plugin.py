"""Fixtures and `pytest --neuron`, each in its own run of pytest."""

from __future__ import annotations

import os
import re

import pytest

from optimum_neuron.budgets import pytest_plugin
from tests import warm
from tests.budgets.test_budgets import BUDGET, KERNEL


@pytest.fixture
def run(tmp_path):
    """Run pytest on a file of tests; the plugin is named, so that it does not matter how this package is installed."""
    settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OPTIMUM_NEURON_INSTANCE": warm.SEPARATE_INSTANCE}
    names = ("-m", "pytest", "-p", pytest_plugin.__name__, "-p", "no:cacheprovider", "--rootdir=.", "test_of_users.py")

    def run_pytest(tests, *arguments):
        (tmp_path / "test_of_users.py").write_text(tests)
        result = warm.run(*names, *arguments, env={**os.environ, **settings}, cwd=tmp_path)
        counts = re.findall(r"(\d+) (passed|failed|error)", result.stdout.splitlines()[-1] if result.stdout else "")
        return {word: int(number) for number, word in counts}, result.stdout + result.stderr

    return run_pytest


@pytest.mark.parametrize("file", ["", "budgets/neuron.toml"])
def test_limits_are_tests_where_asked(run, tmp_path, file):
    folder = tmp_path / "budgets" if file else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / "kernels.py").write_text(KERNEL)
    (folder / "neuron.toml").write_text(BUDGET.format("num_instructions = 2, total_us = 1e6"))
    tests = "def test_of_users(): pass"
    assert run(tests)[0] == {"passed": 1}
    counts, text = run(tests, f"--neuron={file}" if file else "--neuron")
    assert counts == {"passed": 2, "failed": 1}, text
    assert "double[num_instructions]" in text and "Traceback" not in text


def test_no_budget_is_an_error_of_usage(run):
    counts, text = run("def test_of_users(): pass", "--neuron")
    assert "passed" not in counts and "neuron.toml" in text and "Traceback" not in text


TESTS = """
import pytest, torch
MODEL, OPTIONS = {!r}, dict(sequence_length=32, torch_dtype="float32", auto_cast="none")

def test_close(assert_close):
    assert_close(MODEL, **OPTIONS, num_equal_tokens=8)

def test_not_close(assert_close):
    assert_close(MODEL, **OPTIONS, max_abs_error=0.0)

def test_model(neuron_model):
    model = neuron_model(MODEL, **OPTIONS)
    assert type(model).__name__ == "NeuronModelForCausalLM"
    assert model(torch.ones(1, 4, dtype=torch.long)).logits.shape[:2] == (1, 4)

@pytest.mark.neuron_targets("inf2.xlarge", "trn1.2xlarge")
def test_targets(assert_compiles, assert_within, neuron_target):
    assert_compiles(MODEL, sequence_length=32)
    assert_within(MODEL, sequence_length=32, hbm_bytes_per_core=1 if neuron_target == "trn1.2xlarge" else 1e9)
"""


def test_fixtures(run, checkpoint):
    counts, text = run(TESTS.format(str(checkpoint)))
    assert counts == {"passed": 3, "failed": 2}, text
    assert re.search(r"hbm_bytes_per_core of .* limit is 1\.", text) and "max_abs_error of" in text
