"""Where a loss or a gradient stopped being finite: the module, by running the batch once more and looking.

It costs nothing while numbers are finite. It knows nothing of trainers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..errors import NumericsError, refusal
from ..labels import IGNORED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Culprit:
    """The first module whose result is not finite."""

    name: str
    """Path in the model; empty for the model itself."""
    kind: str
    """Class."""
    dtype: str
    """Of the result."""
    inputs_finite: bool
    """Whether what it was given still was finite."""

    def __str__(self) -> str:
        given = "finite" if self.inputs_finite else "not finite either"
        return f"{self.name or 'the model'} ({self.kind}, {self.dtype}; its inputs are {given})"


def is_finite(value: Any) -> bool:
    """Whether all floating-point tensors in a structure are finite."""
    return all(
        bool(torch.isfinite(leaf).all())
        for leaf in tree_leaves(value)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    )


def find_culprit(model: torch.nn.Module, forward: Callable[[], object]) -> Culprit | None:
    """Run a forward pass and return the first module with a result that is not finite.

    Args:
        model: whose modules are watched.
        forward: runs it; an error ends the search.
    """
    found: list[Culprit] = []

    def watch(name: str) -> Callable[..., None]:
        def look(module: torch.nn.Module, args: Any, keywords: Any, result: Any) -> None:
            if found or is_finite(result):
                return
            floats = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            found.append(
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
    return found[0] if found else None


def _own(found: Any) -> Any:
    return found


def loss_error(
    model: torch.nn.Module,
    forward: Callable[[], object],
    *,
    step: int,
    labels: Any,
    first: Callable[[Any], Any] = _own,
) -> NumericsError:
    """The error for a loss that is not finite.

    Args:
        model: the model, not compiled.
        forward: computes the loss once more.
        step: number of the training step.
        labels: of the batch, if it has some.
        first: of what the processes of a batch found, the first that is something; as it is where there is one.
    """
    if isinstance(labels, torch.Tensor) and not labels.is_floating_point() and not bool((labels != IGNORED).any()):
        found, do = f"every label of the batch is {IGNORED}", "leave such examples out: a loss has nothing to average"
    else:
        weights = first([name for name, parameter in model.named_parameters() if not is_finite(parameter)])
        culprit = first(find_culprit(model, forward))
        found = f"first in {culprit}" if culprit is not None else "only the loss is not, every module's result is"
        do = "lower the learning rate, pass max_grad_norm, or compute in a wider dtype"
        if weights:
            found = f"the weights are not finite before the step, first {weights[0]}; {found}"
    return NumericsError(
        refusal(
            asked=f"the loss of training step {step}",
            found=f"not a finite number: {found}",
            why="training on would write NaN into every weight",
            do=do,
        ),
        details={"step": step},
    )


def gradient_error(
    model: torch.nn.Module, backward: Callable[[], object], *, step: int, first: Callable[[Any], Any] = _own
) -> NumericsError:
    """The error for gradients that are not finite although the loss was.

    Args:
        model: the model, not compiled.
        backward: computes the gradients of the step once more; clipping has spread the first of them over all.
        step: number of the training step.
        first: as in `loss_error`.
    """
    names = first(_first_gradients(model, backward))
    found = f"first in {names[0]}, then in {len(names) - 1} others" if names else "their norm overflows"
    return NumericsError(
        refusal(
            asked=f"the gradients of training step {step}",
            found=f"not finite: {found}",
            why="the optimizer would write NaN into the weights",
            do="lower the learning rate, or compute that module in a wider dtype",
        ),
        details={"step": step, "parameters": names},
    )


def _first_gradients(model: torch.nn.Module, backward: Callable[[], object]) -> list[str]:
    """Parameters with gradients that are not finite, in the order of the backward pass."""
    found: dict[str, None] = {}

    def watch(name: str) -> Callable[[torch.Tensor], None]:
        def look(parameter: torch.Tensor) -> None:
            if not is_finite(parameter.grad):
                found[name] = None

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
    return list(found)
