"""The one counter of FLOPs: the work of one operator call, from its shapes alone.

Matrix products, attention and convolutions are counted as torch counts them (`torch.utils.flop_counter`): two for each
multiply-add, and in tiles of the tensor engine. Other arithmetic counts one FLOP per element of the call's largest
tensor, whatever the function, and takes the passes of the vector engine in `PASSES`; data movement counts none. It does
not depend on targets or time.

    >>> sorted(PASSES.items())[0]
    ('activation', 1)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

from ..base.core import TensorSpec
from .rules import OpCall, combines, decompose, find_rule, values_of
from .tiles import ARRAY, convolution_cycles, product_cycles

Counted = Literal["products", "elements", "none", "unknown"]

PRODUCTS = (
    *("attention", "convolution", "convolution-backward", "grouped-matmul", "grouped-matmul-fallback", "matmul"),
    *("quantized-matmul", "recurrent", "transposed-convolution"),
)
"""Rules of operators that multiply matrices."""

LOOKUPS = ("embedding", "gather", "gather-along", "index", "quantized-rows")
"""Rules of operators that read at computed positions."""

MOVES = (
    *LOOKUPS,
    *("bookkeeping", "cast", "creation", "dropout", "movement", "one-hot", "subgraph", "view", "write"),
    *("collective", "rank", "wait-for-collective"),
)
"""Rules of operators that compute nothing in inference; sums of collectives are part of their time on the links."""

SCATTER = "scatter"
"""Rule of writes, which compute only where they accumulate."""

KERNEL = "nki-kernel"
"""Rule of NKI kernels."""

PASSES = {"activation": 1, "batchnorm": 0, "normalization": 3, "relu": 0}
"""Passes of the vector and scalar engines over a result, by kind; other arithmetic takes one. A rectifier comes free
with the move out of PSUM, and a batch norm is folded into the convolution before it."""

_KINDS = {"aten.relu": "relu", "aten.batch_norm": "batchnorm", "aten._native_batch_norm_legit_no_training": "batchnorm"}
"""Operators that differ from their rule's kind."""

_SOFTMAX = ("aten.softmax", "aten._softmax", "aten.log_softmax", "aten._log_softmax")

_ATTENTION = ("aten.scaled_dot_product_attention", "aten._scaled_dot_product_flash_attention_for_cpu")

_DYNAMIC = "neuron.dynamic_quantized_linear"
_QUANTIZED = ("neuron.quantized_linear", "neuron.quantized_experts", "neuron.quantized_experts_sum")

_FORMULAS: dict[str, Callable[..., int]] = {
    "aten._grouped_mm": lambda left, right, *_: 2 * left.num_elements * right.shape[-1],
    "aten._int_mm": lambda left, right: 2 * left.num_elements * right.shape[-1],
    "aten._scaled_dot_product_flash_attention_for_cpu": lambda query, key, value, *_: (
        2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    ),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": lambda _, query, key, value, *rest: (
        2 * math.prod(query.shape[:-1]) * key.shape[-2] * (3 * query.shape[-1] + 2 * value.shape[-1])
    ),
    "aten._weight_int8pack_mm": lambda left, right, *_: 2 * left.num_elements * right.shape[0],
    "aten.addbmm": lambda _, left, right: 2 * left.num_elements * right.shape[-1],
    "aten.addmv": lambda _, matrix, vector: 2 * matrix.num_elements,
    "aten.dot": lambda left, right: 2 * left.num_elements,
    "aten.mv": lambda matrix, vector: 2 * matrix.num_elements,
    _DYNAMIC: lambda left, right, *_: 2 * left.num_elements * right.shape[0],
    "neuron.quantized_linear": lambda left, right, *_: 2 * left.num_elements * right.shape[0],
    **dict.fromkeys(
        ("neuron.quantized_experts", "neuron.quantized_experts_sum"),
        lambda left, right, *_: 2 * math.prod(left.shape[-2:]) * math.prod(right.shape[:2]),
    ),
    "transformers.grouped_mm_fallback": lambda left, right, *_: 2 * left.num_elements * right.shape[-1],
}
"""Products that torch's counter does not know, from the specs of their tensors: two for each multiply-add."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallWork:
    """Work of one call of an operator; weights and states are its graph's: `simulator.work.graph`."""

    flops: int
    """Operations; 0 where the sizes are not known."""
    counted: Counted
    """Counted work: FLOPs of multiply-adds, elements, none for moves, or unknown sizes."""
    dtype: str | None = None
    """Dtype of the operands of a product."""
    tensor_cycles: float = 0.0
    """Cycles of the tensor engine at its 16-bit rate, other than those of attention."""
    attention_cycles: float = 0.0
    """Cycles of the two matmuls of attention."""
    vector_elements: float = 0.0
    """Elements that pass the vector or scalar engine, once for each pass."""
    unpacked_elements: float = 0.0
    """Weights that pass the vector engine before the product, because several share a byte."""
    softmax_elements: float = 0.0
    kernel: str | None = None
    """Key of an NKI kernel, whose time is that of its instructions."""


