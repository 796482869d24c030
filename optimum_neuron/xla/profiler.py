"""Profiles of training steps: `torch_xla.debug.profiler`.

    server = start_server(9012)
    for step, batch in enumerate(loader):
        with StepTrace("train_step", step_num=step), Trace("forward"):
            ...

`trace("localhost:9012", "profile")` in another process then records the training process for a second. Recordings are
those of `torch.profiler`, which TensorBoard and Perfetto open; scopes are its user annotations.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError
from . import graphs
from .ordinals import is_master_ordinal

_is_step_marked = False
_recording: tuple[torch.profiler.profile, Path] | None = None
_lock = threading.Lock()


def set_marked_step(value: bool) -> None:
    """Say whether a `StepTrace` ends the step, so that a loader does not."""
    global _is_step_marked
    _is_step_marked = value


def marked_step() -> bool:
    """Return whether a `StepTrace` ends the step."""
    return _is_step_marked


def take_marked_step() -> bool:
    """Return the same, and forget it."""
    was_marked = _is_step_marked
    set_marked_step(False)
    return was_marked


class Trace:
    """A context manager with a name that profiles show.

    Args:
        name: the name.
        **kwargs: values that are shown with it, such as `step_num`.
    """

    def __init__(self, name: str, **kwargs: object) -> None:
        self.name = name
        values = ", ".join(f"{key}={value}" for key, value in kwargs.items())
        self._scope = torch.profiler.record_function(name, values or None)

    def __enter__(self) -> Trace:
        self._scope.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._scope.__exit__(*raised)


class StepTrace(Trace):
    """A `Trace` of one step, at whose end the graph ends."""

    def __enter__(self) -> Trace:
        set_marked_step(True)
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        graphs.sync()
        super().__exit__(*raised)


def trace_me(scope: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that puts the calls of a function in a `Trace`.

    Args:
        scope: name in profiles.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: object, **options: object) -> Any:
            with Trace(scope):
                return function(*args, **options)

        return call

    return decorate


def start_trace(log_dir: str | os.PathLike[str]) -> None:
    """Start a recording of all threads.

    Args:
        log_dir: folder for the recording.

    Raises:
        RuntimeError: another recording runs.
    """
    global _recording
    with _lock:
        if _recording is not None:
            raise RuntimeError("A profile is being recorded already. Call stop_trace first.")
        from ..upstream.torch import ExperimentalConfig

        profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            experimental_config=ExperimentalConfig(profile_all_threads=True),
        )
        profile.start()
        _recording = profile, Path(log_dir)


def stop_trace() -> None:
    """End the recording, and write it to a file that ends in `.pt.trace.json`.

    Raises:
        RuntimeError: there is none.
    """
    global _recording
    with _lock:
        if _recording is None:
            raise RuntimeError("No profile is being recorded. Call start_trace first.")
        (profile, folder), _recording = _recording, None
        profile.stop()
        torch.profiler.tensorboard_trace_handler(str(folder))(profile)


class ProfilerServer:
    """Waits for `trace` of another process; it ends with the object.

    Several servers may use one port, as those of gRPC: one of them answers.

    Args:
        port: port on this machine.

    Raises:
        RuntimeError: the port is invalid, or another program uses it.
    """

    def __init__(self, port: int) -> None:
        try:
            self._socket = socket.create_server(("", port), reuse_port=hasattr(socket, "SO_REUSEPORT"))
        except (OSError, OverflowError) as error:
            raise RuntimeError(f"The profiler server cannot use port {port}: {error}.") from error
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=_serve, args=(self._socket,), daemon=True, name="profiler_server").start()

    def close(self) -> None:
        """Stop waiting."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # its thread waits no longer
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self.close()


def start_server(port: int, only_on_master: bool = True) -> ProfilerServer | None:
    """Let other processes profile this one with `trace`; keep the result, with which the server ends.

    Args:
        port: port on this machine.
        only_on_master: start it in the first process of a machine only, and return None in others.

    Raises:
        RuntimeError: the port is invalid, or another program uses it.
    """
    return ProfilerServer(port) if not only_on_master or is_master_ordinal() else None


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            answer = "done"
            try:
                request = json.loads(stream.readline())
                time.sleep(request["delay_ms"] / 1000)
                start_trace(request["logdir"])
                time.sleep(request["duration_ms"] / 1000)
                stop_trace()
            except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
                answer = f"{type(error).__name__}: {error}"
            stream.write(f"{answer}\n")
            stream.flush()


def trace(
    service_addr: str,
    logdir: str,
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,
) -> None:
    """Record processes with `start_server` for some time, and return when their files are written.

    Args:
        service_addr: such as "localhost:9012", with commas between several.
        logdir: folder for recordings.
        duration_ms: time of the recording.
        num_tracing_attempts: how often to try to connect.
        host_tracer_level: 0 records nothing; other levels record operators and scopes.
        device_tracer_level: 0 or 1; the simulated device's times are in `torch.neuron` reports.
        delay_ms: time before the recording.
        timeout_s: time for a connection and its answer.
        interval_s: time between attempts.

    Raises:
        ConfigError: nothing would be recorded.
        RuntimeError: a server cannot be reached, or reports an error.
    """
    if host_tracer_level == 0:
        message = "host_tracer_level=0 records nothing."
        raise ConfigError(message, hint="Set host_tracer_level to 1, 2 or 3.", host_tracer_level=0)
    request = json.dumps({"logdir": str(logdir), "duration_ms": duration_ms, "delay_ms": delay_ms})
    for address in service_addr.split(","):
        host, _, port = address.strip().rpartition(":")
        connection = _connected((host, int(port)), num_tracing_attempts, timeout_s, interval_s)
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(f"{request}\n")
            stream.flush()
            answer = stream.readline().strip()
        if answer != "done":
            raise RuntimeError(f"The profiler server at {address} reports an error: {answer or 'no answer'}.")


def _connected(address: tuple[str, int], attempts: int, timeout_s: int, interval_s: int) -> socket.socket:
    for left in reversed(range(max(attempts, 1))):
        try:
            return socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            if left == 0:
                raise RuntimeError(f"No profiler server answers at {address[0]}:{address[1]}: {error}.") from error
            time.sleep(interval_s)
    raise AssertionError


def trace_detached(*args: object, **kwargs: object) -> None:
    """Call `trace` in another thread.

    Args:
        *args: as of `trace`.
        **kwargs: as of `trace`.
    """
    threading.Thread(target=trace, args=args, kwargs=kwargs).start()
