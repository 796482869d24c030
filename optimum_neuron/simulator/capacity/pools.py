"""Times of replicas of many configurations: graphs of prompts and of steps are captured apart, each of them once.

    replicas = Replicas(source, options)
    pool, memory = replicas.pool(machine, num_cores=2, batch_size=16, chunk_size=256)

A chunk of a prompt takes the same time for every batch size, and a step for every chunk size. So a sweep of m by n
configurations captures m + n small programs, and `plan_capacity` captures the best one as a whole.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..captures import CapturedModel, capture_model
from ..compiled import SERVED_AS, call_time_on
from ..configured import task_of_config
from ..continuous import ServedPool, chunk_times, served_pool
from ..machine import Machine
from ..request import DTYPES
from ..serving import serving_cost_on

if TYPE_CHECKING:
    from ...compiler import MemoryNeed
    from ...sources import ModelSource


class Replicas:
    """Sizes and times of a model's replicas, by configuration."""

    def __init__(self, source: ModelSource, options: Mapping[str, Any]) -> None:
        self._task = task_of_config(source.config, options.get("task") or "auto")
        swept = ("batch_size", "prefill_chunk_size", "task")
        options = {name: value for name, value in options.items() if name not in swept}
        if (dtype := options.pop("dtype", None)) is not None:
            options["torch_dtype"] = DTYPES.get(dtype, dtype)
        self._source, self._options = source, options
        self._captured: dict[tuple[str, int, int], CapturedModel] = {}
        self._times: dict[tuple[str, int, int, str], dict[str, float]] = {}

    def pool(
        self, machine: Machine, *, num_cores: int, batch_size: int, chunk_size: int
    ) -> tuple[ServedPool, dict[str, int]]:
        """Return the sizes and times of a replica, and its memory on a core by category."""
        from ...compiler import memory_need

        reads = self._capture(machine, "prefill", num_cores, chunk_size)
        steps = self._capture(machine, "decode", num_cores, batch_size)
        needs = [memory_need(one.program, machine.target) for one in (reads, steps)]
        memory = _joined(*needs)
        pool = served_pool(
            steps.program,
            memory,
            call_s=functools.partial(self._call_s, machine, steps, ("decode", num_cores, batch_size)),
            cost=serving_cost_on(machine, SERVED_AS),
            num_prompt=1,
            num_answer=1,
            num_cached=0,
        )
        call_s = functools.partial(self._call_s, machine, reads, ("prefill", num_cores, chunk_size))
        return dataclasses.replace(pool, chunk_s=chunk_times(reads.program, call_s)), memory

    def _capture(self, machine: Machine, role: str, num_cores: int, size: int) -> CapturedModel:
        key = (role, num_cores, size)
        if key not in self._captured:
            sizes: dict[str, Any] = (
                {"prefill_chunk_size": size, "batch_size": 1} if role == "prefill" else {"batch_size": size}
            )
            self._captured[key] = capture_model(
                self._source,
                roles=(role,),
                tensor_parallel_size=num_cores,
                instance_type=machine.instance.value.name,
                task=self._task,
                **sizes,
                **self._options,
            )
        return self._captured[key]

    def _call_s(self, machine: Machine, captured: CapturedModel, key: tuple[str, int, int], graph: str) -> float:
        times = self._times.setdefault((*key, machine.instance.value.name), {})
        if graph not in times:
            auto_cast = captured.config.auto_cast
            times[graph] = call_time_on(machine, captured.program, graph, num_cores=key[1], auto_cast=auto_cast)
        return times[graph]


def _joined(reads: MemoryNeed, steps: MemoryNeed) -> dict[str, int]:
    """Memory of a program with the graphs of both; the cache is that of the steps, which have all rows."""
    return {
        "weights": max(reads.weights, steps.weights),
        "kv_cache": steps.kv_cache,
        "scratch": max(reads.scratch, steps.scratch),
        "code": steps.code,
    }
