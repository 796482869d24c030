"""The operators of NeuronCore-v1: an allow-list, because its compiler, neuron-cc, publishes what it takes.

Later generations have rules that say what is refused. Here an operator runs on the core only if the published list has
it, or torch decomposes it into listed ones. `aten::embedding` is not on the list although the compiler takes it: a
lookup is faster on the CPU, and a user asks for it with `op_whitelist`. It holds names and conditions and does not
depend on how a graph was made.

    >>> from optimum_neuron.compiler.rules.neuroncore_v1 import is_listed
    >>> is_listed("aten::linear"), is_listed("aten::embedding"), is_listed("aten::sort")
    (True, False, False)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping

from ...base.core import Ruling, Verdict
from ...hardware import documents as doc
from .call import OpCall, base_name
from .decompose import decompose

SOURCE = doc.INF1_OPERATORS
"""Document that the list comes from."""

RULE = "list-of-neuroncore-v1"

_NAMES = """
    Int ScalarImplicit __and__ _convolution_mode _convolution _shape_as_tensor _weight_norm abs adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d add_ add addmm all amax amin any arange argmax argmin
    avg_pool2d baddbmm batch_norm bmm broadcast_tensors broadcast_to bucketize cat ceil chunk clamp_max clamp_min clamp
    clip clone constant_pad_nd contiguous cos detach dimension_value div dot dropout einsum embedding_renorm_ empty_like
    empty eq erf exp expand_as expand eye fill_ flatten flip floor_divide floor full_like full ge gelu group_norm gt
    hardsigmoid hardswish hardtanh_ hardtanh index_select instance_norm isnan layer_norm le leaky_relu linear log2
    log_softmax log logical_and logical_not logical_or logical_xor lt masked_fill matmul max_pool2d_with_indices
    max_pool2d max_pool3d max mean meshgrid min mm movedim mul mv ne neg new_empty new_ones numel ones_like ones permute
    pixel_shuffle pow prelu reciprocal reflection_pad2d relu_ relu remainder repeat_interleave repeat reshape roll rsqrt
    rsub scalarImplicit select sigmoid silu sin size slice softmax softplus split_with_sizes split sqrt squeeze stack
    sub sum t tanh tensor_split tensordot threshold to topk transpose tril triu true_divide trunc type_as unbind
    unsqueeze upsample_bilinear2d upsample_nearest2d values view zero_ zeros_like zeros
