"""`neuronxcc.nki.language`: dtypes, memories, tensors, loops, operators and functions that return tiles."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ..dtypes import FORMATS
from ..memory import Buffer
from ..operators import OPERATORS, Operator
from .blocks import ParDim
from .creation import CREATION, bfp16, fp32, refuse_unknown
from .functions import FUNCTIONS, TileSize
from .grid import GRID
from .indexing import mgrid
from .reductions import REDUCTIONS
from .tiles import OlderTensor, compute

_PARAMETER = inspect.Parameter
_COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
_LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
_POSITIONAL_DTYPE = frozenset({"mod", "fmod"})


def _function(operator: Operator) -> Callable[..., OlderTensor]:
    """Return an operator as a function of tiles, which is also what instructions take as `op`."""
    default = bool if operator.name in _COMPARISONS | _LOGICAL else None
    names = ("x", "y")[: operator.arity]
    kind = _PARAMETER.POSITIONAL_OR_KEYWORD if operator.name in _POSITIONAL_DTYPE else _PARAMETER.KEYWORD_ONLY
    signature = inspect.Signature(
        [
            *(_PARAMETER(name, _PARAMETER.POSITIONAL_OR_KEYWORD) for name in names),
            *(_PARAMETER(name, kind, default=value) for name, value in (("dtype", default), ("mask", None))),
            _PARAMETER("kwargs", _PARAMETER.VAR_KEYWORD),
        ]
    )

    def function(*operands: object, **options: object) -> OlderTensor:
        bound = signature.bind(*operands, **options)
        bound.apply_defaults()
        refuse_unknown(operator.name, bound.arguments["kwargs"])
        values = (bound.arguments[name] for name in names)
        return compute(operator, *values, dtype=bound.arguments["dtype"], mask=bound.arguments["mask"])

    function.__name__ = function.__qualname__ = operator.name
    function.__doc__ = f"Compute {operator.name}, element by element."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


_OWN = {
    **CREATION,
    **GRID,
    **REDUCTIONS,
    **FUNCTIONS,
    "bfp16": bfp16,
    "fp32": fp32,
    "mgrid": mgrid,
    "par_dim": ParDim,
    "tile_size": TileSize(),
}
_NAMES = {
    **{("bool_" if name == "bool" else name): row.name for name, row in FORMATS.items()},
    **{place.name: place for place in Buffer},
    **{name: _function(operator) for name, operator in OPERATORS.items()},
    **_OWN,
}
globals().update(_NAMES)
__all__ = sorted(_NAMES)
