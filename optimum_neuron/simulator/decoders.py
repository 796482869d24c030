"""Estimate of a decoder: prompts, tokens, memory and money, from its sizes alone or from its compiled graphs.

decoder_estimate(sizes, request, machine, name="llama")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..compiler import MICROCODE_BYTES
from ..core import AutoCast, Choice
from ..errors import ConfigError, DeviceMemoryError, invalid_choice
from ..hardware import fitting_instances, legal_core_counts
from ..wording import counted, number, time_span
from .lengths import choose_lengths
from .machine import Machine, choose_copies, choose_cores, does_not_fit, positive
from .quantity import Estimate
from .result import generation_notes
from .serving import plan_serving, serving_estimate
from .speculation import Speculation
from .stacks import DEFAULT_SDK, Stack, choose_stack
from .work import DecoderSizes, Layout, cache_bytes, parameter_bytes

WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "float8_e4m3": 1.0}
"""Bytes of a weight by dtype."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3"}
"""Short names."""
DEFAULT_SEQUENCE_LENGTH = 4096
"""If the model allows more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderRequest:
    """Request to a decoder."""

    batch_size: int = 1
    sequence_length: int | None = None
    """Tokens of a row, prompt and answer; None for the model's own, at most 4096."""
    input_length: int | None = None
    """Tokens of a prompt; None for what the answer leaves of the sequence."""
    output_length: int | None = None
    """Tokens of an answer; None for half of the sequence, or for what the prompt leaves of it."""
    tensor_parallel_size: int | None = None
    """Cores of a replica; None for the fewest that hold it."""
    data_parallel_size: int | None = None
    """Replicas; None for as many as the instance holds."""
    concurrency: int | None = None
    """Requests that arrive together; None for the batch."""
    dtype: str | None = None
    """Of the weights; None for the checkpoint's, bfloat16 for a float32 one."""
    auto_cast: AutoCast | None = None
    sdk: str | None = None
    stack: str | None = None
    speculation: Speculation | None = None
    """Candidates that are checked together; None for one token in each step."""
    prefix_hit_rate: float | None = None
    """Share of the prompt tokens that are in the prefix cache; None for an empty cache."""
    batches_in_flight: int | None = None
    """Batches that a replica of a single-pass model has at once; None for one."""

    def __post_init__(self) -> None:
        rate = self.prefix_hit_rate
        if rate is not None and (isinstance(rate, bool) or not 0 <= rate <= 1):
            message = f"prefix_hit_rate={rate} is not a share from 0 to 1."
            raise ConfigError(message, hint="Pass one.", option="prefix_hit_rate", value=rate)
        for name in ("batches_in_flight", "concurrency"):
            if (value := getattr(self, name)) is not None:
                positive(name, value)

    def resolved(self, sizes: DecoderSizes) -> DecoderRequest:
        """With every size filled in and checked.

        Raises:
            ConfigError: a size is out of range, or sizes contradict each other.
        """
        limit = sizes.max_positions
        positive("batch_size", self.batch_size)
        default = min(limit or DEFAULT_SEQUENCE_LENGTH, DEFAULT_SEQUENCE_LENGTH)
        lengths = choose_lengths(self.sequence_length, self.input_length, self.output_length, limit=default)
        own_dtype = sizes.dtype if sizes.dtype in WEIGHT_BYTES and sizes.dtype != "float32" else "bfloat16"
        dtype = DTYPES.get(self.dtype or "", self.dtype) or own_dtype
        if dtype not in WEIGHT_BYTES:
            raise invalid_choice("dtype", self.dtype, WEIGHT_BYTES)
        return dataclasses.replace(
            self,
            sequence_length=lengths.sequence,
            input_length=lengths.prompt,
            output_length=lengths.answer,
            dtype=dtype,
        )


def decoder_layout(request: DecoderRequest, stack: Stack, num_cores: int) -> Layout:
    """How a resolved request places a model on cores."""
    assert request.dtype is not None
    return Layout(
        num_cores=num_cores,
        weight_bytes=WEIGHT_BYTES[request.dtype],
        cache_bytes=4 if request.dtype == "float32" else 2,
        replicate_kv_heads=stack.replicate_kv_heads,
        dense_experts=stack.dense_experts,
    )


