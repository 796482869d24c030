"""Who may import `torch_xla`: users that ask for it, and no library that only looks whether it is there.

transformers, accelerate, and others train on XLA as soon as `torch_xla` can be imported, and then no longer see the
device "neuron". So no folder of that name is on the path: this module, which Python imports at its start, answers.

| asked by | answer |
| --- | --- |
| anyone, with OPTIMUM_NEURON_XLA=1 or PJRT_DEVICE=NEURON | yes |
| anyone, with OPTIMUM_NEURON_XLA=0 | no |
| a file outside of site-packages, such as a training script | yes |
| a package for Neuron in site-packages, such as neuronx_distributed | yes |
| another package in site-packages | no, until one of the above has imported it |

A real torch_xla is found first, so it is never hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

PACKAGE = "torch_xla"
_MACHINERY = ("importlib", "pkgutil", "runpy")
"""Modules that import on behalf of another."""


class Finder:
    """Finds `torch_xla` for those who may import it."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where `torch_xla` comes from.

        Raises:
            ModuleNotFoundError: a library that may not have it imports it.
        """
        if name != PACKAGE:
            return None
        from ._opt_in import agree, allowed, reason, served

        frame, looks_only = _asking(sys._getframe(1))
        if not allowed(frame):
            if looks_only:
                return None
            raise ModuleNotFoundError(reason(), name=PACKAGE)
        if not looks_only:
            agree()
        return served()


def _asking(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The frame that asks for a module, and whether it calls `importlib.util.find_spec` rather than imports."""
    looks_only = False
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _MACHINERY:
        looks_only = looks_only or frame.f_globals["__name__"] == "importlib.util"
        frame = frame.f_back
    return frame, looks_only


if Finder not in sys.meta_path:
    sys.meta_path.append(Finder)
