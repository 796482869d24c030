"""Scenarios: each is run through the engine and through the reference model, and all results are compared.

    errors = validate(scenarios, recorder, reference, tolerance=lambda largest: 1e-3)

A scenario calls the engine, which packs, pads, splits, and chooses buckets, so validation runs the code that users run.
It is an internal error if no scenario runs a graph.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...base.transformers_types import PreTrainedModel
from ...errors import ValidationError
from ...kinds import Recorder, Results, Scenario, computing_in, is_reachable
from .divergence import first_diverging
from .statistics import OutputError, allow_chaos, allow_rounding, compare

if TYPE_CHECKING:
    import torch


def validate(
    scenarios: Iterable[Scenario],
    recorder: Recorder,
    reference: PreTrainedModel,
    *,
    tolerance: Callable[[float], float],
    dtype: torch.dtype | None = None,
    is_chaotic: bool = False,
) -> list[OutputError]:
    """Run scenarios through both models and return the comparison of every result.

    Args:
        recorder: the compiled program, which the scenarios call.
        reference: the transformers model, for naming the module that differs.
        tolerance: largest absolute difference that passes, for the largest value of expected results of one width.
        dtype: a narrow dtype of the weights; a result that does not pass is then compared with the reference in it too.
        is_chaotic: layers round to few numbers, so that tiny errors grow to those of rounding itself, by chance in one
            token and not in another; results are then compared all together with the reference in the narrow dtype.
    """
    errors: list[OutputError] = []
    rounded: list[OutputError] = []
    powers: list[float] = []
    origins: list[Scenario] = []
    for scenario in scenarios:
        recorder.calls.clear()  # their inputs would be held until the end
        actual, expected = scenario.run(), scenario.reference()
        assert list(actual) == list(expected), f"{scenario.name}: {list(actual)} against {list(expected)}"
        own = _compared(scenario.name, actual, expected, tolerance)
        if dtype is not None and (is_chaotic or not all(error.ok for error in own)):
            with computing_in(reference, dtype):
                others = _compared(scenario.name, scenario.reference(), expected, lambda largest: 0.0)
            rounded += others
            powers += [value.double().pow(2).sum().item() for value in expected.values()]
            if not is_chaotic:
                own = _allowed(own, others)
            if not is_chaotic and not all(error.ok for error in own):
                own = _with_other_experts(scenario, actual, reference, dtype, tolerance) or own
        errors += own
        origins += [scenario] * len(own)
    program = recorder.program
    graphs = {graph.name for graph in program.graphs.values() if is_reachable(program, graph)}
    assert graphs <= recorder.graphs, f"no scenario runs {sorted(graphs - recorder.graphs)}"
    if is_chaotic and dtype is not None:
        errors = allow_chaos(errors, rounded, powers)
    if failed := [origin for error, origin in zip(errors, origins, strict=True) if not error.ok]:
        raise _validation_error(errors, failed[0], first_diverging(failed[0], recorder, reference))
    return errors


def _allowed(errors: Sequence[OutputError], rounded: Sequence[OutputError]) -> list[OutputError]:
    return [error if error.ok else allow_rounding(error, other) for error, other in zip(errors, rounded, strict=True)]


def _with_other_experts(
    scenario: Scenario,
    actual: Results,
    reference: PreTrainedModel,
    dtype: torch.dtype,
    tolerance: Callable[[float], float],
) -> list[OutputError] | None:
    """Differences from the reference model that makes nearly tied choices the other way; None if they do not pass."""
    from .ties import OtherChoices, other_choices, power_of_difference

    def differences(found: OtherChoices) -> list[OutputError]:
        own = _compared(scenario.name, actual, found.results, tolerance)
        return _allowed(own, _compared(scenario.name, found.rounded, found.results, lambda largest: 0.0))

    found = other_choices(
        scenario.reference,
        reference,
        dtype,
        functools.partial(power_of_difference, actual),
        lambda found: all(error.ok for error in differences(found)),
    )
    if found is None:
        return None
    num_ties, margin = len(found.margins), max(found.margins)
    return [dataclasses.replace(error, ties=num_ties, tie_margin=margin) for error in differences(found)]


def _compared(
    scenario: str, actual: Results, expected: Results, tolerance: Callable[[float], float]
) -> list[OutputError]:
    for name, value in expected.items():
        if actual[name].shape != value.shape:
            shapes = [list(actual[name].shape), list(value.shape)]
            message = f"{scenario}: {name} has shape {shapes[0]}, and that of the reference model {shapes[1]}."
            hint = "Report it; --disable-validation skips the comparison."
            raise ValidationError(message, hint=hint, scenario=scenario, output=name, shapes=shapes)
    return [
        compare(
            f"{scenario}: {name}",
            actual[name].float(),
            value.float(),
            tolerance=tolerance(
                max(other.float().abs().max().item() for other in expected.values() if _is_akin(value, other))
            ),
        )
        for name, value in expected.items()
    ]


def _is_akin(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether both are logits, or both hidden states, as their widths say."""
    return tensor.shape[-1:] == other.shape[-1:]


def _validation_error(errors: Sequence[OutputError], scenario: Scenario, place: str) -> ValidationError:
    rows = [
        f"  {e.output}: max {e.max_abs_error:.3g}, mean {e.mean_abs_error:.3g}, SQNR {e.sqnr_db:.1f} dB, "
        f"top-1 {e.top1_agreement:.1%}, tolerance {e.tolerance:.3g}"
        for e in errors
        if not e.ok
    ]
    message = (
        f"The compiled model differs from the reference model in float32: {len(rows)} of {len(errors)} results are "
        f"past their tolerance, first in {scenario.name}; {place}."
    )
    hint = "Pass a larger --atol if this precision is enough, or --disable-validation to skip the comparison."
    if any(math.isnan(error.max_abs_error) for error in errors):
        hint = "Check the weights of the checkpoint for NaN, which no tolerance accepts."
    details = {"validation": [error.to_dict() for error in errors], "scenario": scenario.name, "place": place}
    return ValidationError("\n".join([message, *rows]), hint=hint, **details)
