"""What a compiled model of one forward takes and returns, axis by axis: written into its NEFF, read by whoever runs it.

It is all that running needs beside the graphs: how an input is padded, and which part of a result is real.
"""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """One tensor that the model takes."""

    name: str
    """Name of the argument."""
    dtype: str
    """torch's name of what the graph takes."""
    axes: tuple[str, ...]
    """Axis of each dimension."""
    padding: int | float = 0
    """What shorter rows are filled up with."""
    default: int | None = None
    """What the whole tensor is filled with where it is not given; None: it must be given."""
    limit: int | None = None
    """Values are below this: rows of an embedding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputAxis:
    """A dimension of a result whose size follows an axis of the inputs."""

    dim: int
    """Which dimension."""
    axis: str
    """Which axis."""
    window: int = 1
    """Inputs that one element sees."""
    stride: int = 1
    """Inputs from one element to the next."""

    def size(self, length: int) -> int:
        """Elements that come of so many inputs."""
        return max((length - self.window) // self.stride + 1, 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """Inputs, results, and what may be padded."""

    inputs: tuple[Input, ...]
    """In the order of the graph."""
    outputs: dict[str, tuple[OutputAxis, ...]]
    """Results with the dimensions that are cut; "hidden_states.0" is an element of a tuple."""
    padded: dict[str, str]
    """Axes whose inputs may be shorter than a bucket, with what makes that right."""
    exact: dict[str, str]
    """Other axes whose size may be one of the buckets only, with the reason."""
    output_type: str
    """Full name of transformers' class of results."""
    smallest: dict[str, int] = dataclasses.field(default_factory=dict)
    """Axes of which an input needs more than one: fewer samples than a convolution sees make no frame."""
    ignored: tuple[str, ...] = ()
    """What the model's processor makes and the original drops too."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Signature:
        """Rebuild from plain data.

        Raises:
            KeyError, TypeError: it is something else.
        """
        inputs = tuple(Input(**{**row, "axes": tuple(row["axes"])}) for row in data["inputs"])
        outputs = {name: tuple(OutputAxis(**row) for row in rows) for name, rows in data["outputs"].items()}
        return cls(**{**data, "inputs": inputs, "outputs": outputs, "ignored": tuple(data["ignored"])})
