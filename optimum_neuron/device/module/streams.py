"""Streams and events. Work is done when a call returns: a stream is a name, an event a point in time."""

from __future__ import annotations

import torch

from ...upstream.torch import DeviceType
from .. import library
from .devices import Device, index_of


class Event(torch.Event):
    """A point in time on a stream, for measuring on this host if `enable_timing` is set.

    The other arguments are those of torch's events: waiting takes no time, and no other process shares an event.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        library.load()
        return super().__new__(
            cls, device="neuron", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds between two recorded events, on this host's clock."""
        # torch's own takes exact `torch.Event` objects only.
        if not self.event_id or not end_event.event_id:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return library.load().neuron_elapsed_ms(self.event_id, end_event.event_id)


class Stream(torch.Stream):
    """A stream of a device; torch itself names an existing one by stream_id, device_index, and device_type."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: object) -> Stream:
        library.load()
        if kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("neuron", index_of(device)), priority=priority)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record an event, by default a new one."""
        event = Event() if event is None else event
        event.record(self)
        return event


class StreamContext:
    """Make a stream current for a block; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            set_stream(self._before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Make a stream current for a block; None changes nothing."""
    return StreamContext(stream)


def current_stream(device: Device = None) -> torch.Stream:
    """The stream that is current on a device."""
    library.load()
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device: Device = None) -> torch.Stream:
    """The stream that a device starts with."""
    library.load()
    kind = DeviceType.PrivateUse1.value
    return torch.Stream(stream_id=0, device_index=index_of(device), device_type=kind)


def set_stream(stream: torch.Stream) -> None:
    """Make a stream current."""
    library.load()
    torch.accelerator.set_stream(stream)
