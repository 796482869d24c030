"""The vendor's name for the compiler: its own kernels can be imported, and a call names the alternative."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.errors import UnsupportedOperatorError
from optimum_neuron.tracing import DataParallel, trace

pytestmark = pytest.mark.usefixtures("sdk")


@pytest.mark.parametrize("package", ["_private_kernels", "kernels"])
def test_attention_kernel_error_names_alternative(package):
    from torch_neuronx.xla_impl.ops import nki_jit

    kernel = importlib.import_module(f"neuronxcc.nki.{package}.attention").attention_isa_kernel
    call, x = nki_jit()(kernel), torch.rand(1, 8, 4)
    for use in (call, call[(2,)]):
        with pytest.raises(UnsupportedOperatorError) as excinfo:
            use(x, x, x, 1.0, x, kernel_name="AttentionMMSoftmaxMMWithoutSwap")
        replacement = "torch.nn.functional.scaled_dot_product_attention"
        assert excinfo.value.details == {"kernel": "attention_isa_kernel", "replacement": replacement}


def test_grid_of_cores_has_both_of_its_names():
    from neuronxcc.nki._private_kernels.attention import attention_isa_kernel
    from neuronxcc.nki.language import nc
    from neuronxcc.starfish.penguin.targets.nki.private_api import vnc

    assert nc(2) == vnc(2) != nc(1)
    with pytest.raises(UnsupportedOperatorError) as excinfo:
        attention_isa_kernel[(nc(2),)](torch.rand(1, 8, 4))
    assert excinfo.value.details["kernel"] == "attention_isa_kernel"


def test_kernels_of_user_run():
    from neuronxcc.nki import language as nl
    from torch_neuronx.xla_impl.ops import nki_jit

    def add_one(x, out):
        nl.store(out, nl.load(x) + 1)

    for kernel in (nki_jit(add_one), nki_jit()(add_one)):
        x, out = torch.rand(128, 2), torch.zeros(128, 2)
        kernel(x, out)
        assert torch.equal(out, x + 1)


def test_script_with_attention_fallback_is_traced(monkeypatch):
    from neuronxcc.nki._private_kernels.attention import attention_isa_kernel
    from torch_neuronx.xla_impl.data_parallel import DataParallel as Parallel
    from torch_neuronx.xla_impl.ops import nki_jit

    assert Parallel is DataParallel
    flash, plain, fallen_back = nki_jit()(attention_isa_kernel), F.scaled_dot_product_attention, []

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
        try:
            flash(query, key, value, 1.0, torch.zeros_like(query), kernel_name="AttentionMMSoftmaxMMWithoutSwap")
        except UnsupportedOperatorError:
            fallen_back.append(query.shape)
        return plain(query, key, value, attn_mask, dropout_p, is_causal)

    class Block(torch.nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    x = torch.rand(1, 2, 8, 4)
    expected = Block()(x)
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    torch.testing.assert_close(trace(Block(), x, compiler_args="-O1")(x), expected)
    assert fallen_back


def test_kernel_inside_traced_model_is_same_error():
    from neuronxcc.nki.kernels.attention import attention_isa_kernel

    with pytest.raises(UnsupportedOperatorError) as excinfo:
        trace(lambda x: attention_isa_kernel(x, x, x, 1.0, x), torch.rand(1, 8, 4), compiler_args="-O1")
    assert excinfo.value.details["kernel"] == "attention_isa_kernel"
