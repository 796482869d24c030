"""NKI kernels on the device: in place on its memory, in its timeline, and inside graphs of torch.compile."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.device import kernels
from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl
from optimum_neuron.nki.kernels import attention
from optimum_neuron.profiling import record
from tests.device.conftest import OPTLEVELS
from tests.nki.elementwise import scale_kernel


@jit
def add_to_kernel(x, y):
    tile = nl.load(x)
    nisa.tensor_tensor(tile, tile, nl.load(y), nl.add)
    nl.store(x, tile)
    return {"sum": x, "target": str(nisa.get_nc_version())}


def test_kernel_runs_on_device_tensors():
    host = torch.randn(128, 8)
    x = host.to("neuron")
    with record("kernels") as recorder:
        result = scale_kernel(x[:, ::2], 2.0)
        changed = add_to_kernel(x, x)
    assert result.device == x.device and torch.equal(result.cpu(), 2 * host[:, ::2])
    assert changed["sum"] is x and torch.equal(x.cpu(), 2 * host)
    profile = recorder.profile()
    own = {graph.graph: graph for graph in profile.graphs if graph.model == kernels.MODEL}
    assert list(own) == ["scale_kernel float32[128,4]", "add_to_kernel float32[128,8] float32[128,8]"]
    assert all(graph.device_us > graph.launch_us > 0 for graph in own.values())
    assert {kernel.name for kernel in profile.kernels} == {"scale_kernel", "add_to_kernel"}


def test_kernel_sees_the_target_of_its_core(monkeypatch):
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    x = torch.ones(128, 8, device="neuron")
    assert add_to_kernel(x, x)["target"] == add_to_kernel(x, x)["target"] != "nc_version.gen4"


def test_tensors_on_several_devices_are_refused():
    with pytest.raises(KernelError) as excinfo:
        add_to_kernel(torch.ones(128, 8, device="neuron"), torch.ones(128, 8))
    assert excinfo.value.details["rule"] == "device"


@pytest.mark.full(days=4)
@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_kernels_in_compiled_graphs(fresh_dynamo, optlevel):
    layer = torch.nn.Linear(16, 16).to("neuron")

    def function(x):
        heads = layer(x).unflatten(-1, (2, 8)).transpose(1, 2)
        return scale_kernel(attention(heads, heads, heads).flatten(0, 2)[:128], 2.0)

    x = torch.randn(1, 128, 16, generator=torch.Generator().manual_seed(0)).to("neuron")
    expected = function(x)
    (gradient,) = torch.autograd.grad(attention(*3 * [layer(x)[None]]).sum(), [layer.weight])
    compiled = torch.compile(function, backend="neuron", options={"optlevel": optlevel}, fullgraph=True)
    with record("compiled") as recorder, torch.no_grad():
        result = compiled(x)
    torch.testing.assert_close(result.cpu(), expected.detach().cpu())
    assert [kernel.name for kernel in recorder.profile().kernels] == ["flash_attention", "scale_kernel"]
    step = torch.compile(lambda x: attention(*3 * [layer(x)[None]]).sum(), backend="neuron", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(step(x), [layer.weight])[0].cpu(), gradient.cpu())
