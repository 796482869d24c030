"""NKI kernels inside the graphs of a profile: when their engines run which instruction.

Every launch of a kernel takes the same time, from the begin of its operator on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_EVENTS = 20_000
"""Instructions of a kernel that are kept; of longer kernels, the first ones."""


class KernelEvent(NamedTuple):
    """One instruction."""

    engine: str
    opcode: str
    """Name in `nki.isa`."""
    line: str
    started_us: float
    """Begin, from the begin of the kernel."""
    busy_us: float
    """Time that the engine is busy with it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelProfile:
    """One kernel on one target; all times are simulated."""

    key: str
    """Names its instructions, as `OperatorTime.kernel` does."""
    name: str
    target: str
    num_launches: int
    num_instructions: int
    total_us: float
    busy_us: Mapping[str, float]
    bound: str
    """Engine that bounds it, or "waiting", with the reason."""
    roofline_share: float
    """Shortest possible time, divided by the simulated one."""
    events: tuple[KernelEvent, ...]

    @classmethod
    def of(cls, key: str, target: str, num_launches: int) -> KernelProfile:
        """Return the profile of a kernel of this process."""
        from ..nki import analysis_of_kernel

        analysis = analysis_of_kernel(key, target)
        events = (
            KernelEvent(one.record.engine, one.record.opcode, one.record.line, one.start_ns / 1e3, one.busy_ns / 1e3)
            for one in analysis.events[:MAX_EVENTS]
        )
        return cls(
            key=key,
            name=analysis.name,
            target=target,
            num_launches=num_launches,
            num_instructions=len(analysis.events),
            total_us=analysis.total_us,
            busy_us=dict(analysis.busy_us),
            bound=f"{analysis.bound.value}: {analysis.bound.reason}",
            roofline_share=analysis.roofline_share,
            events=tuple(events),
        )

    @property
    def engines(self) -> tuple[str, ...]:
        """Engines that it uses, in the order in which they are shown."""
        from ..nki import ENGINES

        used = {event.engine for event in self.events}
        return tuple(engine for engine in ENGINES if engine in used)


def kernels_of(launches: Iterable[tuple[str, str, int]]) -> tuple[KernelProfile, ...]:
    """Return the kernels of (key, target, launches), those of most time first."""
    total: dict[tuple[str, str], int] = {}
    for key, target, count in launches:
        total[key, target] = total.get((key, target), 0) + count
    found = [KernelProfile.of(key, target, count) for (key, target), count in total.items()]
    return tuple(sorted(found, key=lambda kernel: -kernel.num_launches * kernel.total_us))
