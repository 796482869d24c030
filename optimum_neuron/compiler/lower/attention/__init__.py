"""Attention in float32 on the host CPU, as an operator that Inductor calls from C++.

torch's own attention leaves the products to MKL, which runs narrow kernels on CPUs of other vendors, and to calls that
are too small for it. `attention.cpp` is compiled once for each torch and kind of CPU; the code that Inductor generates
calls it directly, because `c_functions` names its C function and `load` brings it into the process before.

    load(probe_cpu().isa)
    torch.ops.neuron_host.attention(query_BNTH, key_BKSH, value_BKSV, mask, is_causal, scale)

Shape legend: B batch, N query heads, K key heads, N a multiple of K; T queries, S keys; H width of queries and keys,
V of values.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from ....native import NativeLibrary
from ..choose import CpuFeatures, probe_cpu
from ..handles import Handle, Handles, tensors_of

MIN_QUERIES = 4
"""From this many queries on it is the faster one: packing keys and values then takes less than it gains."""

_TARGET_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"),
    "AVX2": ("-mavx2", "-mfma"),
}
"""Compiler flags of the vector extensions, by torch's names."""

_FUNCTION = "aoti_torch_cpu_attention"
"""The name that Inductor gives to the C function of an operator `attention`."""

_LIBRARY = torch.library.Library("neuron_host", "FRAGMENT")
_LIBRARY.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float scale) -> Tensor",
    tags=(torch.Tag.flexible_layout,),  # any strides will do, so Inductor copies nothing
)
ATTENTION = torch.ops.neuron_host.attention.default


def is_supported(features: CpuFeatures) -> bool:
    """Return whether there is a kernel for the CPU that has been measured."""
    return features.isa in _TARGET_FLAGS


def is_faster(
    features: CpuFeatures, query_BNTH: torch.Tensor, key_BKSH: torch.Tensor, attn_mask: torch.Tensor | None
) -> bool:
    """Return whether `attend` can take the call and is faster than torch's operator."""
    kinds = (torch.float32, torch.bool)
    return (
        is_supported(features)
        and query_BNTH.dtype == key_BKSH.dtype == torch.float32
        and query_BNTH.dim() == key_BKSH.dim() == 4
        and query_BNTH.shape[2] >= MIN_QUERIES
        and (attn_mask is None or attn_mask.dtype in kinds)
    )


def is_in(body: torch.fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body may call the kernel."""
    return is_supported(features) and any(
        node.target == torch.ops.aten.scaled_dot_product_attention.default
        and node.args[0].meta["val"].shape[-2] >= MIN_QUERIES
        for node in body.graph.nodes
    )


def is_called(text: str) -> bool:
    """Return whether C++ calls the kernel; Inductor declares it in every file."""
    return text.count(_FUNCTION) > text.count(_declaration())


def attend(
    query_BNTH: torch.Tensor,
    key_BKSH: torch.Tensor,
    value_BKSV: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Scaled dot-product attention of float32 tensors, in place of torch's function of that name.

    Args:
        query_BNTH: queries, of any strides, as are the others.
        key_BKSH: keys; each is shared by N / K heads of queries.
        value_BKSV: values.
        attn_mask: can be broadcast to [B, N, T, S]; bool, True where a query sees a key, or float32, added to scores.
        is_causal: query t sees no key behind t; with a mask both hold.
        scale: factor of the scores; H^-0.5 by default.

    Returns:
        [B, N, T, V], in memory as [B, T, N, V]; zeros for a query that sees no key.
    """
    if attn_mask is not None:
        # Expanded dimensions shrink to one, which the kernel broadcasts: Inductor would write all copies to memory.
        attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
        for dim, stride in enumerate(attn_mask.stride()):
            attn_mask = attn_mask.narrow(dim, 0, 1) if stride == 0 else attn_mask
    scale = query_BNTH.shape[-1] ** -0.5 if scale is None else scale
    return ATTENTION(query_BNTH, key_BKSH, value_BKSV, attn_mask, is_causal, scale)


@torch.library.register_fake("neuron_host::attention", lib=_LIBRARY)
def _shape(
    query_BNTH: torch.Tensor, key_BKSH: torch.Tensor, value_BKSV: torch.Tensor, mask: torch.Tensor | None, *_: Any
) -> torch.Tensor:
    batch, num_heads, num_queries, width = query_BNTH.shape
    num_key_heads, num_keys = key_BKSH.shape[1:3]
    torch._check(num_heads % num_key_heads == 0)
    torch._check(key_BKSH.shape == (batch, num_key_heads, num_keys, width))
    torch._check(value_BKSV.shape[:3] == key_BKSH.shape[:3])
    torch._check(query_BNTH.dtype == key_BKSH.dtype == value_BKSV.dtype == torch.float32)
    if mask is not None:
        torch._check(mask.dtype in (torch.float32, torch.bool) and mask.dim() == 4)
        scores = (batch, num_heads, num_queries, num_keys)
        torch._check(all(size in (1, whole) for size, whole in zip(mask.shape, scores, strict=True)))
    return query_BNTH.new_empty((batch, num_queries, num_heads, value_BKSV.shape[-1])).transpose(1, 2)


@torch.library.impl(_LIBRARY, "attention", "CPU")
def _run(*arguments: Any) -> torch.Tensor:
    _shape(*arguments)
    *tensors, is_causal, scale = arguments
    handles = Handles([tensor for tensor in tensors if tensor is not None])
    mask_handle = ctypes.byref(Handle(handles.array[3])) if len(handles.array) == 4 else None
    result = Handle()
    status = load(probe_cpu().isa)(*handles.array[:3], mask_handle, is_causal, scale, ctypes.byref(result))
    if status:
        raise MemoryError("attention found no memory")
    return tensors_of([result.value])[0]


def library(isa: str) -> NativeLibrary:
    """The compiled kernel for a vector extension, as torch names it; for others than x86's the compiler's default."""
    return NativeLibrary(
        title="attention on the host",
        source=Path(__file__).with_name("attention.cpp"),
        folder="host",
        # Contraction makes one instruction of a product and its sum; it assumes nothing about infinities.
        flags=("-O3", "-ffp-contract=fast", *_TARGET_FLAGS.get(isa, ())),
    )


@functools.cache
def load(isa: str) -> Any:
    """Return the kernel's C function; the first call builds it if need be, and makes it known to code loaded later.

    Raises:
        LoweringError: it cannot be built.
    """
    function = getattr(ctypes.CDLL(str(library(isa).ensure_built()), mode=ctypes.RTLD_GLOBAL), _FUNCTION)
    pointer = ctypes.POINTER(Handle)
    function.argtypes = [Handle, Handle, Handle, pointer, ctypes.c_int32, ctypes.c_double, pointer]
    return function


def c_functions() -> dict[Any, list[str]]:
    """Operator to the C function that Inductor calls for it; otherwise the call would go through the dispatcher."""
    return {ATTENTION: [_declaration()]}


def _declaration() -> str:
    tensors = "AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, AtenTensorHandle* mask"
    return f"AOTITorchError {_FUNCTION}({tensors}, int32_t is_causal, double scale, AtenTensorHandle* result)"
