"""Locks and records of the simulated cores of one instance: the files that separate processes agree through.

A core is held by whoever has the lock (`flock`) on `nc<N>.lock`, so the kernel frees it when its holder dies, however
it dies. Records, one JSON file per claim, only tell who that is: one whose cores are free is stale and ignored. Lock
files are never removed, because removing a locked file would let two processes lock the same name. It does not choose
cores, see `cores.py`. If this user cannot write the folder, for example in a container with a read-only file system,
claims go to a private folder below the temporary one, which processes of the same user with the same home share, and a
warning says so once.

    <OPTIMUM_NEURON_HOME>/cores/<instance>/claims.lock       held while claims are looked at or changed
                                           nc<N>.lock        held by the process that holds the core
                                           <pid>-<n>.json    what a claim is for
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import env
from ..base.wording import aligned
from ..errors import ConfigError, CoreBusyError
from ..files.atomic import can_write, private_folder, write_bytes
from ..files.plain_json import parse_json
from ..hardware import InstanceSpec, resolve_instance

Row = dict[str, Any]
"""One use of one core: core_id, pid, model, since, command."""

_PATIENCE_S = 30.0
_POLL_S = 0.01
_COMMAND_CHARS = 200
_MAX_RECORD_BYTES = 1 << 20


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other processes from looking at or changing the claims of an instance, for a moment.

    Without it, two processes that need several cores each could both find one of them busy and both give up.
    """
    try:
        env.make_home()
        folder.mkdir(parents=True, exist_ok=True)
        with _opened(folder / "claims.lock") as descriptor:
            deadline = time.monotonic() + _PATIENCE_S
            while not _lock(descriptor):
                if time.monotonic() > deadline:
                    message = f"The claims in {folder} have been locked for {_PATIENCE_S:.0f} s."
                    hint = "Find a suspended process that uses the folder, and continue or end it."
                    raise CoreBusyError(message, hint=hint, folder=str(folder))
                time.sleep(_POLL_S)
            yield
    except OSError as error:
        message = f"The folder {folder} cannot be used for claims on simulated cores: {error}."
        hint = "Set OPTIMUM_NEURON_HOME to a folder that this user can write."
        raise ConfigError(message, hint=hint, folder=str(folder), error=str(error)) from error


def lock_core(folder: Path, core_id: int) -> int | None:
    """Take a core: the descriptor that holds it until it is closed, or None where another process has it.

    Leftovers of a killed holder are removed.
    """
    descriptor = _open(_lock_path(folder, core_id))
    try:
        taken = _lock(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    if not taken:
        os.close(descriptor)
        return None
    for path, record in _records(folder):
        if core_id in record["core_ids"]:
            path.unlink(missing_ok=True)
    return descriptor


def write_record(path: Path, core_ids: Sequence[int], model: str | None) -> None:
    """Publish the purpose of a claim to other processes; `model` is None where cores are kept for later models."""
    command = " ".join(shlex.join(sys.orig_argv).split())
    record = {
        "pid": os.getpid(),
        "core_ids": list(core_ids),
        "model": model,
        "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command if len(command) <= _COMMAND_CHARS else command[:_COMMAND_CHARS] + "...",
    }
    write_bytes(path, json.dumps(record, indent=1).encode(), error=ConfigError)


def read_rows(folder: Path, core_ids: Iterable[int], own: Collection[int]) -> list[Row]:
    """Who holds which of the cores; `own` are those of this process, whose locks cannot be tried.

    A core that is held without a readable record has a row of Nones.
    """
    records = [record for _, record in _records(folder)]
    rows: list[Row] = []
    for core_id in core_ids:
        if core_id not in own and _is_free(folder, core_id):
            continue
        uses = [record for record in records if core_id in record["core_ids"]]
        uses = [record for record in uses if record["model"] is not None] or uses[:1]
        unknown = dict.fromkeys(("pid", "model", "since", "command"))
        rows += [{"core_id": core_id} | {key: use[key] for key in unknown} for use in uses or [unknown]]
    return rows


def table(rows: Sequence[Row]) -> str:
    """Text table of rows."""
    lines = [("core", "pid", "model", "since", "command")]
    lines += [
        (
            str(row["core_id"]),
            str(row["pid"] or "unknown"),
            row["model"] or "(none yet)",
            row["since"] or "unknown",
            row["command"] or "unknown",
        )
        for row in rows
    ]
    return "\n".join(f"  {line}" for line in aligned(lines))


def _lock_path(folder: Path, core_id: int) -> Path:
    return folder / f"nc{core_id}.lock"


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = _open(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(folder: Path, core_id: int) -> bool:
    if not _lock_path(folder, core_id).exists():
        return True
    with _opened(_lock_path(folder, core_id)) as descriptor:
        return _lock(descriptor)


def _records(folder: Path) -> list[tuple[Path, Row]]:
    """Every readable record, oldest first."""
    records = []
    for path in folder.glob("*.json"):
        # Its process may remove it at any time, and that of another user may have made it unreadable.
        # A pipe would block the reader, and no record is as large as the limit.
        with contextlib.suppress(OSError):
            if not path.is_file() or path.stat().st_size > _MAX_RECORD_BYTES:
                continue
            record = _parsed(path.read_bytes())
            if record is not None:
                records.append((path, record))
    return sorted(records, key=lambda item: (item[1]["since"], len(item[0].name), item[0].name))


def _parsed(text: bytes) -> Row | None:
    """Return a record, or None if unreadable: only the lock counts, and its row then says "unknown"."""
    try:
        record = parse_json(text)
    except ValueError:
        return None
    kinds: dict[str, Any] = {"pid": int, "core_ids": list, "model": (str, type(None)), "since": str, "command": str}
    if not isinstance(record, dict) or not all(isinstance(record.get(key), kind) for key, kind in kinds.items()):
        return None
    return record if record["pid"] > 0 else None


logger = logging.getLogger(__name__)

_PRIVATE: dict[Path, Path] = {}
"""Private folder by shared folder. It stays the same if the home becomes writable: claims have been made in it."""


def claimed_clusters(environ: Mapping[str, str] = os.environ) -> list[InstanceSpec]:
    """Return the instances with a count, such as "2xtrn1.32xlarge", that have a folder of claims."""
    clusters = []
    for folder in sorted((env.home(environ) / "cores").glob("[0-9]*x*")):
        with contextlib.suppress(ConfigError):  # a folder of another name
            clusters.append(resolve_instance(folder.name, environ).value)
    return clusters


def claims_folder(instance: InstanceSpec, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that has the claims on the cores of an instance; it may not exist yet."""
    shared = (env.home(environ) / "cores" / instance.name).absolute()
    if shared not in _PRIVATE:
        # Another user may have made the locks in a folder that both can write.
        if can_write(shared) and all(os.access(lock, os.W_OK) for lock in shared.glob("*.lock")):
            return shared
        is_told = any(other.parent == shared.parent for other in _PRIVATE)
        _PRIVATE[shared] = private_folder(shared)
        if not is_told:
            logger.warning(
                "Cannot write %s, so claims on simulated cores are kept in %s. Processes of other users, and those "
                "with another OPTIMUM_NEURON_HOME or temporary folder, do not see them.",
                shared.parent,
                _PRIVATE[shared].parent,
            )
    return _PRIVATE[shared]
