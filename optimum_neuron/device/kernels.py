"""NKI kernels on the device in the timeline of this process.

Each core has one track, named `MODEL`, with the kernels that were called outside of compiled graphs.

    count(Launch(device=0, key="scale@0", name="scale float32[128,4]", started_ns=0, ended_ns=1))
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..nki import Launch
    from ..runtime import Track

MODEL = "NKI kernels"
"""Name of the kernels of a device, where models are named."""

ASSUMPTION = (
    "an NKI kernel takes the time of its instructions, scheduled on the engines of one core, besides the fixed time of "
    "a run of a graph (launch_us of the fitted constants); a kernel whose instructions depend on values is timed once"
)

_tracks: dict[int, Track] = {}
_lock = threading.Lock()


def count(launch: Launch) -> None:
    """Add a launch to the timeline of its core."""
    from ..simulator.work import GraphWork, Kernels, Step, Work

    with _lock:
        track = _track(launch.device)
        step = Step(name=f"nki.{launch.key.partition('@')[0]}", work=Work(kernels=Kernels(((launch.key, 1),))))
        track.works.setdefault(launch.name, GraphWork(name=launch.name, steps=(step,)))
    track.add(launch.name, threading.get_ident(), launch.started_ns, launch.ended_ns)


def _track(device: int) -> Track:
    from .dynamo import open_track

    if device not in _tracks:
        _tracks[device] = open_track(device, MODEL, (ASSUMPTION,))
    return _tracks[device]
