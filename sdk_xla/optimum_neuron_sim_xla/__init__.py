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

A real torch_xla is found first, so it is never hidden. Libraries that ask for the version of the installed `torch_xla`,
as transformers 4 does, get one where all may import it, or where it was imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

PACKAGE = "torch_xla"


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
        from ._opt_in import found

        return found(PACKAGE, sys._getframe(1))

    @classmethod
    def find_distributions(cls, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """Return the distribution `torch_xla`, if it is asked for by name and may be seen."""
        if (context.name or "").replace("-", "_").lower() != PACKAGE:
            return []
        from ._distribution import distributions

        return distributions()


if Finder not in sys.meta_path:
    sys.meta_path.append(Finder)
