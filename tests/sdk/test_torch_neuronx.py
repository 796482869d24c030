"""The vendor's name for traced models: its names, import cost, and errors."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from optimum_neuron import tracing
from optimum_neuron.errors import ModelError
from tests.tree import ROOT

NAMES = [
    "BucketModelConfig", "DataParallel", "PartitionerConfig", "Stream", "__version__", "analyze", "async_load",
    "bucket_model_trace", "contexts", "distributed", "dynamic_batch", "experimental", "lazy_load",
    "move_trace_to_device", "multicore_context", "neuron_cores_context", "nki", "nki_hop", "nki_jit", "nki_op",
    "parallel_compile", "profiling", "proto", "pyhlo", "replace_weights", "set_multicore", "set_neuron_cores",
    "stream", "synchronize", "testing", "trace", "utils", "wrap_nki", "xla_impl",
]  # fmt: skip

SUBMODULES = {
    "contexts": ["disable_nrt_load", "multicore_context", "neuron_cores_context"],
    "experimental": ["multicore_context", "neuron_cores_context", "profiler", "set_multicore", "set_neuron_cores"],
    "experimental.profiler": ["profile"],
    "nki_hop": ["nki_op", "wrap_nki"],
    "parallel_compile": ["neuron_parallel_compile"],
    "profiling": ["NeuronConfig", "NeuronProfiler", "ProfileMode"],
    "testing": ["assert_close", "neuron_allclose", "validation"],
    "testing.validation": ["assert_close", "custom_allclose", "neuron_allclose"],
    "utils": ["get_platform_target"],
    "utils.utils": ["SUPPORTED_TYPES", "get_platform_target"],
    "xla_impl": ["custom_op", "data_parallel", "ops", "structure", "trace"],
    "xla_impl.data_parallel": ["DataParallel"],
    "xla_impl.ops": ["Argmax", "Softmax", "TopK", "nki_jit"],
    "xla_impl.torchscript": ["replace_weights"],
    "xla_impl.trace": ["trace"],
}


@pytest.fixture
def package(sdk: None) -> ModuleType:
    module = importlib.import_module("torch_neuronx")
    assert Path(str(module.__file__)).is_relative_to(ROOT)
    return module


def test_names_are_pinned(package):
    assert sorted(package.__all__) == NAMES
    assert set(NAMES) <= set(dir(package))
    for name in set(NAMES) & set(tracing.__all__):
        assert getattr(package, name) is getattr(tracing, name)


@pytest.mark.parametrize("name", SUBMODULES)
def test_names_of_submodules_are_pinned(package, name):
    module = importlib.import_module(f"torch_neuronx.{name}")
    assert sorted(module.__all__) == SUBMODULES[name]
    for listed in module.__all__:
        assert getattr(module, listed) is not None


def test_submodules_are_there_without_importing_them(package):
    assert package.utils.get_platform_target() == "inf2"
    assert package.experimental.profiler.profile is tracing.profile
    assert package.testing.validation.custom_allclose is not None


def test_parts_of_xla_are_there_or_name_the_alternative(package):
    import torch.distributed
    from torch_neuronx.distributed.fsdp_mics import XlaFullyShardedDataParallelMiCS
    from torch_neuronx.xla_impl import custom_op, ops
    from torch_neuronx.xla_impl.trace import trace

    assert trace is tracing.trace and package.nki_jit is ops.nki_jit
    package.distributed  # noqa: B018  (imported for its side effect)
    assert torch.distributed.Backend.XLA == "xla"
    uses = ((XlaFullyShardedDataParallelMiCS, "fully_shard"), (custom_op.load, "nki_op"), (ops.RmsNorm, "torch"))
    for missing, alternative in uses:
        with pytest.raises(ModelError) as excinfo:
            missing()
        assert alternative in str(excinfo.value)


def test_unknown_name_suggests_the_nearest(package):
    with pytest.raises(AttributeError, match="no attribute 'tracee', did you mean 'trace'"):
        package.tracee  # noqa: B018


def test_device_names_are_attributes_of_torch_and_report_what_is_missing(package, monkeypatch):
    monkeypatch.delattr(torch, "neuron", raising=False)
    with pytest.raises(AttributeError, match="torch_neuronx.synchronize is torch:neuron.synchronize"):
        package.synchronize  # noqa: B018
    fake = ModuleType("neuron")
    fake.synchronize = lambda: "done"
    monkeypatch.setattr(torch, "neuron", fake, raising=False)
    assert package.synchronize() == "done"


@pytest.mark.full(days=2)
def test_saved_model_runs_after_import(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    save = """
import torch, torch_neuronx
torch.jit.save(torch_neuronx.trace(torch.nn.ReLU(), torch.rand(3), compiler_args="-O1"), "m.pt")
"""
    load = "import torch, torch_neuronx; print(torch.jit.load('m.pt')(torch.tensor([-1.0, 0.0, 2.0])).tolist())"
    for program in (save, load):
        command = [sys.executable, "-c", program]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[0.0, 0.0, 2.0]"


def test_operators_of_sampling_are_those_of_torch(package):
    ops = importlib.import_module("torch_neuronx.xla_impl.ops")
    x = torch.tensor([[1.0, 3.0, 2.0]])
    assert ops.Argmax.apply(x, 1, True).tolist() == [[1]]
    assert [part.tolist() for part in ops.TopK.apply(x, 2, dim=1)] == [[[3.0, 2.0]], [[1, 2]]]
    assert torch.equal(ops.Softmax.apply(x, 1), torch.softmax(x, 1))


def test_names_of_hlo_can_be_imported_and_their_use_is_an_error(package):
    """neuronx_distributed names them in annotations, also classes of the vendor's runtime."""
    hlo = importlib.import_module("torch_neuronx.pyhlo.hlo_pb2")
    for name in (hlo.HloModuleProto, torch.classes.neuron.SPMDModel):
        with pytest.raises(ModelError) as error:
            name()
        assert error.value.details["name"] == name.__name__
