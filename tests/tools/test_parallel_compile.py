"""`neuron_parallel_compile`: a script fills the caches, its graphs are counted, its exit code is kept."""

from __future__ import annotations

import sys
import textwrap

import pytest

from optimum_neuron.base import env, startup
from optimum_neuron.compiler.cache import CompileCache
from optimum_neuron.tools import parallel_compile
from tests.tools.conftest import ROOT

SCRIPT = textwrap.dedent("""
    import sys, warnings
    warnings.filterwarnings("error", message="NEURON_")
    import torch
    from optimum_neuron.tracing import trace

    for _ in range(2):
        trace(torch.nn.Linear(4, 4), torch.ones(1, 4), compiler_args="-O1")
    print("trained", *sys.argv[1:])
""")


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.full(days=4)
def test_script_compiles_once_and_hits_again(script, capfd):
    assert parallel_compile.main([sys.executable, script, "--steps", "3"]) == 0
    output = capfd.readouterr()
    assert output.out == "trained --steps 3\n"
    assert "NEFFs (compile cache): 1 compiled, 1 found\n" in output.err
    assert "graphs of torch.compile (torch's caches): 0 compiled, 0 found\n" in output.err
    assert CompileCache().status()["num_entries"] == 1
    assert parallel_compile.main(["--command=clear-locks"]) == 0 and "0 entries locked" in capfd.readouterr().out
    assert parallel_compile.main(["--command", "clean"]) == 0
    assert CompileCache().status()["num_entries"] == 0


def test_exit_code_is_the_scripts_unless_errors_are_ignored(capfd):
    failing = [sys.executable, "-c", "import sys; sys.exit(7)"]
    assert parallel_compile.main(failing) == 7
    assert parallel_compile.main([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137
    capfd.readouterr()
    assert parallel_compile.main(["--ignore-errors", *failing]) == 0
    assert "exit code 7" in capfd.readouterr().err


def test_options_without_effect_and_scripts_without_graphs_are_reported(capfd):
    assert parallel_compile.main(["--num_parallel", "10", "--command", "collect", sys.executable, "-c", "pass"]) == 0
    output = capfd.readouterr().err
    assert "--num_parallel has no effect" in output and "--command collect" in output and "compiled nothing" in output


def test_scripts_see_the_shortening_variable(capfd):
    reads = "import os; print(os.environ['NEURON_EXTRACT_GRAPHS_ONLY'], os.environ['NEURON_PARALLEL_COMPILE'])"
    assert parallel_compile.main([sys.executable, "-c", reads]) == 0
    assert capfd.readouterr().out == "1 1\n"


def test_own_variables_cause_no_warning_and_user_variables_do(tmp_path):
    assert set(startup.unused(env.recording_compiles(tmp_path, {}))) == set()
    assert set(startup.unused(dict.fromkeys(env.FOR_SCRIPTS, "1"))) == {"NEURON_PARALLEL_COMPILE"}


@pytest.mark.parametrize("words", [[], ["no_such_command_anywhere"], ["--"]])
def test_missing_or_invalid_command_is_an_error(words, capfd):
    assert parallel_compile.main(words) == 1
    assert "neuron_parallel_compile python train.py" in capfd.readouterr().err


def test_disabled_cache_is_an_error(monkeypatch, capfd):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--no_cache")
    assert parallel_compile.main([sys.executable, "-c", "pass"]) == 1
    assert "--no_cache" in capfd.readouterr().err


def test_unknown_options_are_errors(mistyped):
    assert "--num_parallel" in mistyped(parallel_compile.main, "--num_paralel", "2", "true")