_AMOUNTS = (
    *("flops", "tensor_cycles", "attention_cycles", "vector_elements", "unpacked_elements", "softmax_elements"),
)


def work_of(call: OpCall) -> CallWork:
    """Count the work of one call.

    Example:
        ```python
        import torch
        from optimum_neuron.compiler.rules.call import OpCall
        from optimum_neuron.compiler.work import work_of

        exported = torch.export.export(torch.nn.Linear(16, 4), (torch.randn(2, 16),), strict=False)
        (linear,) = [node for node in exported.graph.nodes if node.op == "call_function"]
        assert work_of(OpCall.from_node(linear)).flops == 2 * 2 * 16 * 4
        ```
    """
    if any(-1 in spec.shape for spec in call.tensors):
        return CallWork(flops=0, counted="unknown")
    rule = find_rule(call.op)
    if rule is None:
        return _of_parts(call)
    if rule.name in MOVES or (rule.name == SCATTER and not combines(call)):
        return CallWork(flops=0, counted="none")
    if rule.name in PRODUCTS:
        return _product(call)
    if rule.name == KERNEL:
        return _kernel(call)
    return _elements(call, _KINDS.get(call.name, rule.name))


def _kernel(call: OpCall) -> CallWork:
    """The matmuls of a kernel; its time has everything else."""
    from ..nki import kernel_time, stream_of

    key = call.arguments["kernel"]
    flops = kernel_time(key, stream_of(key).target).matmul_flop
    dtype = next((spec.dtype for spec in call.inputs), "float32")
    return CallWork(flops=flops, counted="products" if flops else "elements", dtype=dtype, kernel=key)


def _elements(call: OpCall, kind: str = "") -> CallWork:
    elements = max((spec.num_elements for spec in call.tensors), default=0)
    if call.name in _SOFTMAX:
        return CallWork(flops=elements, counted="elements", softmax_elements=elements)
    return CallWork(flops=elements, counted="elements", vector_elements=elements * PASSES.get(kind, 1))


def _of_parts(call: OpCall) -> CallWork:
    """The work of the decomposition of an operator without a rule."""
    parts = decompose(call)
    if parts is None:
        return _elements(call)
    works = [work_of(part) for part in parts]
    kinds: tuple[Counted, ...] = ("unknown", "products", "elements", "none")
    present = [kind for kind in kinds if any(work.counted == kind for work in works)]
    return CallWork(
        counted=present[0] if present else "none",
        dtype=next((work.dtype for work in works if work.dtype), None),
        **{field: sum(getattr(work, field) for work in works) for field in _AMOUNTS},
    )


def _product(call: OpCall) -> CallWork:
    formula = _FORMULAS.get(call.name)
    flops = formula(*call.inputs) if formula else _torch_counts(call)
    # Numbers of 8 bits on both sides are multiplied as bfloat16, which has them exactly.
    dtype = "bfloat16" if call.name == _DYNAMIC else next(spec.dtype for spec in call.inputs)
    evicted = sum(spec.num_elements for spec in call.outputs) + _scaled(call)
    matmuls: dict[str, Any] = {}
    if call.name in _ATTENTION:
        matmuls["attention_cycles"], matmuls["softmax_elements"] = _attention(call)
    else:
        matmuls["tensor_cycles"] = _cycles(call) or flops / (2 * ARRAY * ARRAY)
    return CallWork(
        flops=flops,
        counted="products",
        dtype=dtype,
        vector_elements=evicted,
        unpacked_elements=_unpacked(call),
        **matmuls,
    )


def _unpacked(call: OpCall) -> int:
    """Passes over a quantized weight: over numbers of 4 bits, and over all of them where that scales fewer elements.

    Casts from 8 to 16 bits are part of the load, as elsewhere.
    """
    if call.name not in _QUANTIZED:
        return 0
    count = _num_weights(call)
    return count * ((call.inputs[1].dtype == "uint8") + _scales_weights(call))


