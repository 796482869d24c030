"""Where a loss or a gradient stopped being finite: the module, by running the batch once more and looking.

It costs nothing while numbers are finite. It knows nothing of trainers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..errors import NumericsError
from ..labels import IGNORED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Culprit:
    """The first module whose result is not finite."""

    name: str
    """Path in the model; empty for the model itself."""
    kind: str
    """Name of the module's class."""
    dtype: str
    """Dtype of the result."""
    inputs_finite: bool
    """Whether its inputs are finite."""

    def __str__(self) -> str:
        inputs = "finite" if self.inputs_finite else "not finite either"
        return f"{self.name or 'the model'} ({self.kind}, {self.dtype}; its inputs are {inputs})"


def is_finite(value: Any) -> bool:
    """Whether all floating-point tensors in a structure are finite."""
    return all(
        bool(torch.isfinite(leaf).all())
        for leaf in tree_leaves(value)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    )


def find_culprit(model: torch.nn.Module, forward: Callable[[], object]) -> Culprit | None:
    """Return the first module whose result in a forward pass is not finite; an error ends the search."""
    culprits: list[Culprit] = []

    def watch(name: str) -> Callable[..., None]:
        def look(module: torch.nn.Module, args: Any, keywords: Any, result: Any) -> None:
            if culprits or is_finite(result):
                return
            floats = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            culprits.append(
                Culprit(
                    name=name,
                    kind=type(module).__name__,
                    dtype=str(floats[0].dtype).removeprefix("torch.") if floats else "no tensor",
                    inputs_finite=is_finite((args, keywords)),
                )
            )

        return look

    handles = [module.register_forward_hook(watch(name), with_kwargs=True) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return culprits[0] if culprits else None


def _local(result: Any) -> Any:
    return result


def loss_error(
    model: torch.nn.Module,
    forward: Callable[[], object],
    *,
    step: int,
    labels: Any,
    first: Callable[[Any], Any] = _local,
) -> NumericsError:
    """Return the error for a loss that is not finite.

    Args:
        model: the model, not compiled.
        forward: computes the loss once more.
        step: number of the training step.
        labels: of the batch, or None.
        first: returns the first result of the processes of a batch that is not empty; default: this process's.
    """
    if isinstance(labels, torch.Tensor) and not labels.is_floating_point() and not bool((labels != IGNORED).any()):
        problem, hint = f"every label of the batch is {IGNORED}", "Remove such examples: they have no loss."
    else:
        weights = first([name for name, parameter in model.named_parameters() if not is_finite(parameter)])
        culprit = first(find_culprit(model, forward))
        problem = f"first in {culprit}" if culprit is not None else "although every module's result is"
        hint = "Lower the learning rate, pass max_grad_norm, or use a wider dtype."
        if weights:
            problem = f"the weights are not finite before the step, first {weights[0]}; {problem}"
    return NumericsError(f"The loss of training step {step} is not finite: {problem}.", hint=hint, step=step)


def gradient_error(
    model: torch.nn.Module, backward: Callable[[], object], *, step: int, first: Callable[[Any], Any] = _local
) -> NumericsError:
    """Return the error for gradients that are not finite; `backward` computes those of the step once more."""
    names = first(_first_gradients(model, backward))
    problem = f"first in {names[0]}, then in {len(names) - 1} others" if names else "their norm overflows"
    message = f"The gradients of training step {step} are not finite: {problem}."
    hint = "Lower the learning rate, or compute that module in a wider dtype."
    return NumericsError(message, hint=hint, step=step, parameters=names)


def _first_gradients(model: torch.nn.Module, backward: Callable[[], object]) -> list[str]:
    """Return the parameters with gradients that are not finite, in the order of the backward pass."""
    names: list[str] = []

    def watch(name: str) -> Callable[[torch.Tensor], None]:
        def look(parameter: torch.Tensor) -> None:
            if name not in names and not is_finite(parameter.grad):
                names.append(name)

        return look

    model.zero_grad()
    handles = [
        parameter.register_post_accumulate_grad_hook(watch(name))
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    try:
        backward()
    finally:
        for handle in handles:
            handle.remove()
    return names