def decoder_memory(
    sizes: DecoderSizes, request: DecoderRequest, stack: Stack, layout: Layout, machine: Machine
) -> dict[str, int]:
    """HBM of one core by category; scratch is the widest moment of the prompts of one run."""
    assert request.sequence_length is not None
    widest = max((p.columns for layer in sizes.layers for p in layer.projections), default=sizes.hidden)
    rows = request.sequence_length * (1 if stack.one_by_one else request.batch_size)
    return {
        "weights": parameter_bytes(sizes, layout),
        "kv_cache": cache_bytes(sizes, layout, batch_size=request.batch_size, slots=request.sequence_length),
        "scratch": 2 * rows * (2 * sizes.hidden + widest // layout.num_cores),
        "code": MICROCODE_BYTES * machine.rates.num_physical,
    }


def decoder_estimate(sizes: DecoderSizes, request: DecoderRequest, machine: Machine, *, name: str) -> Estimate:
    """Estimate a decoder.

    Raises:
        ConfigError: a size, dtype, SDK or core count is not possible.
        DeviceMemoryError: It does not fit; the message has the table and the changes that would make it fit.
    """
    request = request.resolved(sizes)
    stack = choose_stack(request.sdk, request.stack)

    def memory_on(num_cores: int) -> dict[str, int]:
        layout = decoder_layout(request, stack.value, num_cores)
        return decoder_memory(sizes, request, stack.value, layout, machine)

    def fits(num_cores: int) -> bool:
        return sum(memory_on(num_cores).values()) <= machine.hbm_bytes_per_core

    def estimate_on(num_cores: Choice[int]) -> Estimate:
        layout = decoder_layout(request, stack.value, num_cores.value)
        return _placed_estimate(sizes, request, stack, layout, machine, name=name, num_cores=num_cores)

    num_cores = choose_cores(machine, request.tensor_parallel_size, fits)
    if not fits(num_cores.value):
        memory = memory_on(num_cores.value)
        raise _does_not_fit(name, machine, num_cores.value, memory, fits, batch_size=request.batch_size)
    result = estimate_on(num_cores)
    if request.tensor_parallel_size is not None or request.data_parallel_size is not None:
        return result
    more = [n for n in legal_core_counts(machine.instance.value).counts if n > num_cores.value and fits(n)]
    return result.noted(*_better_degrees(result, [estimate_on(Choice(value=n, reason="")) for n in more]))


def _placed_estimate(
    sizes: DecoderSizes,
    request: DecoderRequest,
    stack: Choice[Stack],
    layout: Layout,
    machine: Machine,
    *,
    name: str,
    num_cores: Choice[int],
) -> Estimate:
    """Estimate a resolved request on a number of cores that hold it."""
    assert request.sequence_length and request.input_length and request.output_length
    plan = plan_serving(
        sizes,
        stack.value,
        layout,
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
        kind=sizes.kind,
        num_cores=num_cores,
        num_copies=choose_copies(machine, num_cores.value, request.data_parallel_size),
        memory=decoder_memory(sizes, request, stack.value, layout, machine),
        assumptions=_assumptions(request, stack, machine, sizes),
        notes=_notes(sizes, machine, request.sequence_length),
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
    request: DecoderRequest, stack: Choice[Stack], machine: Machine, sizes: DecoderSizes
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
    if sizes.is_mixture:
        notes.append("mixture of experts: few published models, so the intervals are wide")
    elif sizes.is_hybrid:
        notes.append("recurrent layers: one published family, so the intervals are wide")
    return (*notes, *generation_notes(machine.target, "few published values, none of prompts over many chips"))


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


def require_no_options(options: Mapping[str, Any], what: str) -> None:
    """Check that no options are left that would be ignored."""
    if options:
        named = ", ".join(f"{name}={value!r}" for name, value in options.items())
        message = f"{named} {'has' if len(options) == 1 else 'have'} no effect on {what}."
        raise ConfigError(message, hint=f"Remove {', '.join(options)}.", options=list(options))
