"""The clock of the simulated cores: the time of one call of a compiled graph, and the activity of this process's cores.

The times match `estimate`, from the program's own graphs. `runtime/timeline.py` counts the calls; nothing is computed
before a caller asks.

    from optimum_neuron.simulator.clock import core_usage

    busy_us = sum(core.busy_us for core in core_usage())
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from ..errors import NeuronError
from ..hardware import TARGETS
from ..runtime import OBSERVERS, TIMELINE, CallCost, CoreUsage, ServingCost, Track
from .compiled import SERVED_AS, generates, work_of_call
from .device_time import DeviceTime, device_time
from .machine import Machine, choose_machine
from .pipelined import without_kept
from .serving import serving_cost_on
from .work import GraphWork

if TYPE_CHECKING:
    from ..compiler import Program

logger = logging.getLogger(__name__)


def core_usage() -> list[CoreUsage]:
    """Simulated busy time and calls of each core that this process has used, since it began.

    The first look after a load counts the work of each graph that ran: some tenths of a second for a decoder. Later
    looks add up. Eager operators of the torch device count while a profile is recorded or a tool watches.

    Example:
        ```python
        import torch
        from optimum_neuron.simulator.clock import core_usage
        from optimum_neuron.tracing import trace

        model = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), compiler_args="-O1")
        before = sum(core.num_calls for core in core_usage())
        model(torch.rand(3, 4))
        after = core_usage()
        assert sum(core.num_calls for core in after) == before + 1 and after[-1].busy_us > 0
        ```
    """
    OBSERVERS.collect()

    def device_us(track: Track, graph: str) -> float | None:
        cost = known_cost(track, graph)
        return None if cost is None else cost.device_us

    return TIMELINE.usage(device_us)


def known_cost(track: Track, graph: str) -> CallCost | None:
    """Cost of one call of a loaded program; None if it cannot be computed, which is logged once and stops no work."""
    try:
        return call_cost(track, graph)
    except Exception as error:  # noqa: BLE001  # an error of the simulated clock must not stop a request
        _report(track.model, str(error) if isinstance(error, NeuronError) else f"{type(error).__name__}: {error}")
        return None


@functools.cache
def _report(model: str, reason: str) -> None:
    logger.warning("%s runs, but some of its calls have no simulated time. %s", model, reason)


def call_cost(track: Track, graph: str) -> CallCost:
    """Cost of one call of a loaded program."""
    work = work_on_track(track, graph)
    machine = choose_machine(track.instance.name)
    time = track_time(work, machine, track)
    return CallCost(
        device_us=1e6 * time.total_s,
        launch_us=1e6 * time.parts_s["launch"],
        copy_us=1e6 * machine.copies_s(work.total),
        flops=work.total.flops,
    )


def serving_cost(instance: str) -> ServingCost:
    """Time around the graphs of a decoder that serves requests on an instance."""
    return serving_cost_on(choose_machine(instance), SERVED_AS)


def track_time(work: GraphWork, machine: Machine, track: Track) -> DeviceTime:
    """Simulated time of one call of a loaded program, or of a part of its work."""
    num_cores = max(len(track.core_ids), track.num_peers)
    network = machine.network_bytes_per_s(num_cores) if track.is_first_of_instance else None
    return call_time(work, machine, track.program, num_cores=num_cores, network_bytes_per_s=network)


def call_time(
    work: GraphWork,
    machine: Machine,
    program: Program | None,
    *,
    num_cores: int = 1,
    network_bytes_per_s: float | None = None,
) -> DeviceTime:
    """Simulated time of one call on the device, without the host; the figures of `estimate`.

    `program` is the program of the graph; None for a graph of `torch.compile` or an eager operator. `num_cores` share
    it.
    """
    served = program is not None and generates(program)
    return device_time(
        work.total,
        machine.rates,
        machine.fitted,
        decoder=served,
        num_chips=machine.num_chips(num_cores),
        network_bytes_per_s=network_bytes_per_s,
        tiled=SERVED_AS.tiled or not served,
        flash=SERVED_AS.flash,
    )


def work_on_track(track: Track, graph: str) -> GraphWork:
    """Work of one call of a graph of a track."""
    if track.program is None:
        return track.works[graph]
    work = work_of_call(track.program, graph, track.auto_cast)
    is_pipeline = track.num_stages > 1 and TARGETS[track.instance.family].shares_memory
    return without_kept(work) if is_pipeline else work
