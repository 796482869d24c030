"""Who may import `vllm`: scripts, and no library that only looks whether it is there.

TRL, lm-eval, and others change what they do as soon as `vllm` can be imported. So no folder of that name is on the
path: this module, which Python imports at its start, answers.

| asked by | answer |
| --- | --- |
| anyone, with OPTIMUM_NEURON_VLLM=1 | yes |
| anyone, with OPTIMUM_NEURON_VLLM=0 | no |
| a file outside of site-packages, such as a script, and `python -m vllm...` | yes |
| a package for Neuron in site-packages | yes |
| another package in site-packages | no, until one of the above has imported it |
| anyone, where the real vLLM is installed | no: a script gets an error that says which to uninstall |
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "vllm"


class Finder:
    """Finds `vllm` for those who may import it."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where `vllm` comes from.

        Raises:
            ModuleNotFoundError: a library that may not have it imports it.
            ImportError: the real vLLM is installed too.
        """
        if name != PACKAGE:
            return None
        from ._opt_in import found

        return found(sys._getframe(1))


if Finder not in sys.meta_path:
    sys.meta_path.insert(0, Finder)
