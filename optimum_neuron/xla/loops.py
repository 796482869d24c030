"""Loops of `torch_xla.experimental`, which PyTorch/XLA compiles once: here each round is recorded like other operators.

>>> scan(lambda total, x: (total + x, total), torch.zeros(()), torch.ones(3))
(tensor(3.), tensor([0., 1., 2.]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..errors import ConfigError
from ..upstream.torch import tree_leaves, tree_map


def assume_pure(fn: Callable[..., Any], *, add_rng_seed_argument: bool = False) -> Callable[..., Any]:
    """Return a function as it is: PyTorch/XLA traces it once for all calls.

    Args:
        fn: a function without side effects.
        add_rng_seed_argument: not supported.

    Raises:
        ConfigError: the function is to take a seed.
    """
    if add_rng_seed_argument:
        hint = "Seed the device with `xm.set_rng_state` in the function."
        raise ConfigError("add_rng_seed_argument is not supported.", hint=hint)
    return fn


def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: object,
    xs: object,
    partition_fn: Callable[..., Any] | None = None,
    is_fn_pure: bool = False,
) -> tuple[Any, Any]:
    """Call a function for each slice of tensors along dimension 0, with what it carries on.

    Args:
        fn: takes what is carried and a slice, and returns what is carried on and a result.
        init: what is carried at first; nested tensors.
        xs: nested tensors of one length.
        partition_fn: chooses activations to recompute in PyTorch/XLA; use `torch.utils.checkpoint` instead.
        is_fn_pure: whether PyTorch/XLA may trace it once.

    Returns:
        What is carried at the end, and the stacked results.

    Raises:
        ConfigError: `xs` has no tensors, or they have different lengths.
    """
    carry, results = init, []
    for number in range(_length(tree_leaves(xs))):
        carry, result = fn(carry, tree_map(lambda one, number=number: one[number], xs))
        results.append(result)
    return carry, tree_map(lambda *parts: torch.stack(parts), *results)


def scan_layers(
    layers: Iterable[torch.nn.Module],
    input_data: object,
    partition_fn: Callable[..., Any] | None = None,
    is_layer_pure: bool = False,
) -> Any:
    """Call layers one after the other.

    Args:
        layers: the layers.
        input_data: input of the first.
        partition_fn: as of `scan`.
        is_layer_pure: as `is_fn_pure` of `scan`.
    """
    for layer in layers:
        input_data = layer(input_data)
    return input_data


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    *carried_tensors: torch.Tensor,
) -> Any:
    """Add the gradients of the parts of a batch, of which each loss counts as much as the others.

    Args:
        train_step: takes a part of each tensor and the carried tensors; returns a loss, or a tuple of a loss and the
            carried tensors.
        iterable_tensors: tensors of one length, whose slices along dimension 0 are the parts.
        model: the model, whose parameters get the gradients.
        *carried_tensors: further arguments of the first part.

    Returns:
        The mean loss, and behind it the carried tensors if there are any.

    Raises:
        ConfigError: there are no tensors, or they have different lengths.
    """
    count = _length(iterable_tensors)
    total: Any = 0.0
    for number in range(count):
        found = train_step(*(one[number] for one in iterable_tensors), *carried_tensors)
        loss, *carried_tensors = found if isinstance(found, tuple) else (found,)  # type: ignore[assignment]
        loss = loss / count
        loss.backward()
        total = total + loss.detach()
    return (total, *carried_tensors) if carried_tensors else total


def _length(tensors: Sequence[torch.Tensor]) -> int:
    lengths = sorted({len(one) for one in tensors})
    if len(lengths) != 1:
        found = f"The tensors have the lengths {', '.join(map(str, lengths))} in dimension 0."
        message = found if lengths else "There are no tensors."
        raise ConfigError(message, hint="Pass tensors of one length.", lengths=lengths)
    return lengths[0]
