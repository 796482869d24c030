"""Tensors, modules and training on the device, against the CPU."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from optimum_neuron.device import status
from tests.waiting import in_threads


def test_torch_has_device_without_importing_optimum_neuron():
    assert status().value
    assert torch.neuron.is_available() and torch.accelerator.current_accelerator().type == "neuron"


def test_factories_transfers_and_autograd():
    x = torch.randn(128, device="neuron", requires_grad=True)
    (x * x).sum().backward()
    assert x.is_neuron and x.grad.device == torch.device("neuron:0")
    assert torch.equal(x.grad.cpu(), 2 * x.detach().cpu())
    y = torch.randn(3, 4).t().to("neuron", torch.bfloat16, non_blocking=True)
    assert y.dtype is torch.bfloat16 and y.stride() == (1, 4)
    assert torch.ones(2).neuron(1).device.index == 1
    with torch.device("neuron"):
        assert torch.ones(2).is_neuron


def test_views_share_memory_and_outputs_are_resized():
    base = torch.zeros(4, 5, device="neuron")
    base.t()[2] += 1
    base.view(-1)[0] = 7
    assert base.sum().item() == 11
    out = torch.empty(0, device="neuron")
    torch.add(torch.ones(5, device="neuron"), 1, out=out)
    assert out.tolist() == [2.0] * 5
    x = torch.arange(6, device="neuron").resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]
    x.t_()
    assert x.tolist() == [[0, 2], [1, 3]]
    x.untyped_storage().resize_(256)
    assert x[0, 1].item() == 2


def test_modules_keep_parameters_when_moved():
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
    parameters = list(module.parameters())
    module.to("neuron")
    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert all(p.is_neuron for p in parameters)
    other = copy.deepcopy(module)
    other.load_state_dict(module.state_dict())
    module(torch.randn(3, 4, device="neuron")).sum().backward()
    assert parameters[0].grad.is_neuron and module.cpu()[0].weight.is_cpu


def test_recurrent_network_matches_cpu():
    for kind in (nn.LSTM, nn.GRU):
        torch.manual_seed(0)
        device_model = copy.deepcopy(cpu_model := kind(4, 5, 2, bidirectional=True)).to("neuron")
        x = torch.randn(3, 2, 4)
        for module, inputs in ((cpu_model, x), (device_model, x.to("neuron"))):
            module(inputs)[0].pow(2).sum().backward()
        torch.testing.assert_close(device_model(x.to("neuron"))[0].cpu(), cpu_model(x)[0])
        for a, b in zip(device_model.parameters(), cpu_model.parameters(), strict=True):
            torch.testing.assert_close(a.grad.cpu(), b.grad)


def test_attention_uses_cpu_kernel():
    torch.manual_seed(0)
    expected = [torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3)]
    actual = [t.detach().to("neuron").requires_grad_() for t in expected]
    results = [F.scaled_dot_product_attention(*inputs, is_causal=True) for inputs in (actual, expected)]
    for result in results:
        result.sum().backward()
    assert torch.equal(results[0].cpu(), results[1])
    assert all(torch.equal(a.grad.cpu(), b.grad) for a, b in zip(actual, expected, strict=True))
    assert results[0].grad_fn.name() == results[1].grad_fn.name()
    mask = torch.ones(16, 16, dtype=torch.bool, device="neuron").tril()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        by_hand = F.scaled_dot_product_attention(*actual, attn_mask=mask)
    torch.testing.assert_close(by_hand, results[0])
    F.scaled_dot_product_attention(actual[0], actual[1][:, :2], actual[2][:, :2], enable_gqa=True)


def test_checkpointing_restores_random_states():
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).to("neuron")
    x = torch.randn(4, 8, device="neuron", requires_grad=True)
    torch.manual_seed(0)
    kept = torch.autograd.grad(layer(x).sum(), x)[0]
    torch.manual_seed(0)
    second = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).sum(), x)[0]
    assert torch.equal(kept, second)


def test_saving_and_loading(tmp_path):
    saved = {"w": torch.randn(4, device="neuron")}
    saved["v"] = saved["w"][1:]
    torch.save(saved, tmp_path / "a.pt")
    loaded = torch.load(tmp_path / "a.pt")
    assert loaded["w"].is_neuron and torch.equal(loaded["w"], saved["w"])
    assert loaded["v"].untyped_storage().data_ptr() == loaded["w"].untyped_storage().data_ptr()
    assert torch.load(tmp_path / "a.pt", map_location="cpu")["w"].is_cpu
    buffer = io.BytesIO()
    torch.save(torch.ones(3), buffer)
    buffer.seek(0)
    assert torch.load(buffer, map_location="neuron:1").device.index == 1
    assert torch.load(tmp_path / "a.pt", mmap=True, map_location="neuron")["w"].is_neuron


def test_safetensors_go_straight_to_device(tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    save_file({"a": torch.arange(3.0, device="neuron")}, tmp_path / "a.safetensors")
    for device in ("neuron", "neuron:1", torch.device("neuron:1")):
        tensors = load_file(tmp_path / "a.safetensors", device=device)["a"]
        assert tensors.device.type == "neuron" and tensors.tolist() == [0, 1, 2]
    with safe_open(tmp_path / "a.safetensors", "pt", device="neuron:1") as file:
        assert file.get_tensor("a").device.index == 1
    assert load_file(tmp_path / "a.safetensors")["a"].is_cpu


def test_pinned_memory():
    x = torch.ones(3).pin_memory()
    assert x.is_pinned() and x[1:].is_pinned() and not torch.ones(3).is_pinned()
    assert x.to("neuron", non_blocking=True).tolist() == [1, 1, 1]


def test_another_thread_and_another_core():
    results = []

    def work():
        torch.neuron.set_device(1)
        x = torch.ones(3, device="neuron", requires_grad=True)
        (x.to("neuron:0") * 2).sum().backward()
        results.append((x.device.index, x.grad.device.index, x.grad.tolist()))

    in_threads(work)
    assert results == [(1, 1, [2.0, 2.0, 2.0])] and torch.neuron.current_device() == 0


def test_custom_operators_with_cpu_kernel_only():
    library = torch.library.Library("neuron_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    assert torch.ops.neuron_test.twice(torch.ones(2, device="neuron")).device.type == "neuron"


def test_grouped_matmul():
    torch.manual_seed(0)
    a, b = torch.randn(8, 16, dtype=torch.bfloat16), torch.randn(2, 16, 8, dtype=torch.bfloat16)
    offsets = torch.tensor([3, 8], dtype=torch.int32)
    actual = torch._grouped_mm(a.to("neuron"), b.to("neuron"), offs=offsets.to("neuron"))
    assert torch.equal(actual.cpu(), torch._grouped_mm(a, b, offs=offsets))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float32])
def test_histograms_of_integers(dtype):
    # The CPU's kernel counts floats only.
    values = torch.tensor([0, 3, 3, 1, 7, 3, 0], dtype=dtype)
    for bounds in ({"bins": 8, "min": 0, "max": 7}, {"bins": 4, "min": 1, "max": 4}, {"bins": 2}):
        actual = torch.histc(values.to("neuron"), **bounds)
        assert actual.dtype == dtype and actual.device.type == "neuron"
        assert actual.tolist() == torch.histc(values.float(), **bounds).tolist()


def test_profilers_record_operators():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        torch.randn(8, 8, device="neuron") @ torch.randn(8, 8, device="neuron")
    assert "aten::mm" in {event.key for event in profiled.key_averages()}
    with torch.autograd.profiler.profile(use_device="neuron", use_kineto=False) as timed:
        torch.randn(64, 64, device="neuron") @ torch.randn(64, 64, device="neuron")
    assert next(e.device_time_total for e in timed.key_averages() if e.key == "aten::mm") > 0


def rotated(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary embeddings as models of Llama write them, and the gradient of the query."""
    torch.manual_seed(0)
    query = torch.randn(1, 4, 2, 8).to(device).requires_grad_()
    rates = 1 / 10000 ** (torch.arange(0, 8, 2, device=device).float() / 8)
    angles = torch.outer(torch.arange(4.0, device=device), rates)
    rotations = torch.polar(torch.ones_like(angles), angles).view(1, 4, 1, 4)
    pairs = torch.view_as_complex(query.unflatten(-1, (-1, 2)))
    result = torch.view_as_real(pairs * rotations).flatten(3)
    (result * torch.arange(8.0, device=device)).sum().backward()
    return result.detach().cpu(), query.grad.cpu()


