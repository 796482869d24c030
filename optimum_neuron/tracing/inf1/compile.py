"""Compile the segments of a model: capture all of them, check that the chip has memory for them, write and load them.

Nothing is written or loaded before every segment is known. It does not know how a model is divided or put together.

    models, parts, failure = compile_segments(plan, example, options, workdir=None)
"""

from __future__ import annotations

import dataclasses
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from ...base import env
from ...compiler import CompilerFlags, NeuronCcFlags, arithmetic_options
from ...errors import CaptureError, LoweringError, NeuronError, UnsupportedDtypeError, UnsupportedOperatorError
from ...hardware import TARGETS, require_dtype
from ..compile import Flags, Linked, link_entries, require_memory, work_folder, write_linked
from ..entry import make_entry
from ..script import script_neff
from . import log
from .graph import Operation
from .options import Options
from .parts import Part, parts_of
from .run import Environment
from .segment import STAGE, Segment, half_of
from .segments import Plan

TARGET = "inf1"
_GOES_TO_CPU = (CaptureError, LoweringError, UnsupportedDtypeError, UnsupportedOperatorError)
"""Errors of one segment, which then runs on the CPU."""


def compile_segments(
    plan: Plan, example: Environment, options: Options, workdir: str | Path | None
) -> tuple[dict[Part, torch.jit.ScriptModule], list[Part], NeuronError | None]:
    """Compile every segment; one that cannot be compiled goes to the CPU, and the model is divided again.

    Returns the last error too.
    """
    parts, linked, failure = _linked(plan, example, options)
    if linked:
        name = "The model" if len(linked) == 1 else f"The model, in {len(linked)} segments,"
        require_memory([program for program, _ in linked.values()], name)
    models = {
        part: _loaded(program, seconds, options, None if workdir is None else Path(workdir) / str(number))
        for number, (part, (program, seconds)) in enumerate(linked.items())
    }
    return models, parts, failure


def _linked(
    plan: Plan, example: Environment, options: Options
) -> tuple[list[Part], dict[Part, tuple[Linked, float]], NeuronError | None]:
    """Return the parts, the program of each segment with the seconds that it took, and the last error."""
    failure: NeuronError | None = None
    done: dict[frozenset[Operation], tuple[Linked, float]] = {}
    while True:
        parts, linked = parts_of(plan), dict[Part, tuple[Linked, float]]()
        for number, part in enumerate(part for part in parts if part.place == "core"):
            key = frozenset(part.operations)
            try:
                if key not in done:
                    done[key] = _link(part, plan, example, options, number)
            except _GOES_TO_CPU as error:
                if options.must_trace:
                    raise
                log.segment_failed(number, error)
                failure = error
                plan.send_to_cpu([one for one in part.operations if plan.on_core(one)])
                break
            linked[part] = done[key]
        else:
            return parts, linked, failure


def _link(part: Part, plan: Plan, example: Environment, options: Options, number: int) -> tuple[Linked, float]:
    started = time.monotonic()
    inputs = tuple(half_of(example[value]) if options.half else example[value] for value in part.inputs)
    # A class of its own, whose name is that of the program in messages and ledgers.
    own = type(f"segment {number} of {plan.program.name}", (Segment,), {})
    segment = own(part, example, plan.static, num_stages=options.flags.pipeline_cores, half=options.half)
    log.segment_starts(number, part, options.flags, segment.num_stages)
    target = dataclasses.replace(TARGETS[TARGET], asked_for=options.whitelist or frozenset())
    flags = Flags(flags=_compiler_flags(options.flags), target=target)
    stages = [f"{STAGE}{index}" for index in range(segment.num_stages)]
    linked = link_entries({"graph": make_entry(segment, inputs, {})}, flags, stages=stages)
    return linked, time.monotonic() - started


def _loaded(linked: Linked, seconds: float, options: Options, workdir: Path | None) -> torch.jit.ScriptModule:
    """Write a segment, whose program took so many seconds, and load it."""
    started = time.monotonic()
    with work_folder(workdir, None) as folder:
        neff, weights = write_linked(linked, folder, inline_weights=not options.separate_weights)
        seconds += time.monotonic() - started
        if options.timeout_s is not None and seconds > options.timeout_s:
            raise subprocess.TimeoutExpired(["neuron-cc", "compile", *options.flags.words], options.timeout_s)
        return script_neff(neff, weights)


def _compiler_flags(flags: NeuronCcFlags) -> CompilerFlags:
    """Return the options of a compile: `compiler_args` come before NEURON_CC_FLAGS, and those before the defaults.

    Host code takes its effort from NEURON_CC_FLAGS, as everywhere.
    """
    options: dict[str, Any] = {"auto_cast": flags.auto_cast, "auto_cast_type": flags.auto_cast_type}
    given = arithmetic_options(env.compiler_flags())
    made = CompilerFlags(**(given | options if flags.names_cast else options | given))
    if made.auto_cast != "none":
        require_dtype(TARGETS[TARGET], made.auto_cast_type)
    return made