def _scaled(call: OpCall) -> int:
    """Elements that pass the vector engine because a product is quantized, beside its results: sums of groups.

    Inputs that are quantized pass it twice: for the largest of each row, and to be scaled. Sums over experts have a
    scale for each expert.
    """
    if call.name == _DYNAMIC:
        return 2 * call.inputs[0].num_elements
    if call.name not in _QUANTIZED or _scales_weights(call):
        return 0
    return _num_sums(call) - sum(spec.num_elements for spec in call.outputs)


def _scales_weights(call: OpCall) -> bool:
    """Whether a weight is scaled before the product: with groups, when it has fewer elements than their sums."""
    return call.inputs[2].shape[-1] > 1 and _num_weights(call) < _num_sums(call)


def _num_weights(call: OpCall) -> int:
    values = call.inputs[1]
    return values.num_elements * (2 if values.dtype == "uint8" else 1)


def _num_sums(call: OpCall) -> int:
    """Sums of groups that leave PSUM."""
    x, values, scale, *_ = call.inputs
    num_rows = math.prod(x.shape[:-1]) if len(values.shape) == 2 else x.shape[-2]
    return num_rows * math.prod(values.shape[:-1]) * scale.shape[-1]


def _cycles(call: OpCall) -> float | None:
    """Cycles of a matmul in tiles; None for operators without published tiling."""
    specs = [spec for spec in call.inputs if spec.shape]
    if call.name == "aten.linear":
        return product_cycles(math.prod(specs[0].shape[:-1]), specs[0].shape[-1], math.prod(specs[1].shape[:-1]))
    if call.name in ("neuron.quantized_linear", _DYNAMIC):
        return product_cycles(math.prod(specs[0].shape[:-1]), specs[0].shape[-1], specs[1].shape[0])
    if call.name in _QUANTIZED:
        num_experts, num_outputs = specs[1].shape[:2]
        return num_experts * product_cycles(specs[0].shape[-2], specs[0].shape[-1], num_outputs)
    if call.name in ("aten.mm", "aten.bmm", "aten.matmul"):
        return _matmul_cycles(specs[0], specs[1])
    if call.name in ("aten.addmm", "aten.baddbmm"):
        return _matmul_cycles(specs[-2], specs[-1])
    if call.name in ("aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.convolution"):
        return _convolution_cycles(call, specs[0], specs[1])
    return None


def _matmul_cycles(left: TensorSpec, right: TensorSpec) -> float | None:
    if len(left.shape) < 2 or len(right.shape) < 2:
        return None
    if len(right.shape) == 2:
        return product_cycles(math.prod(left.shape[:-1]), left.shape[-1], right.shape[-1])
    batch = max(math.prod(left.shape[:-2]), math.prod(right.shape[:-2]))
    return batch * product_cycles(left.shape[-2], left.shape[-1], right.shape[-1])


def _convolution_cycles(call: OpCall, values: TensorSpec, weight: TensorSpec) -> float | None:
    (result,) = call.outputs
    transposed = bool(call.arguments.get("transposed", False))
    if transposed or len(values.shape) != len(weight.shape):
        return None
    channels_out, channels_in = weight.shape[:2]
    groups = values.shape[1] // channels_in
    positions = result.num_elements // channels_out
    if channels_in == 1 and groups > 1:
        return None  # one channel fills no array: counted by its operations
    return convolution_cycles(positions, channels_in, channels_out // groups, math.prod(weight.shape[2:]), groups)


def _attention(call: OpCall) -> tuple[float, float]:
    """Cycles of both matmuls of attention, and the number of scores."""
    query, key, value = call.inputs[:3]
    heads = math.prod(query.shape[:-2])
    rows, size, slots = query.shape[-2], query.shape[-1], key.shape[-2]
    cycles = product_cycles(rows, size, slots) + product_cycles(rows, slots, value.shape[-1])
    return heads * cycles, heads * rows * slots


def _torch_counts(call: OpCall) -> int:
    """Run the operator on the meta device, where torch decomposes it into operators that its counter knows."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ..upstream.torch import tree_map_only

    args, kwargs = tree_map_only(
        torch.Tensor,
        lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta"),
        values_of(call.node),
    )
    assert callable(call.node.target)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call.node.target(*args, **kwargs)
    return counter.get_total_flops()
