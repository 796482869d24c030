"""Records of compiled graphs: one file for each process, and a warning where they cannot be written."""

import subprocess
import sys

from optimum_neuron.base import env
from optimum_neuron.compiler import tally
from tests.tools.conftest import ROOT


def test_each_process_has_its_own_records(tmp_path):
    adds = """
from optimum_neuron.base import env
from optimum_neuron.compiler import tally
tally.add(env.compile_records(), "neff", "a", was_compiled=True)
"""
    environ = {**env.recording_compiles(tmp_path), "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", adds], env=environ) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert tally.read(tmp_path) == [tally.Record(kind="neff", name="a", was_compiled=True)] * 2
    assert {path.name for path in tmp_path.iterdir()} == {f"{process.pid}.jsonl" for process in running}


def test_missing_folder_is_a_warning(tmp_path, caplog):
    tally.add(tmp_path / "gone", "neff", "a", was_compiled=True)
    assert "cannot be recorded" in caplog.text and not (tmp_path / "gone").exists()
