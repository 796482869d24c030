"""Finds the module where a loss or a gradient stopped being finite, by running the batch once more.

It costs nothing while numbers are finite. It does not depend on trainers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from ..base.labels import IGNORED
from ..base.transformers_types import TrainingArguments
from ..errors import NumericsError
from ..upstream.torch import tree_leaves


def is_finite(value: object) -> bool:
    """Return whether all floating-point tensors in a structure are finite."""
    return all(
        bool(torch.isfinite(leaf).all())
        for leaf in tree_leaves(value)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    )


def find_culprit(model: torch.nn.Module, forward: Callable[[], object]) -> str | None:
    """Describe the first module whose result in a forward pass is not finite; an error ends the search."""
    culprits: list[str] = []

    def look(name: str, module: torch.nn.Module, args: TrainingArguments, keywords: object, result: object) -> None:
        if culprits or is_finite(result):
            return
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else "no tensor"
        inputs = "finite" if is_finite((args, keywords)) else "not finite either"
        culprits.append(f"{name or 'the model'} ({type(module).__name__}, {dtype}; its inputs are {inputs})")

    with contextlib.ExitStack() as hooks, torch.no_grad():
        for name, module in model.named_modules():
            hooks.enter_context(module.register_forward_hook(functools.partial(look, name), with_kwargs=True))
        forward()
    return culprits[0] if culprits else None


def loss_error(
    model: torch.nn.Module,
    forward: Callable[[], object],
    *,
    step: int,
    labels: torch.Tensor,
    first: Callable[[Any], Any],
) -> NumericsError:
    """Return the error for a loss that is not finite.

    Args:
        labels: of the batch, or None.
        first: returns the first result of the processes of a batch that is not empty.
    """
    details: dict[str, Any] = {"step": step}
    if isinstance(labels, torch.Tensor) and not labels.is_floating_point() and not bool((labels != IGNORED).any()):
        problem, hint = f"every label of the batch is {IGNORED}", "Remove such examples: they have no loss."
        details["labels"] = IGNORED
    else:
        weights = first([name for name, parameter in model.named_parameters() if not is_finite(parameter)])
        culprit = first(find_culprit(model, forward))
        problem = f"first in {culprit}" if culprit is not None else "although every module's result is"
        hint = "Lower the learning rate, pass max_grad_norm, or use a wider dtype."
        if weights:
            problem = f"the weights are not finite before the step, first {weights[0]}; {problem}"
        details |= {"module": culprit, "weights": weights}
    return NumericsError(f"The loss of training step {step} is not finite: {problem}.", hint=hint, **details)


def gradient_error(
    model: torch.nn.Module, backward: Callable[[], object], *, step: int, first: Callable[[Any], Any]
) -> NumericsError:
    """Return the error for gradients that are not finite; `backward` computes the gradients of the step once more."""
    names = first(_first_gradients(model, backward))
    problem = f"first in {names[0]}, then in {len(names) - 1} others" if names else "their norm overflows"
    message = f"The gradients of training step {step} are not finite: {problem}."
    hint = "Lower the learning rate, or compute that module in a wider dtype."
    return NumericsError(message, hint=hint, step=step, parameters=names)


def _first_gradients(model: torch.nn.Module, backward: Callable[[], object]) -> list[str]:
    """Return the parameters with gradients that are not finite, in the order of the backward pass."""
    names: list[str] = []

    def look(name: str, parameter: torch.Tensor) -> None:
        if name not in names and not is_finite(parameter.grad):
            names.append(name)

    model.zero_grad()
    with contextlib.ExitStack() as hooks:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                watch = functools.partial(look, name)
                hooks.enter_context(parameter.register_post_accumulate_grad_hook(watch))
        backward()
    return names
