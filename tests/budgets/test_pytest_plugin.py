"""Fixtures and `pytest --neuron`, in a run of pytest inside this one."""

from __future__ import annotations

import pytest

from optimum_neuron.budgets import pytest_plugin
from tests.budgets.test_budgets import BUDGET, KERNEL

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on a file of tests; the plugin is named, so that it does not matter how this package is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_pytest(tests, *arguments):
        pytester.makepyfile(tests)
        return pytester.runpytest_inprocess("-p", pytest_plugin.__name__, *arguments)

    return run_pytest


@pytest.mark.parametrize("file", ["", "=budgets/neuron.toml"])
def test_limits_are_tests_where_asked(run, pytester, file):
    folder = pytester.mkdir("budgets") if file else pytester.path
    (folder / "kernels.py").write_text(KERNEL)
    (folder / "neuron.toml").write_text(BUDGET.format("num_instructions = 2, total_us = 1e6"))
    tests = "def test_of_users(): pass"
    run(tests).assert_outcomes(passed=1)
    result = run(tests, f"--neuron{file}")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*double[[]num_instructions[]]*", "num_instructions of double is 3, *limit is 2.*"])


def test_no_budget_is_an_error_of_usage(run):
    result = run("def test_of_users(): pass", "--neuron")
    assert result.ret != 0 and "neuron.toml" in result.stderr.str() + result.stdout.str()


def test_fixtures(run, tiny_llama):
    tests = f"""
        import pytest, torch
        MODEL, OPTIONS = {str(tiny_llama)!r}, dict(sequence_length=32, torch_dtype="float32", auto_cast="none")

        def test_close(assert_close):
            assert_close(MODEL, **OPTIONS, num_equal_tokens=24)

        def test_not_close(assert_close):
            assert_close(MODEL, **OPTIONS, max_abs_error=0.0)

        def test_model(neuron_model):
            model = neuron_model(MODEL, **OPTIONS)
            assert type(model).__name__ == "NeuronModelForCausalLM"
            assert model(torch.ones(1, 4, dtype=torch.long)).logits.shape[:2] == (1, 4)

        @pytest.mark.neuron_targets("inf2.xlarge", "trn1.2xlarge")
        def test_targets(assert_compiles, assert_within, neuron_target):
            assert_compiles(MODEL, sequence_length=32)
            assert_within(MODEL, sequence_length=32, hbm_bytes_per_core=1.0 if neuron_target[0] == "t" else 1e9)
    """
    result = run(tests)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*hbm_bytes_per_core of * its limit is 1.", "*max_abs_error of *"], consecutive=False)
