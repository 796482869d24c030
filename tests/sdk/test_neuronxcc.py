"""The vendor's name for the compiler: kernels that scripts import from it, against torch."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.errors import KernelError, ModelError
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


def block(dtype, length=150, hidden=256, width=320):
    """Return states, factors of a norm, and weights of an MLP."""
    draw = torch.Generator().manual_seed(0)
    shapes = {"x": (2, length, hidden), "residual": (2, length, hidden), "gamma": (1, hidden)}
    shapes |= {"gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
    scales = {"gate": hidden**-0.5, "up": hidden**-0.5, "down": width**-0.5}
    return {name: (torch.randn(s, generator=draw) * scales.get(name, 1)).to(dtype) for name, s in shapes.items()}


def normed(x, gamma):
    return F.rms_norm(x.float(), (x.shape[-1],), gamma[0].float(), 1e-6)


def close(actual, expected):
    bound = {torch.float32: 1e-5, torch.bfloat16: 0.01}[actual.dtype]
    assert (actual.float() - expected).norm() < bound * expected.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mlp_kernels_equal_torch(dtype):
    from neuronxcc.nki._pre_prod_kernels import ActFnType
    from neuronxcc.nki._private_kernels.mlp import mlp_fused_add_isa_kernel, mlp_isa_kernel
    from neuronxcc.nki.language import nc
    from torch_neuronx.xla_impl.ops import nki_jit

    x, residual, gamma, *weights = block(dtype).values()
    gate, up, down = (weight.float() for weight in weights)
    out = torch.zeros_like(x)
    nki_jit()(mlp_isa_kernel)[(nc(2),)](x, gamma, *weights, out, kernel_name="MLP", fused_rmsnorm=True, eps=1e-6)
    rows = normed(x, gamma)
    close(out, (F.silu(rows @ gate) * (rows @ up)) @ down)
    out, total = torch.zeros(2, 300, 256, dtype=dtype), x.float() + residual.float()
    options = {"fused_rmsnorm": False, "act_fn": ActFnType.GELU, "store_add": True}
    nki_jit()(mlp_fused_add_isa_kernel)[(nc(1),)](x, residual, gamma, *weights, out, kernel_name="MLP", **options)
    close(out[:, :150], (F.gelu(total @ gate) * (total @ up)) @ down)
    close(out[:, 150:], total)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_projection_kernels_equal_torch(dtype):
    from neuronxcc.nki._private_kernels.qkv import rmsnorm_qkv_isa_fused_add_kernel, rmsnorm_qkv_isa_kernel

    x, residual, gamma, weight, *_ = block(dtype).values()
    bias, out = weight[:1].contiguous(), torch.zeros(2, 150, 320, dtype=dtype)
    rmsnorm_qkv_isa_kernel(x, weight, gamma, out, kernel_name="QKV", eps=1e-6, fused_rmsnorm=True, bias=bias)
    close(out, normed(x, gamma) @ weight.float() + bias.float())
    heads, total = torch.zeros(5, 2, 150, 64, dtype=dtype), x.float() + residual.float()
    rmsnorm_qkv_isa_fused_add_kernel(x, residual, torch.zeros_like(x), weight, gamma, heads, fused_rmsnorm=False)
    close(x, total)
    close(heads.permute(1, 2, 0, 3).reshape(2, 150, 320), total @ weight.float())


@pytest.mark.parametrize("options", [{"kernel_name": "Other"}, {"act_fn": "relu"}, {"norm_type": "LAYER_NORM"}])
def test_mlp_kernel_with_an_option_that_it_does_not_take(options):
    from neuronxcc.nki._private_kernels.mlp import mlp_isa_kernel

    x, _, gamma, *weights = block(torch.float32, 4, 128, 128).values()
    with raises(KernelError, rule="operand"):
        mlp_isa_kernel(x, gamma, *weights, torch.zeros_like(x), **options)
    with raises(KernelError, rule="shape"):
        mlp_isa_kernel(x, gamma, *weights, torch.zeros(2, 4, 64))


def test_mlp_kernel_is_traced():
    from neuronxcc.nki._private_kernels.mlp import mlp_isa_kernel
    from torch_neuronx.xla_impl.ops import nki_jit

    x, _, gamma, *weights = block(torch.float32, 8, 128, 128).values()

    class Layer(torch.nn.Module):
        def forward(self, x):
            out = torch.zeros_like(x)
            nki_jit()(mlp_isa_kernel)(x, gamma, *weights, out, kernel_name="MLP")
            return x + out

    torch.testing.assert_close(trace(Layer(), x, compiler_args="-O1")(x), Layer()(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "window", "stride", "pads"),
    [((2, 130, 9, 20), (3, 3), (1, 1), (1, 1, 1, 1)), ((1, 3, 61, 41), (3, 2), (2, 2), (2, 1, 1, 1))],
)
def test_convolution_kernel_equals_torch(dtype, shape, window, stride, pads):
    from neuronxcc.nki._private_kernels.conv import conv2d_dw_fb01_io01_01bf_rep_nhwc_Pcinh as convolution

    draw = torch.Generator().manual_seed(0)
    images, weights = (torch.randn(s, generator=draw).to(dtype) for s in (shape, (7, shape[1], *window)))
    expected = F.conv2d(F.pad(images.float(), pads), weights.float(), stride=stride)
    out = torch.zeros(expected.shape, dtype=dtype)
    options = {"stride": stride, "padding": (pads[2:], pads[:2]), "in_perm": [0, 1, 2, 3], "output": out.shape}
    convolution(images, weights, out, **options)
    close(out, expected)
    with raises(KernelError, rule="operand"):
        convolution(images, weights, out, **options | {"in_perm": [0, 2, 3, 1]})
    with raises(KernelError, rule="shape"):
        convolution(images, weights, out[:, :, 1:].contiguous(), stride=stride, padding=options["padding"])


@pytest.mark.parametrize("name", ["mlp.quant_mlp_isa_kernel", "rmsnorm.rmsnorm_quant_isa_kernel"])
def test_other_private_kernels_are_one_error(name):
    module, _, function = name.partition(".")
    with raises(ModelError, name=function):
        getattr(importlib.import_module(f"neuronxcc.nki._private_kernels.{module}"), function)(1)


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
