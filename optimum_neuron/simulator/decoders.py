"""Estimate of a decoder: prompts, tokens, memory and money, from its sizes alone.

DecoderCounts(sizes=sizes, notes=()).estimate("llama", request, machine)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..base.core import Choice
from ..base.wording import counted, number, time_span
from ..compiler import MICROCODE_BYTES
from ..errors import DeviceMemoryError, invalid_choice
from ..hardware import fitting_instances, legal_core_counts
from .graph_choice import no_prefix_cache
from .machine import Machine, choose_copies, choose_cores, does_not_fit
from .request import DTYPES, EstimateRequest
from .result import Estimate, generation_notes
from .serving import plan_serving, serving_estimate
from .stacks import DEFAULT_SDK, Stack, choose_lengths, choose_stack
from .work import DecoderSizes, Layout, cache_bytes, parameter_bytes

WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "float8_e4m3": 1.0}
DEFAULT_SEQUENCE_LENGTH = 4096
"""If the model allows more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderCounts:
    """A decoder that is estimated from its sizes, for every batch, length, dtype, and number of cores."""

    sizes: DecoderSizes
    notes: tuple[str, ...] = ()
    """Notes that follow from its configuration."""

    def estimate(self, name: str, request: EstimateRequest, machine: Machine) -> Estimate:
        """Estimate a request."""
        if request.prefix_hit_rate is not None:
            raise no_prefix_cache(request.prefix_hit_rate)
        request.require_effect("decoder", "a decoder")
        request = _resolved(request, self.sizes)
        on = functools.partial(_Placed, self.sizes, request, choose_stack(request.sdk, request.stack), machine)

        def fits(num_cores: int) -> bool:
            return sum(on(num_cores).memory.values()) <= machine.hbm_bytes_per_core

        num_cores = choose_cores(machine, request.tensor_parallel_size, fits)
        chosen = on(num_cores.value)
        if not fits(num_cores.value):
            raise _does_not_fit(name, machine, num_cores.value, chosen.memory, fits, batch_size=request.batch_size)
        result = chosen.estimate(name, num_cores)
        if request.tensor_parallel_size is None and request.data_parallel_size is None:
            more = [n for n in legal_core_counts(machine.instance.value).counts if n > num_cores.value and fits(n)]
            result = result.noted(*_better_degrees(result, [on(n).estimate(name) for n in more]))
        return result.noted(*self.notes)


def _resolved(request: EstimateRequest, sizes: DecoderSizes) -> EstimateRequest:
    """Return the request with every size filled in and checked."""
    default = min(sizes.max_positions or DEFAULT_SEQUENCE_LENGTH, DEFAULT_SEQUENCE_LENGTH)
    lengths = choose_lengths(request.sequence_length, request.input_length, request.output_length, limit=default)
    own_dtype = sizes.dtype if sizes.dtype in WEIGHT_BYTES and sizes.dtype != "float32" else "bfloat16"
    dtype = DTYPES.get(request.dtype or "", request.dtype) or own_dtype
    if dtype not in WEIGHT_BYTES:
        raise invalid_choice("dtype", request.dtype, WEIGHT_BYTES)
    return dataclasses.replace(
        request,
        sequence_length=lengths.sequence,
        input_length=lengths.prompt,
        output_length=lengths.answer,
        dtype=dtype,
    )


