"""Timelines of ranks: events between two marks, in a file that Perfetto and chrome://tracing open.

The file is JSON after each step. It begins anew with each run.

    timeline = PPTimeline("timeline.json", rank)
    timeline.mark_event_start("load")
    timeline.mark_event_end("load")
    timeline.mark_step_end()
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .parallel_state import DATA, PIPELINE, TENSOR, gather_python_object

_END = b"\n]\n"
Marks = dict[str, tuple[float, float | None]]
"""When the events of a step began and ended, in microseconds."""


class Timeline:
    """Events of one rank.

    Args:
        trace_file_path: the file; None: nothing is recorded.
        rank: the number under which its events are shown; rank 0 writes the file.
    """

    def __init__(self, trace_file_path: str | os.PathLike[str] | None, rank: int) -> None:
        self._file = None if trace_file_path is None else Path(trace_file_path)
        self.rank, self.step = rank, 0
        self._marks: Marks = {}
        if self.should_record and rank == 0 and self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(b"[" + _END)

    @property
    def should_record(self) -> bool:
        """Whether this rank records."""
        return self._file is not None

    def mark_event_start(self, label: str) -> None:
        """Begin an event.

        Args:
            label: its name, once in a step.
        """
        if not self.should_record:
            return
        if label in self._marks:
            hint = "Give each event of a step a name of its own."
            raise ConfigError(f"The event {label!r} began before in this step.", hint=hint, label=label)
        self._marks[label] = (time.time() * 1e6, None)

    def mark_event_end(self, label: str) -> None:
        """End an event.

        Args:
            label: its name.
        """
        if not self.should_record:
            return
        if label not in self._marks:
            hint = "Call mark_event_start() with the same name first."
            raise ConfigError(f"The event {label!r} did not begin in this step.", hint=hint, label=label)
        self._marks[label] = (self._marks[label][0], time.time() * 1e6)

    @contextlib.contextmanager
    def event(self, label: str) -> Iterator[None]:
        """Record a block as an event.

        Args:
            label: its name, once in a step.
        """
        self.mark_event_start(label)
        try:
            yield
        finally:
            self.mark_event_end(label)

    def mark_step_end(self) -> None:
        """Write the events of the step; all ranks of a timeline call it."""
        if not self.should_record:
            return
        open_ones = [label for label, (_, end) in self._marks.items() if end is None]
        if open_ones:
            message = f"Events of the step have no end: {', '.join(open_ones)}."
            raise ConfigError(message, hint="Call mark_event_end() for each of them.", labels=open_ones)
        ranks = self._of_all_ranks()
        if ranks and self._file is not None:
            _append(self._file, [one for marks in ranks.items() for one in self._events(*marks)])
        self._marks, self.step = {}, self.step + 1

    def _of_all_ranks(self) -> dict[int, Marks]:
        """Events of all ranks by number, on the rank that writes them."""
        return {self.rank: self._marks} if self.rank == 0 else {}

    def _events(self, rank: int, marks: Marks) -> Iterator[dict[str, Any]]:
        for label, (start, end) in marks.items():
            facts = {"name": label, "cat": "comp", "ph": "X", "pid": rank, "tid": 0, "args": {"step": self.step}}
            yield {**facts, "ts": start, "dur": (end or start) - start}


class PPTimeline(Timeline):
    """Events of the stages of a pipeline, whose first rank writes them.

    Ranks that have the same stage as another record nothing: it is the first in data and tensor parallelism.

    Args:
        trace_file_path: as of `Timeline`.
        pp_rank: number of the stage.
    """

    def __init__(self, trace_file_path: str | os.PathLike[str] | None, pp_rank: int) -> None:
        super().__init__(trace_file_path, pp_rank)

    @property
    def should_record(self) -> bool:
        """Whether this rank records."""
        return super().should_record and DATA.rank() == 0 and TENSOR.rank() == 0

    def _of_all_ranks(self) -> dict[int, Marks]:
        return dict(enumerate(gather_python_object(self._marks, PIPELINE.group())))


def _append(file: Path, events: list[dict[str, Any]]) -> None:
    """Add events to a list in a file, in place of its end."""
    text = ",\n".join(json.dumps(one) for one in events)
    with file.open("r+b") as out:
        out.seek(-len(_END), os.SEEK_END)
        is_first = out.tell() == 1
        out.write(("\n" if is_first else ",\n").encode() * bool(text) + text.encode() + _END)
