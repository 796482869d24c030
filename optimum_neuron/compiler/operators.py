"""The operators that a stored graph may call: an allow-list, checked when a NEFF is written and when it is read.

A NEFF can come from anyone, and some ATen operators do more than compute: they open files, replace the storage of a
tensor, or trust indices and pointers that they are given. The list has the operators that a compile can produce: those
with a rule, those that torch decomposes, and those of `_HOST`. It does not depend on graphs or files.

    >>> from optimum_neuron.compiler.operators import is_allowed
    >>> is_allowed("aten.relu.default"), is_allowed("aten.from_file.default")
    (True, False)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

from .rules import base_name, known_ops

_HOST = re.compile(
    r"adaptive_max_pool\dd_backward|angle|(bartlett|blackman|hamming|kaiser)_window|bincount|binomial|conv_tbc|cummax"
    r"|cummin|equal|fft_r?fftfreq|fractional_max_pool\dd|grid_sampler_3d|histogram|logcumsumexp|masked_select|nonzero"
    r"|poisson|polygamma|put|random|range|special_\w+|unique_\w+|view_as_(complex|real)|_ctc_loss|_linalg_eigvals"
    r"|_logcumsumexp|_masked_softmax|_standard_gamma|_unique2?"
)
"""Operators that `allow_host_ops` can send to the host although they have no rule and no decomposition."""

_UNSAFE = re.compile(
    r"from_file|set|set_data|data|resize\w*|pin_memory|_unsafe_\w+|_?sparse_\w+|to_sparse\w*|to_mkldnn\w*|fbgemm_\w+"
    r"|_wrapped_\w+|quantized_\w+|choose_qparams\w*|_(add|remove)_batch_dim|_unpack_dual|_test_\w+|get_gradients"
    r"|requires_grad|retain_grad|flatten_dense_tensors|unflatten_dense_tensors"
)
"""Operators that torch decomposes or composes, but which reach storage, pointers, autograd, or unchecked indices."""

_UNCHECKED = frozenset({"aten._unsafe_index_put"})
"""Operators with a rule that trust the indices that they are given."""


def is_allowed(op: str) -> bool:
    """Return whether a stored graph may call an operator, with or without overload, such as "aten.add.Tensor"."""
    name = base_name(op)
    if name in known_ops():
        return name not in _UNCHECKED
    namespace, _, packet = name.partition(".")
    if namespace != "aten" or _UNSAFE.fullmatch(packet):
        return False
    return _HOST.fullmatch(packet) is not None or name in _composed()


def not_allowed(ops: Iterable[Any]) -> list[str]:
    """Return the operators among `ops` that a stored graph may not call, sorted; "getitem" picks a result and may."""
    return sorted({str(op) for op in ops if op != "getitem" and not is_allowed(str(op))})


@functools.cache
def _composed() -> frozenset[str]:
    """Operators that torch makes of other operators, in Python or in C++."""
    from ..upstream.torch import decomposition_table, dispatch_get_registrations_for_dispatch_key

    composite = dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    names = {str(op) for op in decomposition_table} | {name.replace("::", ".") for name in composite}
    return frozenset(map(base_name, names))