def test_complex64_is_pairs_of_float32():
    for actual, expected in zip(rotated("neuron"), rotated("cpu"), strict=True):
        assert torch.equal(actual, expected)
    x = torch.tensor([3 + 4j, 1j], device="neuron")
    assert (x.dtype, x.device.type) == (torch.complex64, "neuron")
    assert (
        x.abs().tolist() == [5, 1]
        and x.conj().imag.tolist() == [-4, -1]
        and x.cpu().to("neuron").tolist() == [3 + 4j, 1j]
    )


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex128])
def test_other_complex_tensors_are_refused_with_published_code(dtype):
    for make in (
        lambda: torch.zeros(2, dtype=dtype, device="neuron"),
        lambda: torch.zeros(2, dtype=dtype).to("neuron"),
    ):
        with pytest.raises(TypeError, match="NCC_EVRF004"):
            make()
    with pytest.raises(TypeError, match="NCC_EVRF005"):
        torch.zeros(2, device="neuron").to(torch.float8_e4m3fnuz)


def test_operators_with_complex_results_run_on_host():
    x = torch.randn(8)
    assert torch.equal(torch.fft.rfft(x.to("neuron")).cpu(), torch.fft.rfft(x))


def test_errors_have_torchs_messages():
    x, host = torch.ones(3, device="neuron"), torch.ones(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*neuron:0 and cpu"):
        x + host
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*neuron:0 and neuron:1"):
        x + host.to("neuron:1")
    assert (x + torch.tensor(1.0)).sum().item() == 6
    assert x[torch.tensor([0, 1])].tolist() == [1, 1]

    # An error names its operator.
    with pytest.raises(RuntimeError, match="must be a matrix(.|\n)*while running aten::mm on neuron"):
        torch.mm(torch.ones(3, device="neuron"), torch.ones(3, device="neuron"))
    with pytest.raises(IndexError, match="out of bounds"):
        torch.ones(3, device="neuron")[5]
    with pytest.raises(NotImplementedError, match="Sparse|sparse"):
        torch.eye(3, device="neuron").to_sparse()


def test_scaled_grouped_matmul():
    torch.manual_seed(0)
    fp8, ends = torch.float8_e4m3fn, torch.tensor([16, 48], dtype=torch.int32)
    left, right = torch.randn(48, 32).to(fp8), torch.randn(2, 16, 32).to(fp8).transpose(1, 2)
    scale_left, scale_right = torch.rand(48) + 0.5, torch.rand(2, 16) + 0.5
    exact_left = left.float() * scale_left[:, None]
    exact_right = right.float() * scale_right[:, None]
    expected = torch.cat([exact_left[:16] @ exact_right[0], exact_left[16:] @ exact_right[1]])
    require_product(expected, left, right, scale_left, scale_right, ends)
    # Both are split along the contracted dimension, as gradients of weights are.
    left, right = torch.randn(16, 48).to(fp8), torch.randn(16, 48).to(fp8).t()
    scales = torch.rand(2 * 16) + 0.5
    parts = [(left[:, s].float() @ right[s].float()) for s in (slice(0, 16), slice(16, 48))]
    expected = torch.stack([p * s[:, None] * s for p, s in zip(parts, scales.view(2, 16), strict=True)])
    require_product(expected, left, right, scales, scales, ends)
    with pytest.raises(RuntimeError, match="needs offs"):
        require_product(expected, left, right, scales, scales)


def require_product(expected, *operands):
    actual = torch._scaled_grouped_mm(*(t.to("neuron") for t in operands), out_dtype=torch.bfloat16)
    torch.testing.assert_close(actual.cpu().float(), expected, rtol=1e-2, atol=1e-2)
