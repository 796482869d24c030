"""Kernels behind names that scripts import from the vendor's compiler: attention and cumulative sums.

They take the published arguments and write their last one, as the vendor's do; the code is this package's. On a grid of
cores each has a part of the heads or rows. Shape legend: N heads of all batches, D head width, S tokens, K keys.

    from optimum_neuron.nki.legacy import attention_isa_kernel

    attention_isa_kernel(q_NDS, k_NDK, v_NKD, scale, out_NSD, kernel_name="AttentionMMSoftmaxMMWithoutSwap")
"""

from __future__ import annotations

import functools

from .. import isa as nisa, language as nl
from ..core import Rule, refuse, require
from ..jit import Kernel
from ..tensor import NkiTensor
from .kernel import DEFAULT_PLATFORM

ROWS, KEYS = 128, 512
"""Queries of a block, and keys of a matmul."""
LOWEST = -1e30
"""Score of a key that a query must not see."""
kernel = functools.partial(Kernel, platform=DEFAULT_PLATFORM, is_older=True)
"""Makes a kernel that runs on grids of any size."""
PLAIN, CAUSAL = "AttentionMMSoftmaxMMWithoutSwap", "CausalAttentionMMSoftmaxMMWithoutSwap"


@kernel
def attention_isa_kernel(
    q: NkiTensor,
    k: NkiTensor,
    v: NkiTensor,
    scale: float,
    out: NkiTensor,
    kernel_name: str = PLAIN,
    sliding_window: int | None = None,
) -> None:
    """Write softmax(scale * q.T @ k) @ v to `out`.

    Args:
        q: queries [N, D, S].
        k: keys [N, D, K].
        v: values [N, K, D].
        scale: factor on scores.
        out: gets the result: [N, S, D], or [N, D, S]; where S is D, the second if the kernel is causal.
        kernel_name: "AttentionMMSoftmaxMMWithoutSwap", or "CausalAttentionMMSoftmaxMMWithoutSwap".
        sliding_window: keys that a query of a causal kernel sees; None or 0 for all.

    Raises:
        KernelError: another kernel, sizes that do not fit, or heads wider than 128.
    """
    (num_heads, depth, length), num_keys, is_causal = q.shape, k.shape[2], kernel_name == CAUSAL
    transposed = [num_heads, depth, length]
    is_transposed = list(out.shape) == transposed and (length != depth or is_causal)
    is_kind = kernel_name in (PLAIN, CAUSAL) and (is_causal or not sliding_window)
    require(is_kind, Rule.ATTENTION_KIND, name=kernel_name, window=sliding_window, choices=[PLAIN, CAUSAL])
    if not is_transposed and list(out.shape) != [num_heads, length, depth]:
        shapes = [list(tensor.shape) for tensor in (q, k, v, out)]
        layout = "q is [heads, width, tokens], k [heads, width, keys], v [heads, keys, width], out as q, or transposed."
        refuse(Rule.KERNEL_SHAPES, kernel="attention_isa_kernel", shapes=shapes, layout=layout)
    for head in range(nl.program_id(0), num_heads, nl.num_programs(0)):
        keys = nl.load(k[head])
        values = [nl.load(v[head][part]) for part in parts(num_keys, ROWS)]
        for part in parts(length, ROWS):
            window = (part.start, sliding_window or 0) if is_causal else None
            result = _attend(nl.load(q[head][:, part]), keys, values, scale, window, out.dtype)
            if is_transposed:
                nisa.dma_copy(out[head][:, part], nl.copy(nl.transpose(result)))
            else:
                nisa.dma_copy(out[head][part], result)


def parts(size: int, step: int) -> list[slice]:
    """Return slices of `step` elements; the last one has the rest."""
    return [slice(begin, min(begin + step, size)) for begin in range(0, size, step)]


def _attend(
    queries: NkiTensor,
    keys: NkiTensor,
    values: list[NkiTensor],
    scale: float,
    causal: tuple[int, int] | None,
    dtype: object,
) -> NkiTensor:
    """Compute one block of queries; `causal` has its first token and the size of the window."""
    (depth, rows), num_keys = queries.shape, keys.shape[1]
    scores = nl.ndarray((rows, num_keys), nl.float32)
    for part in parts(num_keys, KEYS):
        product = nl.ndarray((rows, part.stop - part.start), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, queries, keys[:, part])
        nisa.tensor_copy(scores[:, part], product)
    if causal is not None:
        first, window = causal
        # A query at first + p sees the keys up to first + p, and of a window the last ones.
        nisa.affine_select(scores, [[-1, num_keys]], 1, scores, LOWEST, nl.greater_equal, first)
        if window:
            nisa.affine_select(scores, [[1, num_keys]], -1, scores, LOWEST, nl.greater_equal, window - 1 - first)
    shift, total = (nl.ndarray((rows, 1), nl.float32) for _ in range(2))
    nisa.tensor_reduce(shift, nl.maximum, scores, 1)
    nisa.tensor_scalar(shift, shift, nl.multiply, -scale)
    weights = nl.ndarray((rows, num_keys), values[0].dtype)
    nisa.activation_reduce(weights, nl.exp, scores, nl.add, total, bias=shift, scale=scale)
    mixed = nl.ndarray((rows, depth), nl.float32, buffer=nl.psum)
    for part, block in zip(parts(num_keys, ROWS), values, strict=True):
        nisa.nc_matmul(mixed, nl.copy(nl.transpose(weights[:, part])), block)
    nisa.reciprocal(total, total)
    result = nl.ndarray((rows, depth), dtype)
    nisa.tensor_scalar(result, mixed, nl.multiply, total)
    return result


@kernel
def cumsum(tensor_in: NkiTensor, output: NkiTensor, axis: int = 1) -> None:
    """Write the cumulative sums of rows to `output`.

    Args:
        tensor_in: rows [R, C].
        output: gets the sums, of the same shape.
        axis: 1, or -1.

    Raises:
        KernelError: another axis, or shapes that differ.
    """
    if axis not in (1, -1) or tensor_in.shape != output.shape:
        shapes = [list(tensor_in.shape), list(output.shape)]
        refuse(Rule.CUMSUM, shapes=shapes, axis=axis)
    num_rows, num_columns = tensor_in.shape
    for part in parts(num_rows, ROWS)[nl.program_id(0) :: nl.num_programs(0)]:
        values, ones = nl.load(tensor_in[part]), nl.ndarray((part.stop - part.start, num_columns), nl.float32)
        nisa.memset(ones, 1.0)
        sums = nl.ndarray(ones.shape, nl.float32)
        nisa.tensor_tensor_scan(sums, ones, values, 0.0, nl.multiply, nl.add)
        nl.store(output[part], sums)
