"""`optimum.neuron.cache.cleanup`: states and sizes of the compile cache on this machine, and its cleaning.

A cache has a folder for each version of the compiler, and in it a folder for each compiled program:

    neuronxcc-VERSION/MODULE_HASH/model.neff, model.done     usable
    ...                                    model.log         a compile that failed
    ...                                    *.lock            a compile that runs, or was killed

The cache of this package has this layout too, without logs and locks in the entries.
"""

from __future__ import annotations

import dataclasses
import enum
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
from optimum.neuron._log import logger

from optimum_neuron.base import env
from optimum_neuron.compiler import COMPILER_VERSION
from optimum_neuron.errors import CacheError

_UNITS = ("KB", "MB", "GB")


class CacheEntryState(enum.StrEnum):
    """What an entry of a cache is."""

    SUCCESS = "success"
    FAILED = "failed"
    LOCKED = "locked"
    EMPTY = "empty"


@dataclasses.dataclass
class CacheEntryStatus:
    """One entry of a cache."""

    path: str
    state: CacheEntryState
    size_bytes: int = 0


@dataclasses.dataclass
class CacheStatus:
    """The entries of a cache, and how many there are of each kind."""

    cache_path: str
    compiler_versions: list[str] = dataclasses.field(default_factory=list)
    """Folders of compilers in the cache."""
    current_compiler_version: str | None = None
    """Folder of the installed compiler."""
    success_count: int = 0
    failed_count: int = 0
    locked_count: int = 0
    empty_count: int = 0
    total_size_bytes: int = 0
    success_size_bytes: int = 0
    failed_size_bytes: int = 0
    locked_size_bytes: int = 0
    empty_size_bytes: int = 0
    old_version_size_bytes: int = 0
    """Size of the entries of other compilers."""
    entries: list[CacheEntryStatus] = dataclasses.field(default_factory=list)

    @staticmethod
    def _format_size(size_bytes: int) -> str:
        """A size in the unit that leaves fewer than 1024 of them."""
        size, unit = float(size_bytes), "B"
        for larger in _UNITS:
            if size < 1024:
                break
            size, unit = size / 1024, larger
        return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"

    def summary(self) -> str:
        """Return the counts and sizes as text for people."""
        size = self._format_size
        current = self.current_compiler_version
        marks = {name: "current" if current and name.startswith(current) else "old" for name in self.compiler_versions}
        lines = [f"Cache path: {self.cache_path}", f"Total size: {size(self.total_size_bytes)}"]
        lines += ["", "Compiler versions:", *(f"  - {name} ({mark})" for name, mark in marks.items())]
        lines += ["", "Entry counts:"]
        for state in CacheEntryState:
            count, size_bytes = getattr(self, f"{state.value}_count"), getattr(self, f"{state.value}_size_bytes")
            lines.append(f"  {state.value.title() + ':':<8} {count:>6}  ({size(size_bytes)})")
        if self.old_version_size_bytes:
            lines += ["", f"Old compiler version data: {size(self.old_version_size_bytes)}"]
        return "\n".join(lines)


@dataclasses.dataclass
class CleanupResult:
    """What was removed from a cache, or would be."""

    failed_removed: int = 0
    locks_removed: int = 0
    empty_removed: int = 0
    old_versions_removed: list[str] = dataclasses.field(default_factory=list)
    wiped: bool = False
    """Whether the whole cache was removed."""
    bytes_freed: int = 0
    skipped_locks_reason: str | None = None
    """Why nothing was removed, if a compiler runs."""

    def summary(self) -> str:
        """Return what was done as text for people."""
        freed = f"Freed {CacheStatus._format_size(self.bytes_freed)}."
        if self.wiped:
            return f"Cache wiped. {freed}"
        counts = {
            "failed entries": self.failed_removed,
            "stale lock files": self.locks_removed,
            "empty entries": self.empty_removed,
        }
        parts = [f"Removed {count} {what}." for what, count in counts.items() if count]
        if self.old_versions_removed:
            parts.append(f"Removed old compiler versions: {', '.join(self.old_versions_removed)}.")
        if self.skipped_locks_reason:
            parts.append(f"Skipped lock cleanup: {self.skipped_locks_reason}.")
        return " ".join([*(parts or ["Nothing to clean up."]), freed])