"""
_LIMITED = "_pack_padded_sequence _pad_packed_sequence lstm max_pool3d_with_indices norm one_hot where"
"""Supported under conditions, so `get_supported_operations` leaves them out."""

SUPPORTED = tuple(sorted(f"aten::{name}" for name in _NAMES.split()))
"""Operators without a condition, by their names in TorchScript."""
LIMITED = tuple(f"aten::{name}" for name in _LIMITED.split())
"""Operators with a condition."""
COMPILABLE = ("aten::embedding",)
"""Operators that the compiler takes although the list leaves them out."""
LOOKUPS = (*COMPILABLE, "aten::cumsum", "aten::gather", "aten::index")
"""What encoders do before their layers, on tokens and positions; exports leave it to the CPU."""
CACHE_WRITES = ("aten::copy", "aten::index_put")
"""How encoder-decoders write to their caches; exports leave it to the CPU."""

NORMS = (None, 1, 2, math.inf, -math.inf, "fro")
"""Orders of a norm that the core computes."""

_SAME: Mapping[str, str] = {
    "_convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution",
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d",
    "batch_norm": "_native_batch_norm_legit _native_batch_norm_legit_no_training native_batch_norm",
    "constant_pad_nd": "pad",
    "detach": "alias lift_fresh_copy",
    "div": "divide",
    "dropout": "alpha_dropout feature_dropout native_dropout",
    "full": "new_full scalar_tensor",
    "group_norm": "native_group_norm",
    "hardtanh": "relu6",
    "layer_norm": "native_layer_norm",
    "log_softmax": "_log_softmax",
    "logical_and": "bitwise_and",
    "logical_not": "bitwise_not",
    "logical_or": "bitwise_or",
    "matmul": "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu",
    "mul": "multiply",
    "norm": "linalg_vector_norm",
    "pow": "square",
    "reshape": "_reshape_alias unflatten",
    "size": "sym_size",
    "softmax": "_softmax",
    "sub": "subtract",
    "to": "_to_copy",
    "view": "_unsafe_view view_as",
    "zeros": "new_zeros",
}
"""Listed operators, and names of later releases of torch for the same work."""
_NAME_ON_LIST = {f"aten.{name}": f"aten.{listed}" for listed, names in _SAME.items() for name in names.split()}
_LISTED = frozenset(base_name(name.replace("::", ".")) for name in (*SUPPORTED, *LIMITED))


def listed_name(operator: str) -> str:
    """Return the name that the list has for an operator, "aten.conv2d" or "aten::conv2d", with or without overload."""
    name = base_name(operator.replace("::", "."))
    return _NAME_ON_LIST.get(name, name)


def is_listed(operator: str) -> bool:
    """Return whether the list has an operator, maybe under a condition."""
    return listed_name(operator) in _LISTED


def limit(call: OpCall, ruling: Ruling, judge: Callable[[OpCall], Ruling], asked_for: Collection[str] = ()) -> Ruling:
    """Return the ruling of NeuronCore-v1 on a call that the rules of all generations accept.

    Args:
        judge: judges the operators that torch decomposes the call into.
        asked_for: operators that a user wants on the core.
    """
    if not call.outputs or not call.op.startswith(("aten.", "neuron.", "prims.")):  # checks, and arithmetic on sizes
        return ruling
    if listed_name(call.op) in _LISTED:
        problem = _condition(call)
        if problem is None:
            return dataclasses.replace(ruling, source=SOURCE)
        return _refused(call, problem, "change the call, or run it on the CPU")
    if (name := base_name(call.op).replace(".", "::")) in COMPILABLE:
        if name in asked_for:
            return dataclasses.replace(ruling, source=SOURCE)
        remedy = 'leave it to the CPU, or ask for it with op_whitelist=[..., "aten::embedding"]'
        return _refused(call, "a lookup runs on the CPU unless it is asked for, because that is faster", remedy)
    parts = decompose(call)
    if parts and all(judge(part).verdict is not Verdict.UNSUPPORTED for part in parts):
        names = ", ".join(sorted({part.op for part in parts}))
        reason = f"torch decomposes it into {names}"
        return dataclasses.replace(ruling, verdict=Verdict.DECOMPOSED, reason=reason, source=SOURCE)
    remedy = "run it on the CPU, as torch.neuron.trace does, or compile for inf2"
    return _refused(call, "neuron-cc does not list this operator for NeuronCore-v1", remedy)


def _refused(call: OpCall, reason: str, remedy: str) -> Ruling:
    return Ruling(
        verdict=Verdict.UNSUPPORTED,
        op=call.op,
        rule=RULE,
        reason=reason,
        source=SOURCE,
        remedy=remedy,
        module_path=call.module_path,
        source_line=call.source_line,
    )


def _condition(call: OpCall) -> str | None:
    """Say which condition of a listed operator a call does not meet."""
    name, arguments = listed_name(call.op).removeprefix("aten."), call.arguments
    if name == "where" and len(call.inputs) < 2:
        return "where takes a condition and two values on this core"
    if name == "norm":
        order = arguments.get("p", arguments.get("ord"))
        return None if order in NORMS else f"norm takes p of 1, 2, inf, -inf, or 'fro' on this core, not {order}"
    if name == "one_hot" and arguments["num_classes"] == -1:
        return "one_hot needs num_classes on this core"
    if name == "max_pool3d_with_indices" and any(user.args[1:] == (1,) for user in call.node.users):
        return "the indices of max_pool3d cannot be used on this core"
    if name == "lstm" and "batch_sizes" in arguments:
        return "lstm takes no PackedSequence outside of torch.neuron.trace"
    return None
