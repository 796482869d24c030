"""Status of a process's simulated cores for other processes: one small JSON file next to its claims.

    <OPTIMUM_NEURON_HOME>/cores/<instance>/<pid>.status

                                           watched        touched by tools that want to know simulated times

It appears whole or not at all, and is worth something only while its process holds cores: who does, the locks say
(`core_files.py`). A file that is foreign, damaged or of another version counts as none. Counters only grow, so that
readers may come as often as they like; the clock is `time.monotonic`, which all processes of a machine share. Simulated
times cost a process some tenths of a second to count, so it does that only where a tool is watching. This module knows
the files; `publisher.py` fills them in.

    >>> import pathlib, tempfile
    >>> from optimum_neuron.runtime.status import Status, read_status, write_status
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_status(pathlib.Path(folder), Status(pid=7, tag="7", at_s=1.5, cores=(), models=(), errors={}))
    ...     read_status(pathlib.Path(folder), 7).at_s
    1.5
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..files.atomic import write_bytes

VERSION = 1
"""Of the format; another one is not read."""
_MAX_BYTES = 4 * 2**20
_WATCHED_S = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreStatus:
    """One core that the process holds."""

    core_id: int
    """Logical core on the instance."""
    capacity_bytes: int
    hbm_bytes: Mapping[str, Mapping[str, int]]
    """HBM in use, by owner and category (`hbm.CATEGORIES`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphStatus:
    """One entry point of a loaded model that was called."""

    name: str
    num_calls: int
    """Calls that ended, since the model was loaded."""
    host_us: float
    """Measured time that this host took to simulate them."""
    device_us: float | None
    """Simulated time of one call; None before a tool watched."""
    launch_us: float | None
    """The part of it that starts the call."""
    flops: float | None
    """Operations of one call, a multiplication and an addition being two."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelStatus:
    """One loaded model."""

    model_id: int
    """Number within the process, of this load alone."""
    name: str
    """The owner of its HBM."""
    core_ids: tuple[int, ...]
    running_us: float
    """Measured time that calls under way have taken so far."""
    graphs: tuple[GraphStatus, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """Activity of one process on the cores of one instance."""

    pid: int
    tag: str
    """NEURON_PROCESS_TAG, or else the process id."""
    at_s: float
    """When this was so, by `time.monotonic`."""
    cores: tuple[CoreStatus, ...]
    models: tuple[ModelStatus, ...]
    errors: Mapping[str, int]
    """Calls that failed, by outcome, a key of neuron-monitor's `execution_summary`."""


def status_path(folder: Path, pid: int) -> Path:
    """The file of a process, in the folder of the claims."""
    return folder / f"{pid}.status"


def watch(folder: Path) -> None:
    """Ask the processes of an instance to tell simulated times too, for the next half minute.

    If the folder is not writable, they continue with the unsolicited part.
    """
    with contextlib.suppress(OSError):
        (folder / "watched").touch()


def is_watched(folder: Path) -> bool:
    """Return whether a tool has asked for simulated times."""
    with contextlib.suppress(OSError):
        return abs(time.time() - (folder / "watched").stat().st_mtime) < _WATCHED_S
    return False


def write_status(folder: Path, status: Status) -> None:
    """Replace the file of a process."""
    # Not `asdict`: it makes tuples of generators, see `publisher._tuple`.
    text = json.dumps({"version": VERSION, **vars(status)}, default=vars, separators=(",", ":"))
    write_bytes(status_path(folder, status.pid), text.encode(), error=ConfigError, durable=False)


def read_status(folder: Path, pid: int) -> Status | None:
    """Return the last status of a process, or None if there is no readable one."""
    path = status_path(folder, pid)
    # `_value` raises ValueError; a file may go, or be nested deeply or a pipe, as anybody may write into the folder.
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            data = json.loads(path.read_bytes())
            if isinstance(data, dict) and data.get("version") == VERSION:
                status: Status = _value(Status, data)
                return status if status.pid == pid else None
    return None


def _value(kind: Any, data: Any) -> Any:
    """A value of the file converted to the type of its field, or a ValueError."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if data is None else _value(arguments[0], data)
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        fields = typing.get_type_hints(kind)
        return kind(**{name: _value(of, data.get(name)) for name, of in fields.items()})  # type: ignore[operator]
    if origin is tuple and isinstance(data, list):
        return tuple(_value(arguments[0], item) for item in data)
    if origin is Mapping and isinstance(data, dict):
        return {name: _value(arguments[1], item) for name, item in data.items()}
    if kind is str and isinstance(data, str):
        return data
    if kind is int and type(data) is int and data >= 0:
        return data
    if kind is float and type(data) in (int, float) and 0 <= data < math.inf:
        return float(data)
    raise ValueError(f"{data!r} is no {kind}")
