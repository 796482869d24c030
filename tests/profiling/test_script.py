"""A script runs in a child as with `python SCRIPT`; its programs are profiled, its output is unchanged."""

from __future__ import annotations

import subprocess
import sys

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.profiling import profile_folder, profile_script

GENERATE = """
import sys, torch
from optimum_neuron import NeuronModelForCausalLM
model = NeuronModelForCausalLM.from_pretrained({folder!r})
prompt = torch.ones(2, 20, dtype=torch.long)
model.generate(prompt, attention_mask=torch.ones_like(prompt), min_new_tokens=4, max_new_tokens=4, do_sample=False)
print("printed", __name__, sys.argv[1:], __file__)
"""


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path_factory):
    """Scripts run in children, which cannot have cores that models of other tests in this process hold."""
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


@pytest.mark.full(days=2)
def test_programs_called_by_script_are_profiled(script, export_folder, capfd):
    path = script(GENERATE.format(folder=str(export_folder)))
    result = profile_script(path, ["--one", "2"])
    assert result.exit_code == 0
    assert capfd.readouterr().out == f"printed __main__ ['--one', '2'] {path}\n"
    recorded = {graph.graph: (graph.num_calls, graph.device_us, graph.kind) for graph in result.profile.graphs}
    folder = profile_folder(export_folder, prompt_length=20, num_steps=3)
    assert recorded == {graph.graph: (graph.num_calls, graph.device_us, graph.kind) for graph in folder.graphs}
    assert result.profile.name == "script.py" and result.profile.host_between_us > 0
    assert any("torch device" in note for note in result.profile.notes)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import beside_it, sys; sys.exit(beside_it.CODE)", 5),
        ("import sys; sys.exit('a word')", 1),
        ("def f():\n    1 / 0\n\n\nf()\n", 1),
        ("x = = 1", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_failing_script_exits_like_python(script, text, code, tmp_path, capfd):
    (tmp_path / "beside_it.py").write_text("CODE = 5\n")
    path = script(text)
    subprocess.run([sys.executable, str(path)], check=False)
    expected = capfd.readouterr().err
    result = profile_script(path)
    assert (result.exit_code, result.profile, capfd.readouterr().err) == (code, None, expected)
    assert expected or code > 1


def test_interrupted_script_keeps_its_exit_code(script):
    assert profile_script(script("raise KeyboardInterrupt")).exit_code == 130


def test_script_without_compiled_programs_is_error(script):
    path = script("print('nothing')")
    with pytest.raises(ConfigError) as error:
        profile_script(path)
    assert error.value.details == {"profile": str(path)}


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_invalid_file_is_error(tmp_path, name):
    with pytest.raises(ConfigError) as error:
        profile_script(tmp_path / name)
    assert error.value.details == {"path": str(tmp_path / name)}


THREADS = """
import concurrent.futures, threading, time
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(lambda: model.generate(prompt, max_new_tokens=1)).result()
threading.Thread(target=lambda: (time.sleep(0.2), model.generate(prompt, max_new_tokens=1))).start()
"""


@pytest.mark.full(days=4)
def test_threads_are_joined_and_open_pools_end_as_usual(script, export_folder):
    text = GENERATE.format(folder=str(export_folder)) + THREADS
    (prefill,) = [g for g in profile_script(script(text)).profile.graphs if g.graph.startswith("prefill")]
    assert prefill.num_calls == 3
