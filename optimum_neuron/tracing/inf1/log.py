"""What `torch.neuron.trace` and `analyze_model` tell: counts of operators and segments, on the logger "Neuron"."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from ...compiler import NeuronCcFlags
from ...errors import NeuronError
from ...hardware import WEIGHTS_OF_PIPELINE_CORE, pipeline_cores_of
from .graph import Operation
from .parts import Part
from .segments import Plan

LOGGER = logging.getLogger("Neuron")


def share_text(part: int, whole: int) -> str:
    """Return a share as "96.99%"."""
    return f"{100 * part / whole if whole else 100:.2f}%"


def kinds_text(operations: Iterable[Operation]) -> str:
    """Return the kinds of operations as "aten::sort, aten::embedding"."""
    return ", ".join(dict.fromkeys(one.kind for one in operations))


def unsupported_text(operations: Sequence[Operation]) -> str:
    """Return the sentence about operators that stop a trace without fallback."""
    return f"fallback=False, but NeuronCore-v1 does not run {kinds_text(operations)}."


def before_compile(plan: Plan) -> None:
    """Tell what the core lacks, and how much of the model goes to it."""
    missing = [one for one in plan.arithmetic if one not in plan.supported]
    if missing:
        kinds = dict.fromkeys(one.kind for one in missing)
        LOGGER.info("%d operators of %d types run on the CPU: %s", len(missing), len(kinds), ", ".join(kinds))
    else:
        LOGGER.info("The core has every operator of the model (compiling it may still fail)")
    fused = sum(map(len, plan.segments))
    total = len(plan.arithmetic)
    LOGGER.info(
        "Number of arithmetic operators (pre-compilation) before = %d, fused = %d, percent fused = %s",
        *(total, fused, share_text(fused, total)),
    )


def segment_starts(number: int, part: Part, flags: NeuronCcFlags, num_stages: int) -> None:
    """Tell that a segment is compiled."""
    words = " ".join(flags.words)
    LOGGER.info("Segment %d: %d operations, compiled by neuron-cc %s", number, len(part.operations), words)
    if num_stages < flags.pipeline_cores:
        LOGGER.warning(
            "Segment %d has too few operators for %d cores of a pipeline, and takes %d.",
            *(number, flags.pipeline_cores, num_stages),
        )
    if num_stages == 1:
        return
    weights = {value: value.weight for one in part.operations for value in one.inputs if value.weight is not None}
    num_weights = sum(weight.numel() for weight in weights.values())
    LOGGER.info("Segment %d runs on %d cores as a pipeline", number, num_stages)
    if num_weights > num_stages * WEIGHTS_OF_PIPELINE_CORE:
        LOGGER.warning(
            "Segment %d has %.1f million weights, and %d cores keep %.0f million: the others are read from DRAM in "
            "every run. The documented number is --neuroncore-pipeline-cores %d.",
            *(number, num_weights / 1e6, num_stages, num_stages * WEIGHTS_OF_PIPELINE_CORE / 1e6),
            pipeline_cores_of(num_weights),
        )


def segment_failed(number: int, error: NeuronError) -> None:
    """Tell that a segment runs on the CPU after all."""
    LOGGER.warning("Segment %d cannot be compiled and runs on the CPU: %s", number, error)


def after_compile(plan: Plan) -> None:
    """Tell what was compiled, by operator."""
    compiled = [one for one in plan.arithmetic if plan.on_core(one)]
    rest = [one for one in plan.arithmetic if not plan.on_core(one)]
    total, done, num_segments = len(plan.arithmetic), len(compiled), len(plan.segments)
    LOGGER.info(
        "Number of arithmetic operators (post-compilation) before = %d, compiled = %d, percent compiled = %s",
        *(total, done, share_text(done, total)),
    )
    LOGGER.info("The model has %d segments on cores", num_segments)
    LOGGER.info("Compiled operators, with counts:")
    for kind, count in _sorted_counts(compiled):
        LOGGER.info(" => %s: %d", kind, count)
    if rest:
        LOGGER.info("Operators on the CPU, with counts:")
    for kind, count in _sorted_counts(rest):
        is_supported = any(one.kind == kind and one in plan.supported for one in rest)
        LOGGER.info(" => %s: %d [%s]", kind, count, "supported" if is_supported else "not supported")
    if 2 * done < total:
        LOGGER.warning(
            "torch.neuron.trace compiled %s of the operators; the rest runs on the CPU", share_text(done, total)
        )
        LOGGER.warning("Operators that the core lacks, and many small segments, make a model slow on Inf1")


def _sorted_counts(operations: Iterable[Operation]) -> list[tuple[str, int]]:
    return sorted(collections.Counter(one.kind for one in operations).items())


def analysis(plan: Plan) -> dict[str, Any]:
    """Tell which operators of a model the core has, without compiling; return it too."""
    kinds = collections.Counter(one.kind for one in plan.program.operations)
    missing = {one.kind for one in plan.arithmetic if one not in plan.supported}
    supported = sorted(set(kinds) - missing)
    LOGGER.info("Operators of this model that NeuronCore-v1 has:")
    for kind in supported:
        LOGGER.info("%s", kind)
    if missing:
        LOGGER.info("Operators of this model that NeuronCore-v1 lacks:")
    for kind in sorted(missing):
        LOGGER.info("%s", kind)
    every, all_missing = len(plan.program.operations), sum(one.kind in missing for one in plan.program.operations)
    total, good = len(plan.arithmetic), len(plan.supported)
    LOGGER.info(
        "%s of all operations (including primitives) (%d of %d) are supported",
        *(share_text(every - all_missing, every), every - all_missing, every),
    )
    LOGGER.info("%s of arithmetic operations (%d of %d) are supported", share_text(good, total), good, total)
    return {
        "supported_operators": {kind: kinds[kind] for kind in supported},
        "unsupported_operators": {kind: kinds[kind] for kind in sorted(missing)},
        "num_operations": every,
        "num_arithmetic": total,
        "num_supported_arithmetic": good,
    }
