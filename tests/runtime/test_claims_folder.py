"""Claims folder for an unwritable home: a private folder, one warning, and its visibility to processes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, claims_folder, held_cores
from optimum_neuron.tools import neuron_processes
from tests import warm
from tests.unwritable import forbid_writing
from tests.waiting import soon

module = sys.modules[claims_folder.__module__]
SMALL, MEDIUM = INSTANCES["inf2.xlarge"], INSTANCES["inf2.24xlarge"]


@pytest.fixture
def temp(monkeypatch, tmp_path):
    """The temporary folder of this test, and no decisions of other tests."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(module, "_PRIVATE", {})
    return folder


@pytest.fixture
def read_only(monkeypatch, tmp_path):
    """A home that cannot be written."""
    home = tmp_path / "home"
    home.mkdir()
    forbid_writing(monkeypatch, home)
    return {"OPTIMUM_NEURON_HOME": str(home)}


def test_writable_home_has_claims_and_is_not_created_for_readers(temp, environ, tmp_path):
    assert claims_folder(SMALL, environ) == tmp_path / "cores" / "inf2.xlarge"
    assert not (tmp_path / "cores").exists() and list(temp.iterdir()) == []


def test_claims_go_to_private_folder_with_one_warning(temp, read_only, caplog):
    with (
        claim_cores(SMALL, model="bert", environ=read_only) as claim,
        claim_cores(MEDIUM, model="llama", environ=read_only),
    ):
        (private,) = temp.iterdir()
        assert private.name == f"optimum-neuron-{os.geteuid()}" and stat.S_IMODE(private.stat().st_mode) == 0o700
        assert claims_folder(SMALL, read_only).is_relative_to(private)
        assert [row["model"] for row in held_cores(SMALL, environ=read_only)] == ["bert"]
        assert claim.core_ids == (0,) and claim.hbm.core_id == 0
        home = Path(read_only["OPTIMUM_NEURON_HOME"])
        assert list(home.iterdir()) == [], "nothing is written there"
        (record,) = [record for record in caplog.records if record.name == module.__name__]
        assert record.levelname == "WARNING" and record.args[0] == home / "cores"
        # Its status is there too, for neuron-top and neuron-monitor.
        assert soon(lambda: neuron_processes(SMALL, environ=read_only)[0].status is not None)
    assert held_cores(SMALL, environ=read_only) == []


def test_folder_is_stable_when_home_becomes_writable(temp, read_only, monkeypatch):
    before = claims_folder(SMALL, read_only)
    monkeypatch.setattr(os, "access", lambda *arguments: True)
    assert claims_folder(SMALL, read_only) == before


def test_homes_do_not_share_claims(temp, read_only):
    other = Path(read_only["OPTIMUM_NEURON_HOME"]) / "other"
    other.mkdir()
    assert claims_folder(SMALL, read_only) != claims_folder(SMALL, {"OPTIMUM_NEURON_HOME": str(other)})


def test_locks_of_another_user_count_as_unwritable(temp, environ, tmp_path, monkeypatch):
    claim_cores(SMALL, model="bert", environ=environ).release()
    assert claims_folder(SMALL, environ).is_relative_to(tmp_path / "cores")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).suffix != ".lock" and real(path, mode))
    assert claims_folder(SMALL, environ).is_relative_to(temp)


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_shared_private_folder_is_an_error(temp, read_only, kind, tmp_path):
    place = temp / f"optimum-neuron-{os.geteuid()}"
    if kind == "open":
        place.mkdir()
        place.chmod(0o777)
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.touch()
    with pytest.raises(ConfigError) as excinfo:
        claim_cores(SMALL, model="bert", environ=read_only)
    assert excinfo.value.details["folder"] == str(Path(read_only["OPTIMUM_NEURON_HOME"]) / "cores" / SMALL.name)
    assert "error" in excinfo.value.details or excinfo.value.details["private_folder"] == str(place)


def test_missing_temporary_folder_is_an_error(read_only, temp):
    temp.rmdir()
    with pytest.raises(ConfigError) as excinfo:
        claim_cores(SMALL, model="bert", environ=read_only)
    assert set(excinfo.value.details) == {"folder", "error"}


def test_claim_can_be_released_after_home_became_read_only(environ, monkeypatch):
    claim = claim_cores(SMALL, model="bert", environ=environ)

    def unlink(self, missing_ok=False):
        raise OSError(30, "Read-only file system", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        claim.release()
    assert not claim.held and held_cores(SMALL, environ=environ) == []


READ_ONLY = """
import ctypes, os, subprocess
assert ctypes.CDLL(None).unshare(0x20000) == 0  # a namespace of mounts
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", os.environ["OPTIMUM_NEURON_HOME"]], check=True)
"""
SCRIPT = """
import json, sys
from tests import warm
from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.runtime.cores import held_cores
from optimum_neuron.errors import CoreBusyError

load = lambda: NeuronModelForCausalLM.from_pretrained(sys.argv[1], optlevel="1")
model = load()
report = {"cores": list(model.loaded.claim.core_ids), "tokens": model.generate(max_new_tokens=3).shape[1]}
if len(sys.argv) > 2:
    child = warm.run(sys.argv[2], sys.argv[1])
    report["other"], report["warning"] = json.loads(child.stdout.splitlines()[-1]), child.stderr
print(json.dumps(report))
"""


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="mounts a file system in a namespace of its own",
)
def test_exported_folder_runs_with_home_on_read_only_file_system(export_folder, tmp_path):
    home, temp, script = tmp_path / "home", tmp_path / "temp", tmp_path / "script.py"
    home.mkdir()
    temp.mkdir()
    script.write_text(READ_ONLY + SCRIPT)
    clean = {**os.environ, "OPTIMUM_NEURON_HOME": str(home), "TMPDIR": str(temp)}
    result = warm.run(str(script), str(export_folder), str(script), env=clean)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert (report["cores"], report["other"]["cores"]) == ([0], [1]), "they see each other's claims"
    assert report["tokens"] == report["other"]["tokens"] == 4
    assert result.stderr.count("Cannot write") == report["warning"].count("Cannot write") == 1
