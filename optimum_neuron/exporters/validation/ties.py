"""Near-ties of routers: experts between which rounding chooses, so that a compiled mixture may choose the others.

A mixture in a narrow dtype may send a token to other experts than the reference in float32 does, where the value of the
last expert that is chosen and that of the first one that is not differ by less than twice what rounding to the dtype
changes the values of this router. No other choice may differ. So the reference model makes some of these choices the
other way, and the results must be its results then, to the same tolerances.

    found = other_choices(scenario.reference, reference, torch.bfloat16, error_of, is_enough)

It finds choices in calls of `topk`, which all routers make, and knows no architecture.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ...base.transformers_types import PreTrainedModel
from ...kinds import computing_in

if TYPE_CHECKING:
    from ...kinds import Results

Place = tuple[int, int]
"""Number of a call of `topk`, and a row of its values."""

MOST_TRIES = 96
"""Runs of the reference model that look for other choices."""
LARGEST_MARGIN = 2.0
"""Largest difference of two values between which rounding may choose, over the largest that rounding changes one."""
_LEAST_GAIN = 0.9
"""A choice is kept where so much of the difference is left at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherChoices:
    """Results of the reference model that makes nearly tied choices the other way."""

    results: Results
    """In float32."""
    rounded: Results
    """With the same choices, in the narrow dtype."""
    margins: tuple[float, ...]
    """Of each choice: the difference of its two values over the largest that rounding changes values of the router."""


class _Choices(TorchFunctionMode):
    """Records what `topk` chooses from, and makes the last choice of the given rows the other way."""

    def __init__(self, *, swapped: Collection[Place] = (), followed: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self._rows: dict[int, list[int]] = {}
        for call, row in swapped:
            self._rows.setdefault(call, []).append(row)
        self._followed = followed
        self.values: list[torch.Tensor] = []
        """Of each call, [rows, places]."""
        self.indices: list[torch.Tensor] = []
        """What each call has returned."""

    def __torch_function__(
        self,
        function: Any,
        types: Sequence[type],
        arguments: tuple[Any, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:
        options = options or {}
        if function not in (torch.topk, torch.Tensor.topk):
            return function(*arguments, **options)
        values, k, *rest = (*arguments, options["k"]) if "k" in options else arguments
        call = len(self.values)
        result = function(*arguments, **options)
        is_last = (rest[0] if rest else options.get("dim", -1)) in (-1, values.ndim - 1)
        if not is_last or not values.is_floating_point() or k >= values.shape[-1] or not options.get("largest", True):
            return result
        flat = values.detach().reshape(-1, values.shape[-1])
        indices = self._followed[call] if self._followed else flat.topk(k + 1).indices[:, :k]
        if rows := self._rows.get(call):
            indices = indices.clone()
            indices[rows, -1] = flat[rows].topk(k + 1).indices[:, -1]
        self.values.append(flat.float())
        self.indices.append(indices)
        if not rows and not self._followed:
            return result
        chosen = indices.reshape(result.indices.shape)
        return torch.return_types.topk((values.gather(-1, chosen), chosen))

    def margins(self) -> Iterator[tuple[Place, float]]:
        """Every choice, with the difference between its last value and the first that is left out."""
        for call, (values, indices) in enumerate(zip(self.values, self.indices, strict=True)):
            best = values.topk(indices.shape[-1] + 1).values
            for row, margin in enumerate((best[:, -2] - best[:, -1]).tolist()):
                yield (call, row), margin


def other_choices(
    run: Callable[[], Results],
    reference: PreTrainedModel,
    dtype: torch.dtype,
    noise_of: Callable[[Results], float],
    is_enough: Callable[[OtherChoices], bool],
) -> OtherChoices | None:
    """Return results of the reference model with other experts that are near enough, or None if there are none.

    Args:
        noise_of: returns how far the compiled model's results are from others.
    """
    first, results = _chosen(run)
    if not first.values:
        return None
    with computing_in(reference, dtype):
        rounded, _ = _chosen(run, followed=first.indices)
    sizes = [
        (new - old).abs().nan_to_num(nan=0.0, posinf=0.0).max().item()  # values that are left out may be infinite
        for new, old in zip(rounded.values, first.values, strict=True)
    ]
    swapped: dict[Place, float] = {}
    refused: set[Place] = set()
    noise, notes = noise_of(results), first
    for _ in range(MOST_TRIES):
        near = {
            place: margin / max(sizes[place[0]], 1e-30)
            for place, margin in notes.margins()
            if place not in swapped and place not in refused and margin <= LARGEST_MARGIN * sizes[place[0]]
        }
        if not near:
            return None
        place = min(near, key=lambda place: near[place])
        tried, results = _chosen(run, swapped=[*swapped, place])
        if noise_of(results) > _LEAST_GAIN * noise:
            refused.add(place)
            continue
        swapped[place], noise, notes = near[place], noise_of(results), tried
        refused.clear()
        with computing_in(reference, dtype):
            _, own = _chosen(run, followed=tried.indices)
        found = OtherChoices(results=results, rounded=own, margins=tuple(swapped.values()))
        if is_enough(found):
            return found
    return None


def _chosen(run: Callable[[], Results], **options: Any) -> tuple[_Choices, Results]:
    with _Choices(**options) as choices:
        results = run()
    return choices, results


def power_of_difference(actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> float:
    """Return the power of the difference of results."""
    return math.fsum((actual[name].double() - value.double()).pow(2).sum().item() for name, value in expected.items())
