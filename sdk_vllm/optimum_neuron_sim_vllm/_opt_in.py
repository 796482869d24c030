"""The answer to who may import `vllm`; see the package for the rules."""

from __future__ import annotations

from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType

from optimum_neuron.base import doors, env
from optimum_neuron.base.opt_in import asking, may_import
from optimum_neuron.base.vendor import refuse_beside

from ._names import NAMES

PACKAGE, DISTRIBUTION = "vllm", "optimum-neuron-sim-vllm"


def refuse_real() -> None:
    """Refuse to work where the real vLLM is installed."""
    install = f"`pip install {DISTRIBUTION}`, or `pip install ./sdk_vllm` in a checkout"
    refuse_beside("vllm", PACKAGE, own=DISTRIBUTION, install=install)


def found(frame: FrameType | None) -> ModuleSpec | None:
    """Return where the package comes from, for the code of a frame; None leaves it to other finders."""
    frame, looks_only = asking(frame)
    is_allowed = may_import(frame, chosen=env.vllm())
    if is_allowed and not looks_only:
        refuse_real()
    if PathFinder.find_spec(PACKAGE) is not None:  # a folder of this name, or the real one for a library
        return None
    if is_allowed:
        doors.serve(NAMES)
        return doors.spec_of(PACKAGE)
    if looks_only:
        return None
    switched_off = "vllm cannot be imported, because OPTIMUM_NEURON_VLLM=0. Unset it, or set it to 1."
    hidden = "vllm is not offered to libraries, because they would change what they do. Set OPTIMUM_NEURON_VLLM=1."
    raise ModuleNotFoundError(switched_off if env.vllm() is False else hidden, name=PACKAGE)
