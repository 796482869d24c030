"""Eager operators of the torch device in the timeline of this process, with their simulated times.

Each core has one track, named `MODEL`, whose graphs are operators with the shapes of their tensors. C++ counts them
while an observer is registered (csrc/census.h); here they are added to the track, and the work of each kind is counted
once (`eager_work.py`). So profiles, `neuron-top`, and `neuron-monitor` show them beside graphs of torch.compile, whose
own operators are not among them.

    install(library.load())
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
from typing import TYPE_CHECKING

from ..runtime import OBSERVERS

if TYPE_CHECKING:
    from ..runtime import Track
    from ..simulator.work import GraphWork

logger = logging.getLogger(__name__)

MODEL = "eager operators"
"""Name of the operators of a device, where models are named."""

ASSUMPTION = (
    "each eager operator is one small graph that is dispatched alone: it takes the fixed time of a run of a graph "
    "(launch_us of the fitted constants), reads its tensors from HBM, and writes its results there; views and copies "
    "from and to the host take no time of a core"
)

_FIELDS = 5
_MOST = 4096


class Census:
    """Takes counted operators from the shared object, through the C functions of `library.load()`."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self._functions = functions
        self._works: dict[int, GraphWork | None] = {}
        self._names: dict[str, GraphWork] = {}
        self._tracks: dict[int, Track] = {}
        self._events = (ctypes.c_int64 * (_FIELDS * _MOST))()

    def watch(self, watched: bool) -> None:
        """Begin or stop counting."""
        self._functions.neuron_watch_operators(watched)

    def collect(self) -> None:
        """Add the counts to the tracks; a claimed core has a track even without calls."""
        from . import placement

        for device in placement.claimed():
            self._track(device)
        while count := self._functions.neuron_take_operators(self._events, _MOST):
            fields = self._events[: _FIELDS * count]
            for begin in range(0, len(fields), _FIELDS):
                kind, device, thread, started_ns, ended_ns = fields[begin : begin + _FIELDS]
                if (work := self._work(kind)) is not None:
                    track = self._track(device)
                    track.works.setdefault(work.name, work)
                    track.add(work.name, thread, started_ns, ended_ns)
        if lost := self._functions.neuron_take_lost_operators():
            logger.warning("%d eager operators were too many to be counted between two looks.", lost)

    def _work(self, kind: int) -> GraphWork | None:
        if kind not in self._works:
            from .eager_work import work_of_operator

            work = work_of_operator(self._functions.neuron_operator_kind(kind).decode())
            self._works[kind] = None if work is None else self._named(work)
        return self._works[kind]

    def _named(self, work: GraphWork) -> GraphWork:
        """The work under a separate name: arguments that the name leaves out, such as dimensions, may change it."""
        from .dynamo import numbered

        works = (dataclasses.replace(work, name=name) for name in numbered(work.name))
        return next(named for named in works if self._names.setdefault(named.name, named) == named)

    def _track(self, device: int) -> Track:
        if device not in self._tracks:
            # `import torch` loads the device, and should not bring the compiler along, nor look for the instance.
            from .dynamo import open_track

            self._tracks[device] = open_track(device, MODEL, (ASSUMPTION,))
        return self._tracks[device]


def install(functions: ctypes.CDLL) -> None:
    """Count the operators of the loaded device while an observer is registered."""
    OBSERVERS.add(Census(functions))
