"""Calls of compiled graphs on the simulated cores, counted as calls of loaded programs are (`runtime/timeline.py`).

Each device has one track, named `MODEL`, with all graphs that ran on it; their work was counted when they were
compiled. So profiles, `neuron-top` and `neuron-monitor` know their simulated times. A call costs a few microseconds
more. This module does not depend on tensors.

    calls = Calls("inference 0/0", work)
    track, graph = calls.on(0)
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

from ...runtime import TIMELINE, Track, announce
from ...simulator.work import GraphWork
from .. import placement

MODEL = "torch.compile"
"""Name of the graphs of a device, where models are named."""

_tracks: dict[int, Track] = {}
_lock = threading.Lock()


class Calls:
    """Counts the calls of one compiled graph, under a name such as "forward 0/0"."""

    def __init__(self, name: str, work: GraphWork) -> None:
        self._name, self._work = name, work
        self._of_device: dict[int, tuple[Track, str]] = {}

    def on(self, device: int) -> tuple[Track, str]:
        """Return the track of a device, and the name of the graph in it."""
        if device not in self._of_device:
            with _lock:
                if device not in _tracks:
                    _tracks[device] = open_track(device, MODEL)
                track, work = _tracks[device], self._work
                # torch gives a number again after `torch._dynamo.reset()`.
                name = next(name for name in numbered(self._name) if track.works.setdefault(name, work) == work)
            self._of_device[device] = track, name
        return self._of_device[device]


def open_track(device: int, model: str, assumptions: tuple[str, ...] = (), *, num_peers: int = 1) -> Track:
    """Add the track of device work without a program."""
    claim = placement.core(device)
    track = Track(
        None,
        model=model,
        instance=claim.instance,
        core_ids=claim.core_ids,
        num_peers=num_peers,
        auto_cast="none",
        assumptions=assumptions,
    )
    announce(TIMELINE.open(track))
    return track


def numbered(name: str) -> Iterator[str]:
    """Yield a name, then "name #2", "name #3" and so on, for other work under the same name."""
    yield name
    yield from (f"{name} #{number}" for number in itertools.count(2))
