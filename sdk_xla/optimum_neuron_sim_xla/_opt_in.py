"""The answer to who may import `torch_xla`; see the package for the rules."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FrameType

from optimum_neuron.base import doors, env
from optimum_neuron.base.opt_in import asking, may_import

from ._names import NAMES


def found(package: str, frame: FrameType | None) -> ModuleSpec | None:
    """Return where the package comes from, for the code of a frame; None if code that only looks may not have it."""
    frame, looks_only = asking(frame)
    if not may_import(frame, chosen=env.xla()):
        if looks_only:
            return None
        raise ModuleNotFoundError(reason(), name=package)
    if not looks_only:
        agree()
    doors.serve(NAMES)
    return doors.spec_of(package)


def reason() -> str:
    """Return why an import fails."""
    if env.xla() is False:
        return "torch_xla cannot be imported, because OPTIMUM_NEURON_XLA=0. Unset it, or set it to 1."
    return (
        "torch_xla is not offered to libraries, because they would train on XLA instead of on the device 'neuron'. "
        "Set OPTIMUM_NEURON_XLA=1, or import torch_xla in your script before them."
    )


def agree() -> None:
    """Let transformers and accelerate agree on whether there is XLA: each keeps its first answer."""
    if env.xla():
        return
    has_answer = "accelerate" in sys.modules
    name = "transformers.utils.import_utils"
    transformers = importlib.import_module(name) if has_answer and find_spec("transformers") else sys.modules.get(name)
    if transformers is not None:
        transformers.is_torch_xla_available.cache_clear()
    if not has_answer:
        return
    for options in ({}, {"check_is_tpu": True}, {"check_is_gpu": True}) if transformers is not None else ():
        transformers.is_torch_xla_available(**options)
    warnings.warn(
        "torch_xla was imported after accelerate, so `Accelerator` and `Trainer` do not train on XLA. To train on it, "
        "import torch_xla before accelerate and transformers, or set OPTIMUM_NEURON_XLA=1.",
        stacklevel=3,
    )