@dataclasses.dataclass(frozen=True)
class _Placed:
    """A resolved request on a number of cores."""

    sizes: DecoderSizes
    request: EstimateRequest
    stack: Choice[Stack]
    machine: Machine
    num_cores: int

    @property
    def layout(self) -> Layout:
        assert self.request.dtype is not None
        return Layout(
            num_cores=self.num_cores,
            weight_bytes=WEIGHT_BYTES[self.request.dtype],
            cache_bytes=4 if self.request.dtype == "float32" else 2,
            replicate_kv_heads=self.stack.value.replicate_kv_heads,
            dense_experts=self.stack.value.dense_experts,
        )

    @functools.cached_property
    def memory(self) -> dict[str, int]:
        """HBM of one core by category; scratch is the widest moment of the prompts of one run."""
        sizes, request, layout = self.sizes, self.request, self.layout
        assert request.sequence_length is not None
        widest = max((p.columns for layer in sizes.layers for p in layer.projections), default=sizes.hidden)
        rows = request.sequence_length * (1 if self.stack.value.one_by_one else request.batch_size)
        return {
            "weights": parameter_bytes(sizes, layout),
            "kv_cache": cache_bytes(sizes, layout, batch_size=request.batch_size, slots=request.sequence_length),
            "scratch": 2 * rows * (2 * sizes.hidden + widest // layout.num_cores),
            "code": MICROCODE_BYTES * self.machine.rates.num_physical,
        }

    def estimate(self, name: str, num_cores: Choice[int] | None = None) -> Estimate:
        """Estimate it; `num_cores` says why it has so many."""
        request, machine = self.request, self.machine
        assert request.sequence_length and request.input_length and request.output_length
        plan = plan_serving(
            self.sizes,
            self.stack.value,
            self.layout,
            batch_size=request.batch_size,
            sequence_length=request.sequence_length,
            input_length=request.input_length,
            output_length=request.output_length,
            concurrency=request.concurrency,
        )
        result = serving_estimate(
            plan,
            machine,
            name=name,
            kind=self.sizes.kind,
            num_cores=num_cores or Choice(value=self.num_cores, reason=""),
            num_copies=choose_copies(machine, self.num_cores, request.data_parallel_size),
            memory=self.memory,
            assumptions=_assumptions(request, self.stack, machine, self.sizes),
            notes=_notes(self.sizes, machine, request.sequence_length),
        )
        return dataclasses.replace(result, divisible=True)


def _better_degrees(chosen: Estimate, others: Sequence[Estimate]) -> list[str]:
    """Say which numbers of cores answer sooner, or cost less, than the chosen one."""
    if not others:
        return []
    notes = []
    soonest = min(others, key=lambda one: one.quantities["latency_ms"].value)
    here, there = (one.quantities["latency_ms"].value for one in (chosen, soonest))
    if there < here:
        times = f"{time_span(there / 1e3)} for a request instead of {time_span(here / 1e3)}"
        notes.append(f"tensor_parallel_size={soonest.num_cores.value} answers sooner: {times}, simulated")
    cheapest = max(others, key=lambda one: one.quantities["tokens_per_s"].value)
    here, there = (one.quantities["tokens_per_s"].value for one in (chosen, cheapest))
    if there > here:
        rates = f"{number(there)} tokens/s on the instance instead of {number(here)}"
        notes.append(f"tensor_parallel_size={cheapest.num_cores.value} is cheaper: {rates}, simulated")
    return notes


def _assumptions(
    request: EstimateRequest, stack: Choice[Stack], machine: Machine, sizes: DecoderSizes
) -> tuple[str, ...]:
    assert request.sequence_length and request.input_length and request.output_length
    together = request.concurrency or request.batch_size
    arrive = "1 request arrives alone" if together == 1 else f"{together:,} requests arrive together"
    return (
        f"serving stack {stack.value.name}: {stack.reason}",
        f"Neuron SDK {request.sdk or DEFAULT_SDK}",
        f"{arrive}, {counted(request.input_length, 'prompt token')} and "
        f"{counted(request.output_length, 'output token')} each, "
        f"compiled for a batch of {request.batch_size} and {counted(request.sequence_length, 'token')}",
        f"weights in {request.dtype}, products at the 16-bit rate",
        f"read from a configuration with {sizes.num_parameters:,} parameters; no weights were read",
        *machine.sources,
    )


def _notes(sizes: DecoderSizes, machine: Machine, sequence_length: int) -> tuple[str, ...]:
    notes = []
    if sizes.max_positions is not None and sequence_length > sizes.max_positions:
        notes.append(
            f"the configuration allows {sizes.max_positions} positions: the time of {sequence_length} is estimated, "
            "what the model would say is another matter"
        )
    if sizes.kind == "mixture":
        notes.append("mixture of experts: few published models, so the intervals are wide")
    elif sizes.kind == "hybrid":
        notes.append("recurrent layers: one published family, so the intervals are wide")
    return (*notes, *generation_notes(machine.target, "few published values, one of prompts over many chips"))


def _rows_that_fit(memory: dict[str, int], machine: Machine, batch_size: int) -> int:
    """Rows whose cache fits in the remaining memory."""
    free = machine.hbm_bytes_per_core - sum(memory.values()) + memory["kv_cache"]
    return free * batch_size // memory["kv_cache"] if batch_size > 1 and memory["kv_cache"] else 0


def _does_not_fit(
    name: str,
    machine: Machine,
    num_cores: int,
    memory: dict[str, int],
    fits: Callable[[int], bool],
    *,
    batch_size: int,
) -> DeviceMemoryError:
    """Return the error with the smallest change that fits: more cores, a smaller batch, a larger instance."""
    instance = machine.instance.value
    counts = [n for n in legal_core_counts(instance).counts if fits(n)]
    larger = [
        f"{spec.name} with tensor_parallel_size={count}"
        for spec, count in fitting_instances(machine.target.instances, fits)
        if spec.num_cores > instance.num_cores
    ]
    details: dict[str, Any] = {"fitting_core_counts": counts}
    if counts:
        hint = f"Pass tensor_parallel_size={counts[0]}"
    elif (rows := _rows_that_fit(memory, machine, batch_size)) > 0:
        hint = f"Pass batch_size={rows} or less: the cache of each sequence takes its part"
        details["fitting_batch_size"] = rows
    elif memory["kv_cache"] > sum(memory.values()) / 2:
        hint = "Pass a smaller sequence_length: most of it is cache"
    elif larger:
        hint = f"Take a larger instance, such as {larger[0]}"
        details["fitting_instances"] = larger
    else:
        hint = f"Pass quantization='int8', or take a family with more memory than {instance.family}"
    what = f"{name} on {num_cores} cores of {instance.name}"
    return does_not_fit(what, memory, machine, hint=f"{hint}.", **details)
