"""Kernels behind names that scripts import from the vendor's compiler: projections, MLPs, and a convolution.

They take the arguments that public scripts pass and write `out`, as the vendor's do; the code is this package's. On a
grid of cores each has a part of the rows or images. Shape legend: B batch, S tokens, H hidden size, I width of the MLP,
F features of queries, keys and values.

    mlp_isa_kernel(hidden_BSH, gamma_1H, gate_HI, up_HI, down_IH, out_BSH, kernel_name="MLP", fused_rmsnorm=True)
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

from .. import isa as nisa, language as nl
from ..core import require
from ..rulebook import Rule
from ..tensor import NkiTensor
from .imported import KEYS, ROWS, kernel, parts

NormType = enum.Enum("NormType", {"NO_NORM": 0, "RMS_NORM": 1, "LAYER_NORM": 2, "RMS_NORM_SKIP_GAMMA": 3})
ActFnType = enum.Enum("ActFnType", {"SiLU": 0, "GELU": 1, "GELU_Tanh_Approx": 2, "Swish": 3})
_ACTIVATIONS = {"SiLU": "silu", "Swish": "silu", "GELU": "gelu", "GELU_Tanh_Approx": "gelu_apprx_tanh"}
_EPS = 1e-6


def _choice(opcode: str, operand: str, value: object, choices: Sequence[str]) -> str:
    """Return the name of an option, which may be a member of an enumeration of any library."""
    name = value.name if isinstance(value, enum.Enum) else str(value)
    require(name in choices, Rule.CHOICE, opcode=opcode, operand=operand, value=name, choices=list(choices))
    return name


class _Norm:
    """How rows are normalized before a projection."""

    def __init__(self, opcode: str, norm_type: object, weight: NkiTensor, fused: bool, skips: bool, eps: float) -> None:
        kinds = [NormType.NO_NORM.name, NormType.RMS_NORM.name, NormType.RMS_NORM_SKIP_GAMMA.name]
        name = _choice(opcode, "norm_type", kinds[bool(fused)] if norm_type is None else norm_type, kinds)
        self.eps = None if name == kinds[0] else eps
        self.weight = None if skips or name != kinds[1] else weight.reshape((weight.size, 1))

    def columns(self, rows: NkiTensor, dtype: object) -> list[NkiTensor]:
        """Return rows, normalized and transposed: a tile for every 128 of their elements."""
        count, width = rows.shape
        if self.eps is not None:
            scaled, total = nl.ndarray(rows.shape, nl.float32), nl.ndarray((count, 1), nl.float32)
            nisa.activation_reduce(scaled, nl.square, rows, nl.add, total)
            nisa.tensor_scalar(total, total, nl.multiply, 1 / width, op1=nl.add, operand1=self.eps)
            nisa.activation(total, nl.rsqrt, total)
            nisa.tensor_scalar(scaled, rows, nl.multiply, total)
            rows = scaled
        columns = []
        for part in parts(width, ROWS):
            column = nl.ndarray((part.stop - part.start, count), dtype)
            factor = 1.0 if self.weight is None else nl.load(self.weight[part])
            nisa.tensor_scalar(column, nl.transpose(rows[:, part]), nl.multiply, factor)
            columns.append(column)
        return columns


def _sum(shape: tuple[int, ...], products: Iterator[tuple[NkiTensor, NkiTensor]]) -> NkiTensor:
    """Return the sum of products in PSUM."""
    result = nl.ndarray(shape, nl.float32, buffer=nl.psum)
    for stationary, moving in products:
        nisa.nc_matmul(result, stationary, moving)
    return result


def _write_projection(columns: list[NkiTensor], weight: NkiTensor, bias: NkiTensor | None, out: NkiTensor) -> None:
    """Write rows times a matrix in HBM, with a bias, to rows in HBM."""
    count, blocks = columns[0].shape[1], parts(weight.shape[0], ROWS)
    ones = nl.ndarray((1, count), weight.dtype)
    nisa.memset(ones, 1.0)
    for part in parts(weight.shape[1], KEYS):
        pairs = [(column, nl.load(weight[block][:, part])) for column, block in zip(columns, blocks, strict=True)]
        pairs += [] if bias is None else [(ones, nl.load(bias[:, part], dtype=weight.dtype))]
        nisa.dma_copy(out[:, part], nl.copy(_sum((count, part.stop - part.start), iter(pairs)), out.dtype))


def _parts_of_core(out: NkiTensor, length: int) -> list[tuple[int, slice]]:
    """Return the batch and tokens of each block of rows that this core has."""
    blocks = [(batch, part) for batch in range(out.shape[-3]) for part in parts(length, ROWS)]
    return blocks[nl.program_id(0) :: nl.num_programs(0)]


@kernel
def rmsnorm_qkv_isa_kernel(
    lhs: NkiTensor,
    rhs: NkiTensor,
    ln_w: NkiTensor,
    out: NkiTensor,
    kernel_name: str = "QKV",
    eps: float = _EPS,
    fused_rmsnorm: bool = True,
    bias: NkiTensor | None = None,
    skip_gamma: bool = False,
    use_dma_transpose: bool = False,
    norm_type: object = None,
) -> None:
    """Write rms_norm(lhs) @ rhs + bias to `out`.

    Args:
        lhs: states [B, S, H].
        rhs: weights [H, F].
        ln_w: factors of the norm [1, H].
        out: gets the result: [B, S, F], or [heads, B, S, F / heads].
        kernel_name: "QKV".
        eps: added to the mean of squares.
        fused_rmsnorm: whether states are normalized here.
        bias: [1, F].
        skip_gamma: whether the norm has no factors.
        use_dma_transpose: how states are transposed; it changes no result.
        norm_type: kind of norm in place of `fused_rmsnorm`.

    Raises:
        KernelError: another kernel or norm, or sizes that do not fit.
    """
    norm = _Norm("rmsnorm_qkv_isa_kernel", norm_type, ln_w, fused_rmsnorm, skip_gamma, eps)
    _project((lhs,), norm, rhs, bias, out, kernel_name)


@kernel
def rmsnorm_qkv_isa_fused_add_kernel(
    lhs: NkiTensor,
    residual: NkiTensor,
    other: NkiTensor,
    rhs: NkiTensor,
    ln_w: NkiTensor,
    out: NkiTensor,
    kernel_name: str = "QKV",
    eps: float = _EPS,
    fused_rmsnorm: bool = True,
    bias: NkiTensor | None = None,
    skip_gamma: bool = False,
    norm_type: object = None,
) -> None:
    """Write lhs + residual + other to `lhs`, and what `rmsnorm_qkv_isa_kernel` makes of the sum to `out`."""
    norm = _Norm("rmsnorm_qkv_isa_kernel", norm_type, ln_w, fused_rmsnorm, skip_gamma, eps)
    _project((lhs, residual, other), norm, rhs, bias, out, kernel_name)


def _project(
    states: tuple[NkiTensor, ...],
    norm: _Norm,
    weight: NkiTensor,
    bias: NkiTensor | None,
    out: NkiTensor,
    kernel_name: str,
) -> None:
    opcode, (batch, length, width), features = "rmsnorm_qkv_isa_kernel", states[0].shape, weight.shape[1]
    _choice(opcode, "kernel_name", kernel_name, ["QKV"])
    shapes, heads = [list(tensor.shape) for tensor in (states[0], weight, out)], out.shape[0] if out.ndim == 4 else 1
    fits = list(out.shape)[-3:] == [batch, length, features // heads] and weight.shape[0] == width
    layout = "States are [B, S, H], weights [H, F], out [B, S, F] or [heads, B, S, F / heads]."
    require(fits and features % heads == 0, Rule.KERNEL_SHAPES, kernel=opcode, shapes=shapes, layout=layout)
    for row, part in _parts_of_core(out, length):
        columns = norm.columns(_added(states, row, part, states[0] if len(states) > 1 else None), weight.dtype)
        for head in range(heads):
            chosen = slice(head * (features // heads), (head + 1) * (features // heads))
            own = out[head][row][part] if out.ndim == 4 else out[row][part]
            _write_projection(columns, weight[:, chosen], None if bias is None else bias[:, chosen], own)


def _added(states: tuple[NkiTensor, ...], row: int, part: slice, out: NkiTensor | None) -> NkiTensor:
    """Return the sum of rows in float32; `out` gets it too."""
    total = nl.load(states[0][row][part], dtype=nl.float32)
    for other in states[1:]:
        total = nl.add(total, nl.load(other[row][part]), dtype=nl.float32)
    if out is not None:
        nl.store(out[row][part], total)
    return total


@kernel
def mlp_isa_kernel(
    hidden: NkiTensor,
    ln_w: NkiTensor,
    gate_w: NkiTensor,
    up_w: NkiTensor,
    down_w: NkiTensor,
    out: NkiTensor,
    kernel_name: str = "MLP",
    fused_rmsnorm: bool = True,
    skip_gamma: bool = False,
    eps: float = _EPS,
    act_fn: object = ActFnType.SiLU,
    norm_type: object = None,
) -> None:
    """Write (act(x @ gate_w) * (x @ up_w)) @ down_w of x = rms_norm(hidden) to `out`.

    Args:
        hidden: states [B, S, H].
        ln_w: factors of the norm [1, H].
        gate_w: weights [H, I].
        up_w: weights [H, I].
        down_w: weights [I, H].
        out: gets the result [B, S, H].
        kernel_name: "MLP".
        fused_rmsnorm: whether states are normalized here.
        skip_gamma: whether the norm has no factors.
        eps: added to the mean of squares.
        act_fn: a member of `ActFnType`, or its name.
        norm_type: kind of norm in place of `fused_rmsnorm`.

    Raises:
        KernelError: another kernel, norm or activation, or sizes that do not fit.
    """
    norm = _Norm("mlp_isa_kernel", norm_type, ln_w, fused_rmsnorm, skip_gamma, eps)
    _mlp((hidden,), norm, (gate_w, up_w, down_w), out, kernel_name, act_fn, stores_sum=False)


@kernel
def mlp_fused_add_isa_kernel(
    attn_output: NkiTensor,
    hidden: NkiTensor,
    ln_w: NkiTensor,
    gate_w: NkiTensor,
    up_w: NkiTensor,
    down_w: NkiTensor,
    out: NkiTensor,
    kernel_name: str = "MLP",
    fused_rmsnorm: bool = True,
    skip_gamma: bool = False,
    eps: float = _EPS,
    act_fn: object = ActFnType.SiLU,
    norm_type: object = None,
    store_add: bool = False,
) -> None:
    """Write what `mlp_isa_kernel` makes of attn_output + hidden; with `store_add` the sum goes behind it."""
    norm = _Norm("mlp_isa_kernel", norm_type, ln_w, fused_rmsnorm, skip_gamma, eps)
    _mlp((attn_output, hidden), norm, (gate_w, up_w, down_w), out, kernel_name, act_fn, stores_sum=store_add)


def _mlp(
    states: tuple[NkiTensor, ...],
    norm: _Norm,
    weights: tuple[NkiTensor, NkiTensor, NkiTensor],
    out: NkiTensor,
    kernel_name: str,
    act_fn: object,
    *,
    stores_sum: bool,
) -> None:
    (gate_w, up_w, down_w), (batch, length, width), opcode = weights, states[0].shape, "mlp_isa_kernel"
    _choice(opcode, "kernel_name", kernel_name, ["MLP"])
    activation = getattr(nl, _ACTIVATIONS[_choice(opcode, "act_fn", act_fn, list(_ACTIVATIONS))])
    fits = list(out.shape) == [batch, length * (1 + stores_sum), width] and gate_w.shape == up_w.shape
    fits &= gate_w.shape[0] == width and list(down_w.shape) == [gate_w.shape[1], width]
    layout = "States and out are [B, S, H], with store_add out is [B, 2 S, H]; weights are [H, I], [H, I], [I, H]."
    shapes = [list(tensor.shape) for tensor in (states[0], *weights, out)]
    require(fits, Rule.KERNEL_SHAPES, kernel=opcode, shapes=shapes, layout=layout)
    for row, part in _parts_of_core(out, length):
        columns = norm.columns(_added(states, row, part, out[:, length:] if stores_sum else None), gate_w.dtype)
        inner = []
        for block in parts(gate_w.shape[1], ROWS):
            shape = block.stop - block.start, columns[0].shape[1]
            gate, up = (_sum(shape, _blocks_times(weight, block, columns)) for weight in (gate_w, up_w))
            active, mixed = nl.ndarray(shape, nl.float32), nl.ndarray(shape, down_w.dtype)
            nisa.activation(active, activation, gate)
            nisa.tensor_tensor(mixed, active, up, nl.multiply)
            inner.append(mixed)
        _write_projection(inner, down_w, None, out[row][part])


def _blocks_times(weight: NkiTensor, part: slice, columns: list[NkiTensor]) -> Iterator[tuple[NkiTensor, NkiTensor]]:
    """Yield blocks of some columns of a matrix in HBM, and what they are multiplied with."""
    for column, block in zip(columns, parts(weight.shape[0], ROWS), strict=True):
        yield nl.load(weight[block][:, part]), column
