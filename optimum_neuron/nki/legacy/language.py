"""`neuronxcc.nki.language`: dtypes, memories, tensors, loops, operators and functions that return tiles."""

from __future__ import annotations

from ..dtypes import FORMATS
from ..language import COMPARISONS
from ..memory import Buffer
from ..operators import OPERATORS, Operator
from . import grid as grid, reductions as reductions
from .blocks import ParDim
from .creation import bfp16, fp32
from .functions import TileSize
from .indexing import mgrid
from .published import LANGUAGE, published, signature_of
from .tiles import OlderTensor, compute

_POSITIONAL_DTYPE = frozenset({"mod", "fmod"})


def _publish(operator: Operator) -> None:
    """Make an operator a function of tiles, which is also what instructions take as `op`."""
    names = ("x", "y")[: operator.arity]
    default = "bool" if operator.name in COMPARISONS else "None"
    by_name = "" if operator.name in _POSITIONAL_DTYPE else "*"
    text = f"{' '.join(names)} {by_name} dtype={default} mask=None"
    signature = signature_of(text, {"bool": bool, "None": None})

    def function(*operands: object, **options: object) -> OlderTensor:
        bound = signature.bind(*operands, **options)
        bound.apply_defaults()
        values = (bound.arguments[name] for name in names)
        return compute(operator, *values, dtype=bound.arguments["dtype"], mask=bound.arguments["mask"])

    function.__doc__ = f"Compute {operator.name}, element by element."
    function.__signature__ = signature  # type: ignore[attr-defined]
    if operator.name not in LANGUAGE:
        published(LANGUAGE, operator.name)(function)


for _operator in OPERATORS.values():
    _publish(_operator)
_NAMES = {
    **{("bool_" if name == "bool" else name): row.name for name, row in FORMATS.items()},
    **{place.name: place for place in Buffer},
    **LANGUAGE,
    **{"bfp16": bfp16, "fp32": fp32, "mgrid": mgrid, "par_dim": ParDim, "tile_size": TileSize()},
}
globals().update(_NAMES)
__all__ = sorted(_NAMES)
