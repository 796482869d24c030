"""Products of few rows with a quantized weight on the host CPU, as an operator that Inductor calls from C++.

`quantized.cpp` reads the numbers as they are stored; `linear` takes the place of `neuron::quantized_linear` in host
code. Many rows go to oneDNN, on the dequantized weight. It is built and called as `attention` is.

    load(probe_cpu().isa)
    torch.ops.neuron_host.quantized_linear(x, values, scale, zero, bias)

Shape legend: I inputs, O outputs, G groups of inputs.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from ....native import NativeLibrary
from ....weights import dequantize
from ...quantized import QUANTIZED_LINEAR
from .. import onednn
from ..choose import MAX_STREAMED_ROWS, CpuFeatures, probe_cpu
from ..handles import Handle, Handles, tensors_of

_TARGET_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c"),
}
"""Compiler flags of the vector extensions, by torch's names."""

_VNNI_FLAGS = ("-mavx512vnni",)
"""The same where the CPU multiplies 8- and 16-bit integers."""

_FUNCTION = "aoti_torch_cpu_quantized_linear"
"""The name that Inductor gives to the C function of an operator `quantized_linear`."""

_LIBRARY = torch.library.Library("neuron_host", "FRAGMENT")
_LIBRARY.define("quantized_linear(Tensor x, Tensor values, Tensor scale, Tensor? zero, Tensor? bias) -> Tensor")
STREAMED = torch.ops.neuron_host.quantized_linear.default


def is_in(body: torch.fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body calls the kernel."""
    products = body.graph.find_nodes(op="call_function", target=QUANTIZED_LINEAR)
    return any(_num_rows(node.args[0].meta["val"]) <= MAX_STREAMED_ROWS for node in products)


def is_called(text: str) -> bool:
    """Return whether C++ calls the kernel; Inductor declares it in every file."""
    return text.count(_FUNCTION) > text.count(_declaration())


def linear(
    features: CpuFeatures,
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_OG: torch.Tensor,
    zero_OG: torch.Tensor | None,
    bias_O: torch.Tensor | None,
) -> torch.Tensor:
    """Multiply by a quantized weight in the dtype of `x_I`; few rows read it once, as it is stored."""
    if _num_rows(x_I) <= MAX_STREAMED_ROWS:
        return STREAMED(x_I.float().contiguous(), values, scale_OG, zero_OG, bias_O).to(x_I.dtype)
    is_exact = values.dtype != torch.uint8 and scale_OG.shape[1] == 1  # the numbers are exact in bfloat16
    if is_exact and x_I.dtype == torch.bfloat16 and features.has_bf16_dot:
        result = onednn.LINEAR(x_I, values.to(torch.bfloat16), None).float() * scale_OG[:, 0]
    else:
        result = onednn.LINEAR(x_I.float(), dequantize(values, scale_OG, zero_OG), None)
    return (result if bias_O is None else result + bias_O.float()).to(x_I.dtype)


def _num_rows(x_I: torch.Tensor) -> int:
    return x_I.numel() // x_I.shape[-1]


@torch.library.register_fake("neuron_host::quantized_linear", lib=_LIBRARY)
def _shape(
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_OG: torch.Tensor,
    zero_OG: torch.Tensor | None,
    bias_O: torch.Tensor | None,
) -> torch.Tensor:
    torch._check(x_I.dtype == torch.float32)
    return x_I.new_empty((*x_I.shape[:-1], values.shape[0]))


@torch.library.impl(_LIBRARY, "quantized_linear", "CPU")
def _run(*tensors: torch.Tensor | None) -> torch.Tensor:
    _shape(*tensors)
    owner = Handles([tensor for tensor in tensors if tensor is not None])
    handles = iter(owner.array)
    x, values, scale = (next(handles) for _ in range(3))
    zero, bias = (None if tensor is None else ctypes.byref(Handle(next(handles))) for tensor in tensors[3:])
    result = Handle()
    if load(probe_cpu().isa)(x, values, scale, zero, bias, ctypes.byref(result)):
        raise MemoryError("a product with a quantized weight found no memory")
    return tensors_of([result.value])[0]


def library(isa: str) -> NativeLibrary:
    """The compiled kernel for a vector extension, as torch names it; for others than x86's the compiler's default."""
    has_vnni = "vnni" in probe_cpu().extensions
    return NativeLibrary(
        title="products with quantized weights on the host",
        source=Path(__file__).with_name("quantized.cpp"),
        folder="host",
        flags=("-O3", "-ffp-contract=fast", *_TARGET_FLAGS.get(isa, ()), *(_VNNI_FLAGS if has_vnni else ())),
    )


@functools.cache
def load(isa: str) -> Any:
    """Return the kernel's C function; the first call builds it if need be, and makes it known to code loaded later.

    Raises:
        LoweringError: it cannot be built.
    """
    function = getattr(ctypes.CDLL(str(library(isa).ensure_built()), mode=ctypes.RTLD_GLOBAL), _FUNCTION)
    pointer = ctypes.POINTER(Handle)
    function.argtypes = [Handle, Handle, Handle, pointer, pointer, pointer]
    return function


def c_functions() -> dict[Any, list[str]]:
    """Operator to the C function that Inductor calls for it; otherwise the call would go through the dispatcher."""
    return {STREAMED: [_declaration()]}


def _declaration() -> str:
    tensors = "AtenTensorHandle x, AtenTensorHandle values, AtenTensorHandle scale"
    options = "AtenTensorHandle* zero, AtenTensorHandle* bias, AtenTensorHandle* result"
    return f"AOTITorchError {_FUNCTION}({tensors}, {options})"
