"""Loading of the device into a process: autoload, the first build, cores of other processes, forks."""

from __future__ import annotations

import os
import shutil

import pytest

from optimum_neuron.device import autoload, build, library, placement
from optimum_neuron.errors import LoweringError
from optimum_neuron.files.shared_objects import make_folder, publish
from tests import warm
from tests.raising import raises
from tests.waiting import soon

USE = "import torch; print(torch.ones(2, device='neuron').sum().item())"
STATUS = "import torch; from optimum_neuron.device import status; print(torch.ones(2).sum(), status())"
CORES_OF_TORCH = "import torch; x = torch.ones(2, device='neuron:0')"


def test_device_works_without_importing_optimum_neuron(new_python):
    result = new_python(USE)
    assert (result.stdout, result.stderr) == ("2.0\n", "")


@pytest.mark.full(days=2)
def test_import_torch_never_fails(new_python, tmp_path):
    record = tmp_path / "home" / "device" / library.place().name
    make_folder(record.parent)
    (tmp_path / "foreign").write_bytes(b"of another torch")
    publish(tmp_path / "foreign", record.with_suffix(".so"), {record: ""})
    result = new_python(STATUS, OPTIMUM_NEURON_HOME=str(tmp_path / "home"))
    assert result.returncode == 0 and "tensor(2.)" in result.stdout
    assert "False (registering it failed: LoweringError" in result.stdout and "Remove it" in result.stdout


@pytest.mark.full(days=2)
def test_damaged_shared_object_is_rebuilt_at_first_use(new_python, built, tmp_path):
    folder = tmp_path / "device"
    make_folder(folder)
    for path in (built, built.with_suffix(".json")):
        shutil.copy2(path, folder)
    (folder / built.name).write_bytes(built.read_bytes()[:-100])
    result = new_python(STATUS, OPTIMUM_NEURON_HOME=str(tmp_path))
    assert result.stdout.startswith("tensor(2.) True (the first use builds") and "damaged" in result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.full(days=2)
def test_disabled_device_and_other_device_take_precedence(new_python):
    program = """
import torch
from optimum_neuron.device import autoload, library
print(autoload.status())
try:
    library.load()
except Exception as error:
    print(type(error).__name__, error)
torch.utils.rename_privateuse1_backend("other")
autoload.autoload()
print(autoload.status())
"""
    off, unloaded, *_, other = new_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.splitlines()
    assert unloaded.startswith("LoweringError")
    assert off.startswith("False (torch did not load device extensions") and "'other' has taken it" in other


def test_vendors_device_has_precedence(monkeypatch):
    monkeypatch.setattr(autoload, "_version_of", lambda distribution: "2.9")
    choice = autoload._registered()
    assert not choice.value and "torch-neuronx 2.9 is installed" in choice.reason


@pytest.mark.full(days=4)
def test_missing_compiler_is_reported_at_first_use(new_python, tmp_path):
    program = """
import torch
from optimum_neuron.device import status
torch.manual_seed(0)
print(status().reason, torch.neuron.is_available(), torch.neuron.device_count(), torch.ones(1).item())
print(torch.get_device_module() is torch.neuron)
for use in (lambda: torch.randn(2, device="neuron"), lambda: torch.ones(2).to("neuron"),
            lambda: torch.accelerator.synchronize(), lambda: torch.neuron.current_stream()):
    try:
        use()
    except RuntimeError as error:
        print(error)
"""
    result = new_python(program, OPTIMUM_NEURON_HOME=str(tmp_path), CXX="/nonexistent/c++")
    lines = result.stdout.splitlines()
    assert "the first use builds" in lines[0] and lines[0].endswith("False 12 1.0")
    assert lines[1] == "True", "transformers' continuous batching reads it on the CPU too"
    assert len([line for line in lines if "no C++ compiler" in line and "apt-get install g++" in line]) == 4, result


@pytest.mark.full(days=4)
def test_first_use_builds_once_with_a_message(new_python, built, tmp_path):
    # `built` was made by the real compiler, which would take half a minute once more.
    compiler = tmp_path / "c++"
    compiler.write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && echo "c++ 1.0" && exit