def get_local_cache_status(cache_dir: str | Path | None = None) -> CacheStatus:
    """Return the entries of a cache on this machine, and how many there are of each kind.

    Args:
        cache_dir: the cache; None asks NEURON_COMPILE_CACHE_URL.
    """
    root = _get_cache_path(cache_dir)
    status = CacheStatus(cache_path=str(root))
    if not root.is_dir():
        return status
    status.current_compiler_version = _current_folder()
    for folder in _versions(root):
        status.compiler_versions.append(folder.name)
        for entry in _entries(folder):
            state, size = _classify_entry(entry), _dir_size(entry)
            status.entries.append(CacheEntryStatus(path=str(entry), state=state, size_bytes=size))
            status.total_size_bytes += size
            for field, amount in ((f"{state.value}_count", 1), (f"{state.value}_size_bytes", size)):
                setattr(status, field, getattr(status, field) + amount)
            if _is_old(folder):
                status.old_version_size_bytes += size
    return status


def cleanup_local_cache(
    cache_dir: str | Path | None = None,
    remove_failed: bool = True,
    remove_locks: bool = True,
    remove_empty: bool = False,
    remove_old_versions: bool = False,
    wipe: bool = False,
    dry_run: bool = False,
) -> CleanupResult:
    """Remove what cannot be used from a cache on this machine; while a compiler runs, nothing is removed.

    Args:
        cache_dir: the cache; None asks NEURON_COMPILE_CACHE_URL.
        remove_failed: remove entries of compiles that failed.
        remove_locks: remove locks; the rest of such an entry stays.
        remove_empty: remove entries without a program, a log, and a lock.
        remove_old_versions: remove the folders of other versions of the compiler.
        wipe: remove the whole cache.
        dry_run: only count what would be removed.
    """
    root, result = _get_cache_path(cache_dir), CleanupResult()
    if not root.is_dir():
        return result
    if wipe:
        result.wiped = True
        _remove(root, result, dry_run)
        return result
    if _is_neuronx_cc_running():
        result.skipped_locks_reason = "neuronx-cc processes are running"
        logger.warning("The cache %s is not cleaned: %s.", root, result.skipped_locks_reason)
        return result
    for folder in _versions(root):
        if remove_old_versions and _is_old(folder):
            result.old_versions_removed.append(folder.name)
            _remove(folder, result, dry_run)
            continue
        for entry in _entries(folder):
            state = _classify_entry(entry)
            if state is CacheEntryState.FAILED and remove_failed:
                result.failed_removed += 1
                _remove(entry, result, dry_run)
            elif state is CacheEntryState.EMPTY and remove_empty:
                result.empty_removed += 1
                _remove(entry, result, dry_run)
            elif state is CacheEntryState.LOCKED and remove_locks:
                for lock in sorted(entry.glob("*.lock")):
                    result.locks_removed += 1
                    _remove(lock, result, dry_run)
    return result


def _remove(path: Path, result: CleanupResult, dry_run: bool) -> None:
    """Add the size of a file or folder to what is freed, and remove it."""
    result.bytes_freed += _dir_size(path) if path.is_dir() else path.stat().st_size
    if dry_run:
        return
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _get_cache_path(cache_dir: str | Path | None) -> Path:
    """The folder of a cache.

    Raises:
        CacheError: the cache is at a URL.
    """
    name = env.compile_cache_url() if cache_dir is None else str(cache_dir)
    if "://" in name and not name.startswith("file://"):
        message = f"The compile cache {name} is not on this machine."
        raise CacheError(message, hint="Use `optimum-cli neuron cache status` and `cleanup`.", cache=name)
    return Path(name.removeprefix("file://")).expanduser()


def _get_current_compiler_version() -> str | None:
    """The version of the compiler; None would mean that there is none."""
    return COMPILER_VERSION


def _current_folder() -> str | None:
    version = _get_current_compiler_version()
    return None if version is None else f"neuronxcc-{version}"


def _is_old(folder: Path) -> bool:
    current = _current_folder()
    return current is not None and not folder.name.startswith(current)


def _is_neuronx_cc_running() -> bool:
    """Whether a process of the compiler runs on this machine."""
    return any((process.info["name"] or "").startswith("neuronx-cc") for process in psutil.process_iter(["name"]))


def _versions(root: Path) -> Iterator[Path]:
    """The folders of compilers, sorted."""
    yield from (path for path in sorted(root.iterdir()) if path.is_dir() and path.name.startswith("neuronxcc-"))


def _entries(folder: Path) -> Iterator[Path]:
    """The entries of a compiler, sorted."""
    yield from (path for path in sorted(folder.iterdir()) if path.is_dir() and path.name.startswith("MODULE_"))


def _classify_entry(entry: Path) -> CacheEntryState:
    """The state of an entry by its files."""
    has_program = (entry / "model.neff").exists()
    if has_program and (entry / "model.done").exists():
        return CacheEntryState.SUCCESS
    if not has_program and (entry / "model.log").exists():
        return CacheEntryState.FAILED
    return CacheEntryState.LOCKED if any(entry.glob("*.lock")) else CacheEntryState.EMPTY


def _dir_size(folder: Path) -> int:
    """The size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
