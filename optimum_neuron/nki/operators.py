"""The operators that instructions take: `nl.add` and the like, on float32 or on the bits of integers.

An operator is a value that instructions are given (`op=nl.add`) and a function on tiles (`nl.add(x, y)`). NumPy's
functions name the same operators, as older kernels do (`op=np.add`).

The arithmetic is that of `nki.isa`'s tables of ALU operators and activation functions. Activation functions are
computed exactly; the hardware's tables of splines are not known, but for the documented extrapolation of `sin`.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from ..base.foreign import name_of
from .core import Rule, require

Function = Callable[..., torch.Tensor]
_INTO = frozenset(
    (
        *(torch.add, torch.mul, torch.maximum, torch.minimum, torch.sub, torch.true_divide),
        *(torch.exp, torch.log, torch.reciprocal, torch.rsqrt, torch.sigmoid, torch.sqrt, torch.square, torch.tanh),
    )
)
"""Functions of torch that compute in memory that they are given."""


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """One operator."""

    name: str
    function: Function
    """What it computes, on float32 or, for bits and comparisons of integers, on int64."""
    arity: int = 2
    identity: float | None = None
    """Neutral element of a reduction; None if it reduces nothing."""
    reduce: Function | None = None
    """The reduction of a tensor over dimensions."""
    is_bitwise: bool = False
    """Whether it works on the bits of integers."""
    is_activation: bool = False
    """Whether the scalar engine has it as an activation function."""
    on_tiles: ClassVar[Callable[..., Any]]
    """The function on tiles; `language/elementwise.py`, which knows instructions, sets it."""

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        operands = [inspect.Parameter(name, kind) for name in ("x", "y")[: self.arity]]
        return inspect.Signature([*operands, inspect.Parameter("dtype", kind, default=None)])

    def __call__(self, *operands: object, **options: object) -> Any:
        """Compute tiles from tiles, as `nl.add(x, y)`."""
        return self.on_tiles(self, *operands, **options)

    def into(self, room: torch.Tensor | None, *operands: torch.Tensor) -> torch.Tensor:
        """Compute it on float32; in memory that it is given, if there is some and torch can."""
        if room is None or self.function not in _INTO:
            return self.function(*operands)
        return self.function(*operands, out=room)

    def __repr__(self) -> str:
        return f"nl.{self.name}"


def _product(values: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        values = values.prod(dim)
    return values


def _folded(function: Function) -> Function:
    """Reduce with a binary function, element after element, over the joined last dimensions."""

    def reduce(values: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        flat = values.flatten(min(dims)) if len(dims) > 1 else values
        result = flat.select(min(dims), 0)
        for number in range(1, flat.shape[min(dims)]):
            result = function(result, flat.select(min(dims), number))
        return result

    return reduce


def _sine(x: torch.Tensor) -> torch.Tensor:
    """Sine; outside of [-pi, pi] the last cubic goes on, so sin(9.0) is 27.65, as documented."""
    beyond = x - torch.copysign(torch.full_like(x, math.pi), x)
    return torch.where(x.abs() <= math.pi, torch.sin(x), beyond**3 / 6 - beyond)


def _gelu_slope(x: torch.Tensor) -> torch.Tensor:
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density


def _sigmoid_slope(x: torch.Tensor, factor: float) -> torch.Tensor:
    gate = torch.sigmoid(factor * x)
    return gate + factor * x * gate * (1 - gate)


def _gelu_tanh_slope(x: torch.Tensor) -> torch.Tensor:
    inner = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + inner) + 0.5 * x * (1 - inner**2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def _compared(function: Function) -> Function:
    return lambda x, y: function(x, y).to(torch.float32)


def _logical(function: Function) -> Function:
    return lambda x, y: function(x != 0, y != 0).to(torch.float32)


def _of_sizes(function: Function) -> Function:
    return lambda x, y: function(x.abs(), y.abs())


def _shift(direction: Function) -> Function:
    return lambda x, y: direction(x.to(torch.int64), y.to(torch.int64))


_REDUCING = (
    Operator("add", torch.add, identity=0.0, reduce=torch.sum),
    Operator("multiply", torch.mul, identity=1.0, reduce=_product),
    Operator("maximum", torch.maximum, identity=-math.inf, reduce=torch.amax),
    Operator("minimum", torch.minimum, identity=math.inf, reduce=torch.amin),
    Operator("subtract", torch.sub, identity=0.0, reduce=_folded(torch.sub)),
    Operator("average", lambda x, y: (x + y) / 2, reduce=torch.mean),
    Operator("abs_max", _of_sizes(torch.maximum), identity=0.0, reduce=lambda x, dims: x.abs().amax(dims)),
    Operator("abs_min", _of_sizes(torch.minimum), identity=math.inf, reduce=lambda x, dims: x.abs().amin(dims)),
    Operator("logical_and", _logical(torch.logical_and), identity=1.0, reduce=lambda x, dims: (x != 0).all(dims)),
    Operator("logical_or", _logical(torch.logical_or), identity=0.0, reduce=lambda x, dims: (x != 0).any(dims)),
    Operator("bitwise_and", torch.bitwise_and, identity=-1.0, reduce=_folded(torch.bitwise_and), is_bitwise=True),
    Operator("bitwise_or", torch.bitwise_or, identity=0.0, reduce=_folded(torch.bitwise_or), is_bitwise=True),
    Operator("bitwise_xor", torch.bitwise_xor, identity=0.0, reduce=_folded(torch.bitwise_xor), is_bitwise=True),
)
_BINARY = {
    **{"divide": torch.true_divide, "power": torch.pow, "mod": torch.remainder, "fmod": torch.fmod},
    **{"equal": _compared(torch.eq), "not_equal": _compared(torch.ne)},
    **{"less": _compared(torch.lt), "less_equal": _compared(torch.le)},
    **{"greater": _compared(torch.gt), "greater_equal": _compared(torch.ge)},
    **{"logical_xor": _logical(torch.logical_xor), "bypass": lambda x, y: x},
}
_BITS = (
    Operator("left_shift", _shift(torch.bitwise_left_shift), is_bitwise=True),
    Operator("right_shift", _shift(torch.bitwise_right_shift), is_bitwise=True),
    Operator("invert", torch.bitwise_not, arity=1, is_bitwise=True),
)
_UNARY = {
    **{name: getattr(torch, name) for name in ("ceil", "cos", "floor", "negative", "tan", "trunc")},
    "logical_not": lambda x: (x == 0).to(torch.float32),
}
_ACTIVATIONS: Mapping[str, Function] = {
    **{name: getattr(torch, name) for name in ("abs", "arctan", "erf", "exp", "log", "reciprocal", "relu", "rsqrt")},
    **{name: getattr(torch, name) for name in ("sigmoid", "sign", "sqrt", "square", "tanh")},
    **{"copy": torch.clone, "identity": torch.clone, "gelu": F.gelu, "mish": F.mish, "silu": F.silu, "sin": _sine},
    "prelu": lambda x, slope=0.0: torch.where(x < 0, slope * x, x),
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "gelu_apprx_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_apprx_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu_dx": _gelu_slope,
    "gelu_apprx_tanh_dx": _gelu_tanh_slope,
    "gelu_apprx_sigmoid_dx": lambda x: _sigmoid_slope(x, 1.702),
    "silu_dx": lambda x: _sigmoid_slope(x, 1.0),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * torch.exp(-x * x),
}

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *_REDUCING,
        *(Operator(name, function) for name, function in _BINARY.items()),
        *_BITS,
        *(Operator(name, function, arity=1) for name, function in _UNARY.items()),
        *(Operator(name, function, arity=1, is_activation=True) for name, function in _ACTIVATIONS.items()),
    )
}

_OTHER_NAMES = {
    **{"sum": "add", "max": "maximum", "min": "minimum", "amax": "maximum", "amin": "minimum", "prod": "multiply"},
    **{"true_divide": "divide", "remainder": "mod", "absolute": "abs", "bitwise_not": "invert", "pow": "power"},
    **{"bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "fabs": "abs"},
}


def as_operator(op: object, parameter: str = "op") -> Operator:
    """Return the operator that an instruction was given, by itself or as NumPy's function of the name."""
    if isinstance(op, Operator):
        return op
    name = name_of(op)
    name = _OTHER_NAMES.get(name, name)
    require(name in OPERATORS, Rule.UNKNOWN_OPERATOR, parameter=parameter, op=op)
    return OPERATORS[name]
