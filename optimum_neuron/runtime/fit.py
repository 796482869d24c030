"""Whether a program fits the HBM of one core, and the changes that make it fit.

It counts nothing: `compiler/memory.py` says what a program needs, and `hbm.py` what a core has left.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from ..compiler import MICROCODE_BYTES, MemoryNeed, Program, fullest_need, memory_need, stage_needs
from ..compiler.passes import divide_into_stages, without_sends
from ..errors import DeviceMemoryError, ModelError
from ..hardware import (
    MAX_INSTANCES,
    TARGETS,
    InstanceSpec,
    Target,
    cluster_of,
    fitting_instances,
    legal_core_counts,
    one_of,
)

GIB = 1024**3


def require_fit(
    needs: Sequence[MemoryNeed],
    *,
    instance: InstanceSpec,
    target: Target,
    model_name: str,
    num_cores: int = 1,
    program: Program | None = None,
    traced: bool = False,
) -> None:
    """Check that a program fits the HBM of each core, or, where the cores of a chip share a memory, of each chip.

    Args:
        needs: of a core of each pipeline stage, by stage; of a model in segments, those of all of them.
        instance: the simulated instance.
        target: Target that the program was compiled for.
        model_name: for messages.
        num_cores: cores of the model.
        program: Program whose pipeline stages share the cores; None for one without layers.
        traced: whether a trace made the program, which has no options of an export.
    """
    available = target.hbm_bytes_of_one_core()
    sharing = {"cores_of_memory": target.chip.num_cores, "num_memories": instance.num_chips}
    need = fullest_need(needs, **sharing) if target.shares_memory else fullest_need(needs)
    if need.total <= available:
        return
    holder = "chip" if target.shares_memory else "core"
    message = (
        f"{model_name} needs {need.total / GIB:.2f} GiB, but a {holder} of {instance.name} has "
        f"{available / GIB:.2f} GiB.\n{need.table(available)}\n  (simulated)"
    )
    if traced or target.shares_memory:
        hint = _changes_of_single_pass(need, target, instance, num_cores, program, traced=traced)
    else:
        hint = _changes_that_fit(need, target, instance, num_cores, program)
    raise DeviceMemoryError(
        message, hint=hint, **dataclasses.asdict(need), total=need.total, available=available, simulated=True
    )


def _changes_of_single_pass(
    need: MemoryNeed,
    target: Target,
    instance: InstanceSpec,
    num_cores: int,
    program: Program | None,
    *,
    traced: bool,
) -> str:
    """Return each single change that makes a traced program, or one of Inf1, fit."""
    available, changes = target.hbm_bytes_of_one_core(), []
    if available >= need.total - _saved_by_bfloat16(need, target, program) < need.total:
        how = "convert the model with model.bfloat16()" if traced else "pass torch_dtype=bfloat16"
        changes.append(f"{how} where it is float32: weights then take half")
    if traced and target.shares_memory and (change := _pipeline_that_fits(need, target, instance, num_cores)):
        changes.append(change)
    if best := _smallest_that_fits(need):
        how = f"set OPTIMUM_NEURON_INSTANCE={best.instances[0].name}" if traced else f"pass instance_type={best.name}"
        again = " and use torch_neuronx.trace" if traced and target.shares_memory else ""
        changes.append(f"{how}{again}: its cores have {best.hbm_bytes_per_core() / GIB:.0f} GiB")
    if not changes:
        changes.append(f"use a smaller model or smaller inputs: {(need.total - available) / GIB:.2f} GiB are missing")
    return _sentence(changes)


def _saved_by_bfloat16(need: MemoryNeed, target: Target, program: Program | None) -> float:
    """Return the bytes that weights in bfloat16 save: none where float32 weights lie in memory in 16 bits."""
    if program is None:
        return need.weights / 2
    narrow = sum(spec.size_bytes // (2 if spec.dtype == "float32" else 1) for spec in program.weights.values())
    counted = sum(one.weights for one in stage_needs(program, target))
    return max(0.0, need.weights * (1 - narrow / max(counted, 1)))


def _pipeline_that_fits(need: MemoryNeed, target: Target, instance: InstanceSpec, num_cores: int) -> str:
    """Return the change to the fewest cores of more chips that share the weights; "" if none hold them."""
    width = target.chip.num_cores
    weights = need.weights * math.ceil(num_cores / width)
    for size in target.instances:
        for chips in range(1, size.num_chips + 1):
            fits = weights / chips + need.scratch + MICROCODE_BYTES * width <= target.chip.hbm_bytes
            if fits and chips * width > num_cores:
                where = f" with OPTIMUM_NEURON_INSTANCE={size.name}" if size.num_cores > instance.num_cores else ""
                option = f'compiler_args=["--neuroncore-pipeline-cores", "{chips * width}"]'
                return f"pass {option}{where}: {chips} chips share the model"
    return ""


def _smallest_that_fits(need: MemoryNeed) -> Target | None:
    """Return the target with the least memory of a core that holds a program; None if there is none."""
    targets = (other for other in TARGETS.values() if other.compilable and _fits(need, other))
    return min(targets, key=lambda other: other.hbm_bytes_per_core(), default=None)


def _sentence(changes: Sequence[str]) -> str:
    text = "; or ".join(changes)
    return f"{text[0].upper()}{text[1:]}."


def _changes_that_fit(
    need: MemoryNeed, target: Target, instance: InstanceSpec, num_cores: int, program: Program | None
) -> str:
    """Return each single change that makes the program fit, shapes first; if there is none, how much is missing."""
    available, num_stages = target.hbm_bytes_per_core(), program.num_stages if program is not None else 1
    group_size = num_cores // num_stages
    room = available - need.weights - need.code
    changes = []
    if need.kv_cache and room > need.scratch:
        # The cache follows rows and slots; scratch does so for the most part, but not where it has copies of weights.
        surely = math.ceil(need.kv_cache / (room - need.scratch))
        at_least = math.ceil((need.kv_cache + need.scratch) / room)
        either = f"{at_least}, or {surely} if scratch does not shrink with it" if at_least < surely else str(surely)
        cache = need.kv_cache / at_least / GIB
        is_pool = program is not None and any("block_table" in graph.inputs for graph in program.graphs.values())
        sizes = "num_blocks" if is_pool else "batch_size or sequence_length"
        changes.append(f"divide {sizes} by {either}: the cache then takes {cache:.2f} GiB")
    if need.total - (need.weights + need.kv_cache) / 2 <= available:
        changes.append("pass torch_dtype=bfloat16 where the model is float32: weights and cache then take half")
    if best := _smallest_that_fits(need):
        changes.append(f"pass instance_type={best.name}: its cores have {best.hbm_bytes_per_core() / GIB:.0f} GiB")
    if (count := _degree_that_fits(need, available, instance, group_size, num_stages)) is not None:
        shared = "the model" if num_stages == 1 else "each stage"
        changes.append(f"pass tensor_parallel_size={count}: that many cores of {instance.name} share {shared}")
    else:
        others = [] if best else [other for other in TARGETS.values() if other.compilable and other != target]
        if num_stages == 1 and (change := _instance_that_fits(need, [target, *others], instance, group_size)):
            changes.append(change)
        if program is not None and (change := _instances_that_fit(program, target, instance, group_size)):
            changes.append(change)
    if not changes and room > 0:
        changes.append(
            "lower batch_size, sequence_length or prefill_buckets: cache and scratch take "
            f"{(need.kv_cache + need.scratch) / GIB:.2f} GiB, and {room / GIB:.2f} GiB are left for them"
        )
    if not changes:
        cores = math.ceil((need.total - need.code) / (available - need.code))
        changes.append(
            f"compile a smaller model: no instance holds this one, which takes {cores} cores of {target.name}"
        )
    return _sentence(changes)


def _degree_that_fits(
    need: MemoryNeed, available: int, instance: InstanceSpec, group_size: int, num_stages: int
) -> int | None:
    """Return the smallest number of cores that hold a stage which takes `need` on each of `group_size`."""
    return next((n for n in _degrees(instance, num_stages) if _holds(need, group_size, available, n)), None)


def _instance_that_fits(need: MemoryNeed, families: Sequence[Target], instance: InstanceSpec, group_size: int) -> str:
    """Return the change to the smallest instance whose cores hold a program together; "" if there is none.

    Families come in order of preference; the first one is that of `instance`, whose larger instances count.
    """
    for family in families:
        own = family is families[0]
        instances = [spec for spec in family.instances if not own or spec.num_cores > instance.num_cores]
        fits = functools.partial(_holds, need, group_size, family.hbm_bytes_per_core())
        for spec, count in fitting_instances(instances, fits):
            return f"pass instance_type={spec.name} and tensor_parallel_size={count}: its cores share the model"
    return ""


def _holds(need: MemoryNeed, group_size: int, available: int, count: int) -> bool:
    """Return whether so many cores hold a program which takes `need` on each of `group_size`."""
    divided = math.ceil((need.weights + need.kv_cache) * group_size / count)
    return count > group_size and divided + need.scratch + need.code <= available


def _degrees(instance: InstanceSpec, num_stages: int) -> list[int]:
    """Return the numbers of cores that each of so many stages can have."""
    counts, num_instances = legal_core_counts(instance).counts, instance.num_instances
    return [count // num_instances for count in counts if count // num_instances * num_stages in counts]


def _instances_that_fit(program: Program, target: Target, instance: InstanceSpec, group_size: int) -> str:
    """Return the change to the smallest number of instances that hold a program; "" if there is none."""
    if instance.network_gbps is None or program.by_size("encode"):  # an encoder-decoder has no stages
        return ""
    stages_each = program.num_stages // instance.num_instances
    for num_instances in range(instance.num_instances + 1, MAX_INSTANCES + 1):
        larger = cluster_of(one_of(instance), num_instances)
        for num_stages in sorted({num_instances, stages_each * num_instances}):
            degree = _degree_of_stages(program, target, larger, group_size, num_stages)
            if degree is not None:
                return (
                    f"pass instance_type={larger.name}, pipeline_parallel_size={num_stages}, and tensor_parallel_size="
                    f"{degree}: {num_instances} instances share the model"
                )
    return ""


def _degree_of_stages(
    program: Program, target: Target, instance: InstanceSpec, group_size: int, num_stages: int
) -> int | None:
    """Return the smallest number of cores, `group_size` or more, that hold each of so many stages."""
    try:
        divided = divide_into_stages(without_sends(program), num_stages)
    except ModelError:  # it has fewer layers
        return None
    if divided.num_stages != num_stages:
        return None
    need, available = memory_need(divided, target), target.hbm_bytes_per_core()
    if need.total <= available and group_size in _degrees(instance, num_stages):
        return group_size
    return _degree_that_fits(need, available, instance, group_size, num_stages)


def _fits(need: MemoryNeed, target: Target) -> bool:
    """Return whether another target's core holds it, which may reserve more for its own code."""
    code = MICROCODE_BYTES * target.chip.default_lnc
    return need.total - need.code + code <= target.hbm_bytes_per_core()
