"""The safety checker of a pipeline: it stays on the host, as the stock model with its weights.

Its code reads scores as Python numbers, one picture after another, so that no graph can hold it. Every call of a
compiled pipeline runs it; the pictures that an export compares are not checked.

    cast_checker(pipe, "bfloat16")
    describe_checker(pipe)      # {"safety_checker": {"value": "host", "reason": ...}}
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...base.core import Choice
from ...base.foreign import pipeline_facts

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

SAFETY_CHECKER = "safety_checker"


def compiled_models(pipe: DiffusionPipeline) -> dict[str, nn.Module]:
    """Return the models of a pipeline that programs carry out, by their names in it: all but the safety checker."""
    parts = pipe.components.items()
    return {name: part for name, part in parts if isinstance(part, nn.Module) and name != SAFETY_CHECKER}


def cast_checker(pipe: DiffusionPipeline, dtype: str) -> None:
    """Let a pipeline have its safety checker in the dtype of its models, as its input has; a given one is copied."""
    checker, wanted = pipeline_facts(pipe).safety_checker, getattr(torch, dtype)
    if checker is not None and checker.dtype != wanted:
        setattr(pipe, SAFETY_CHECKER, copy.deepcopy(checker).to(wanted))


@contextlib.contextmanager
def unchecked(pipe: DiffusionPipeline) -> Iterator[None]:
    """Let a pipeline return its pictures as they are for a while: a black one would equal any other black one."""
    own = vars(pipe).get(SAFETY_CHECKER)
    if own is None:
        yield
        return
    try:
        # A pipeline forgets the class of a part that is set to None, and would save its index without it.
        vars(pipe)[SAFETY_CHECKER] = None
        yield
    finally:
        vars(pipe)[SAFETY_CHECKER] = own


def describe_checker(pipe: DiffusionPipeline) -> dict[str, Any]:
    """Return whether a pipeline checks its pictures, as plain data; nothing where its class has no checker."""
    if SAFETY_CHECKER not in pipe.components:
        return {}
    checker = getattr(pipe, SAFETY_CHECKER)
    if checker is None:
        choice = Choice(value="none", reason="the pipeline has no safety checker, so pictures are not checked")
    else:
        dtype = str(checker.dtype).removeprefix("torch.")
        reason = f"the Python code of {type(checker).__name__} cannot be compiled; it runs in {dtype} after each call"
        choice = Choice(value="host", reason=reason)
    return {SAFETY_CHECKER: choice.to_dict()}