while [ $# -gt 0 ]; do [ "$1" = -o ] && cp {built} "$2"; shift; done
"""
    )
    compiler.chmod(0o755)
    own = {"OPTIMUM_NEURON_HOME": str(tmp_path), "CXX": str(compiler)}
    program = """
import torch
(torch.ones(2, requires_grad=True) * 2).sum().backward()  # autograd counts devices now
torch.manual_seed(5)
x = torch.randn(2, device="neuron", requires_grad=True)
torch.manual_seed(5)
print(torch.equal(x.detach().cpu(), torch.randn(2)))
(x * 3).sum().backward()
print(x.grad.tolist())
"""
    result = new_python(program, **own)
    assert result.stdout == "True\n[3.0, 3.0]\n" and result.stderr.count("building the neuron device") == 1
    result = new_python(USE, **own)
    assert (result.stdout, result.stderr) == ("2.0\n", "")


@pytest.mark.full(days=2)
def test_process_group_before_the_first_use(new_python, tmp_path):
    program = f"""
import torch.distributed as dist
dist.init_process_group("neuron", init_method="file://{tmp_path}/store", rank=0, world_size=1)
print(dist.get_backend())
"""
    result = new_python(program, OPTIMUM_NEURON_HOME=str(tmp_path / "home"), CXX="/nonexistent/c++")
    assert (result.returncode, result.stdout) == (0, "neuron\n"), result.stderr


def test_name_depends_on_torch_and_on_sources(monkeypatch, tmp_path):
    import torch

    name = build.cached_path().name
    assert name == build.cached_path().name
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert build.cached_path().name != name
    monkeypatch.undo()
    shutil.copytree(build.SOURCES, tmp_path / "csrc")
    (tmp_path / "csrc" / "host.h").write_text("// changed")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "csrc")
    assert build.cached_path().name != name


def test_failed_build_shows_compiler_output(monkeypatch, tmp_path):
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "neuron.cpp").write_text("#error told so\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "csrc")
    with raises(LoweringError, exit_code=1) as error:
        build.ensure_built(tmp_path / "home" / "neuron.so")
    assert "told so" in error.value.details["output"]
    assert [path.name for path in (tmp_path / "home").glob("*.so")] == []


def test_core_of_another_process_is_refused_by_name(built, tmp_path):
    up, end = str(tmp_path / "up"), str(tmp_path / "end")
    program = f"""{CORES_OF_TORCH}
import os, time
open({up!r}, "w").close()
while not os.path.exists({end!r}): time.sleep(0.05)
"""
    environment = {**os.environ, "OPTIMUM_NEURON_INSTANCE": "inf2.8xlarge"}
    first = warm.Program("-c", program, env=environment)
    try:
        soon((tmp_path / "up").exists)
        second = warm.run("-c", CORES_OF_TORCH, env=environment)
        assert second.returncode == 1 and str(first.pid) in second.stderr and "torch tensors" in second.stderr
        other = warm.run("-c", CORES_OF_TORCH.replace("neuron:0", "neuron:1"), env=environment)
        assert other.returncode == 0, other.stderr
    finally:
        (tmp_path / "end").touch()
        assert first.communicate() == ("", "")


def test_more_processes_than_cores_are_errors(new_python, monkeypatch):
    program = "import torch\ntry: torch.ones(1, device='neuron')\nexcept RuntimeError as error: print(error)"
    assert "Start at most 12 processes" in new_python(program, LOCAL_RANK="12").stdout
    for rank, visible, device in ((1, "0-3", 1), (2, "1", 0)):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
        monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", visible)
        assert placement.default_device() == device


def test_forked_child_is_refused_and_parent_continues(python):
    program = """
import os, torch
x = torch.ones(3, device="neuron")
child = os.fork()
if child == 0:
    torch.manual_seed(1)
    try:
        torch.ones(3, device="neuron")
    except RuntimeError as error:
        os._exit(7 if "forked process" in str(error) and torch.neuron._is_in_bad_fork() else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).sum().item())
"""
    result = python(program)
    assert result.stdout == "7 6.0\n", result
