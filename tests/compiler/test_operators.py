"""The allow-list of stored operators: operators of compiles, and none with file or memory access."""

import pytest
import torch

from optimum_neuron.compiler.package import is_allowed, not_allowed
from optimum_neuron.compiler.rules import known_ops

UNSAFE = """
    aten.from_file.default aten.set_.source_Storage aten.set_.source_Tensor_storage_offset aten.set_data.default
    aten.resize_.default aten.resize_as_.default aten._resize_output_.default aten._unsafe_index.Tensor
    aten._unsafe_index_put.default aten.sparse_coo_tensor.indices aten._sparse_csr_tensor_unsafe.default
    aten._nested_view_from_buffer.default aten._convert_indices_from_csr_to_coo.default
    aten.fbgemm_linear_fp16_weight.default aten.mkldnn_rnn_layer.default aten.record_stream.default
    aten._print.default
"""


@pytest.mark.parametrize("op", UNSAFE.split())
def test_operators_with_file_or_memory_access_are_not_allowed(op):
    namespace, packet, overload = op.split(".")
    assert getattr(getattr(getattr(torch.ops, namespace), packet), overload) is not None, "an operator of this torch"
    assert not is_allowed(op)


def test_every_operator_with_rule_is_allowed():
    """A new rule needs no edit of the list; only a write without checks is an exception."""
    assert [op for op in known_ops() if not is_allowed(op)] == ["aten._unsafe_index_put"]


@pytest.mark.parametrize(
    "op",
    ["aten.einsum.default", "aten._weight_norm.default", "aten.upsample_bicubic2d.vec", "aten.cummax.default"],
    ids=["composed", "private and composed", "decomposed", "host"],
)
def test_operators_without_rule_need_torch_or_host_implementation(op):
    assert op.rpartition(".")[0] not in known_ops() and is_allowed(op)


def test_disallowed_operators_are_listed_once_and_sorted():
    ops = ["getitem", "os.system", "aten.add.Tensor", "aten.from_file.default", "os.system", None]
    assert not_allowed(ops) == ["None", "aten.from_file.default", "os.system"]
