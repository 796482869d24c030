"""`neuronxcc.nki.typing`: annotations of tensors in kernels, `tensor[128, 512]`, and scalars of the device."""

from __future__ import annotations

from typing import Any

from .tiles import IndexedTile, OlderTensor, resolved


class _Annotation(type):
    """Makes `tensor[128, 512]` an annotation; Python does not check it, and neither do kernels here."""

    def __getitem__(cls, shape: object) -> type:
        return cls

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, OlderTensor | IndexedTile)


class tensor(metaclass=_Annotation):  # noqa: N801 - the vendor's name
    """A tensor of a kernel."""


class mutable_tensor(tensor):  # noqa: N801 - the vendor's name
    """A parameter that the kernel may write."""


def scalar(value: object) -> Any:
    """Return a number, or the only element of a tile as a number that only the device knows."""
    from ..instructions import VirtualRegister

    tile = resolved(value)
    return VirtualRegister(tile.scalar()) if isinstance(tile, OlderTensor) else tile


__all__ = ["mutable_tensor", "scalar", "tensor"]
