"""The vendor's name for traced models: what is there, what it costs to import, what it refuses."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from optimum_neuron import tracing

ROOT = Path(__file__).parents[2]

NAMES = [
    "BucketModelConfig",
    "DataParallel",
    "PartitionerConfig",
    "Stream",
    "analyze",
    "async_load",
    "bucket_model_trace",
    "contexts",
    "dynamic_batch",
    "experimental",
    "lazy_load",
    "move_trace_to_device",
    "multicore_context",
    "neuron_cores_context",
    "profiling",
    "replace_weights",
    "set_multicore",
    "set_neuron_cores",
    "stream",
    "synchronize",
    "testing",
    "trace",
    "utils",
    "xla_impl",
]

SUBMODULES = {
    "contexts": ["disable_nrt_load", "multicore_context", "neuron_cores_context"],
    "experimental": ["multicore_context", "neuron_cores_context", "profiler", "set_multicore", "set_neuron_cores"],
    "experimental.profiler": ["profile"],
    "profiling": ["NeuronConfig", "NeuronProfiler", "ProfileMode"],
    "testing": ["assert_close", "neuron_allclose", "validation"],
    "testing.validation": ["assert_close", "custom_allclose", "neuron_allclose"],
    "utils": ["get_platform_target"],
    "xla_impl": ["data_parallel", "ops"],
    "xla_impl.data_parallel": ["DataParallel"],
    "xla_impl.ops": ["nki_jit"],
}


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package from the source tree, whether or not the distribution is installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_neuronx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(ROOT / "sdk")
    module = importlib.import_module("torch_neuronx")
    assert Path(str(module.__file__)).is_relative_to(ROOT)
    return module


def test_the_names_are_pinned(sdk):
    assert sorted(sdk.__all__) == NAMES
    assert set(NAMES) <= set(dir(sdk))
    for name in set(NAMES) & set(tracing.__all__):
        assert getattr(sdk, name) is getattr(tracing, name)


@pytest.mark.parametrize("name", SUBMODULES)
def test_names_of_submodules_are_pinned(sdk, name):
    module = importlib.import_module(f"torch_neuronx.{name}")
    assert sorted(module.__all__) == SUBMODULES[name]
    for listed in module.__all__:
        assert getattr(module, listed) is not None


def test_submodules_are_there_without_importing_them(sdk):
    assert sdk.utils.get_platform_target() == "inf2"
    assert sdk.experimental.profiler.profile is tracing.profile
    assert sdk.testing.validation.custom_allclose is not None


def test_an_unknown_name_tells_the_nearest(sdk):
    with pytest.raises(AttributeError, match="no attribute 'tracee', did you mean 'trace'"):
        sdk.tracee  # noqa: B018


def test_names_of_the_device_say_what_is_missing(sdk, monkeypatch):
    import torch

    monkeypatch.delattr(torch, "neuron", raising=False)
    with pytest.raises(AttributeError, match="torch_neuronx.synchronize: torch has no device 'neuron'"):
        sdk.synchronize  # noqa: B018
    fake = ModuleType("neuron")
    fake.synchronize = lambda: "done"
    monkeypatch.setattr(torch, "neuron", fake, raising=False)
    assert sdk.synchronize() == "done"


def test_importing_it_brings_torch_and_nothing_slower():
    heavy = {"torch._inductor", "torch._dynamo", "transformers"}
    program = f"import sys, torch_neuronx; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT / "sdk",
    )
    assert done.stdout.strip() == "[]"


def test_it_refuses_beside_the_vendor_s_distribution(tmp_path, monkeypatch):
    metadata = tmp_path / "torch_neuronx-2.9.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: torch-neuronx\nVersion: 2.9.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = ROOT / "sdk" / "torch_neuronx" / "__init__.py"
    spec = importlib.util.spec_from_file_location("torch_neuronx", path)
    assert spec is not None and spec.loader is not None
    with pytest.raises(ImportError, match=r"torch-neuronx 2\.9\.0 are both installed.*pip uninstall"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_saved_model_runs_after_importing_it(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    save = """
import torch, torch_neuronx
torch.jit.save(torch_neuronx.trace(torch.nn.ReLU(), torch.rand(3), compiler_args="-O1"), "m.pt")
"""
    load = "import torch, torch_neuronx; print(torch.jit.load('m.pt')(torch.tensor([-1.0, 0.0, 2.0])).tolist())"
    for program in (save, load):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0.0, 0.0, 2.0]"
