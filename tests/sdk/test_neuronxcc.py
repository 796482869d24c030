"""The vendor's name for the compiler: kernels that scripts import from it, against torch."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.errors import KernelError
from optimum_neuron.tracing import DataParallel, trace
from tests.raising import raises

pytestmark = pytest.mark.usefixtures("sdk")


def heads(num_tokens=100, num_keys=100, width=16):
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(3, tokens, width, generator=draw) for tokens in (num_tokens, num_keys, num_keys)]


@pytest.mark.parametrize("package", ["_private_kernels", "kernels"])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("num_tokens", "num_keys", "dtype"), [(100, 77, torch.float32), (256, 600, torch.bfloat16)])
def test_attention_kernel_equals_torch(package, cores, num_tokens, num_keys, dtype):
    from neuronxcc.nki.language import nc
    from torch_neuronx.xla_impl.ops import nki_jit

    call = nki_jit()(importlib.import_module(f"neuronxcc.nki.{package}.attention").attention_isa_kernel)
    query, key, value = (states.to(dtype) for states in heads(num_tokens, num_keys))
    out = torch.zeros_like(query)
    columns = [states.transpose(1, 2).contiguous() for states in (query, key)]
    call[(nc(cores),)](*columns, value, 0.3, out, kernel_name="AttentionMMSoftmaxMMWithoutSwap")
    expected = F.scaled_dot_product_attention(query.float(), key.float(), value.float(), scale=0.3)
    assert (out.float() - expected).norm() < (1e-5 if dtype == torch.float32 else 0.01) * expected.norm()


@pytest.mark.parametrize("window", [None, 20])
def test_causal_attention_kernel_with_a_window_writes_columns(window):
    from neuronxcc.nki._private_kernels.attention import attention_isa_kernel

    query, key, value = heads()
    out = torch.zeros(3, 16, 100)
    columns = [states.transpose(1, 2).contiguous() for states in (query, key)]
    name = "CausalAttentionMMSoftmaxMMWithoutSwap"
    attention_isa_kernel(*columns, value, 0.25, out, kernel_name=name, sliding_window=window)
    distance = torch.arange(100)[:, None] - torch.arange(100)
    seen = (distance >= 0) & (distance < (window or 100))
    torch.testing.assert_close(out.transpose(1, 2), F.scaled_dot_product_attention(query, key, value, attn_mask=seen))


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"kernel_name": "AttentionMMSoftmaxMM"}, "operand"),
        ({"sliding_window": 8}, "operand"),
        ({"out": torch.zeros(3, 16, 99)}, "shape"),
    ],
)
def test_attention_kernel_with_what_it_does_not_take(options, rule):
    from neuronxcc.nki._private_kernels.attention import attention_isa_kernel

    query, key, value = heads()
    out = options.pop("out", torch.zeros_like(query))
    with raises(KernelError, rule=rule):
        attention_isa_kernel(query.transpose(1, 2), key.transpose(1, 2), value, 1.0, out, **options)


def test_cumulative_sums():
    from neuronxcc.nki._private_kernels.cumsum import cumsum

    x = torch.randn(300, 50, generator=torch.Generator().manual_seed(0))
    out = torch.zeros_like(x)
    cumsum(x, out, axis=1)
    torch.testing.assert_close(out, x.cumsum(1), rtol=1e-5, atol=1e-5)
    with raises(KernelError, rule="axis"):
        cumsum(x, out, axis=0)


def test_grid_of_cores_has_both_of_its_names():
    from neuronxcc.nki.language import nc
    from neuronxcc.starfish.penguin.targets.nki.private_api import vnc

    assert nc(2) == vnc(2) != nc(1)


def test_kernels_of_user_run():
    from neuronxcc.nki import language as nl
    from torch_neuronx.xla_impl.ops import nki_jit

    def add_one(x, out):
        nl.store(out, nl.load(x) + 1)

    for kernel in (nki_jit(add_one), nki_jit()(add_one)):
        x, out = torch.rand(128, 2), torch.zeros(128, 2)
        kernel(x, out)
        assert torch.equal(out, x + 1)


def test_script_with_attention_kernel_is_traced(monkeypatch):
    """As scripts for diffusion models use it: in place of torch's attention, with their own reshapes."""
    from neuronxcc.nki._private_kernels.attention import attention_isa_kernel
    from torch_neuronx.xla_impl.data_parallel import DataParallel as Parallel
    from torch_neuronx.xla_impl.ops import nki_jit

    assert Parallel is DataParallel
    flash = nki_jit()(attention_isa_kernel)

    def attention(query, key, value):
        batch, num_heads, length, width = query.shape
        rows = [states.reshape(batch * num_heads, -1, width) for states in (query, key, value)]
        columns = [states.permute(0, 2, 1) for states in rows[:2]]
        out = torch.zeros((batch * num_heads, length, width), dtype=query.dtype)
        flash(*columns, rows[2], width**-0.5, out, kernel_name="AttentionMMSoftmaxMMWithoutSwap")
        return out.reshape(query.shape)

    class Block(torch.nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x) + 1

    x = torch.rand(1, 2, 64, 16)
    expected = Block()(x)
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    traced = trace(Block(), x, compiler_args="-O1")
    torch.testing.assert_close(traced(x), expected, rtol=1e-4, atol=1e-4)
