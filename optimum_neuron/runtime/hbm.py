"""The HBM ledger of a simulated core: charges by owner and category, and an error with the whole table.

A core belongs to one process, so the ledger of a process is the truth about its cores. It counts bytes and allocates
nothing: the tensors are host memory. Sizes are printed as the real runtime prints them: 1 GB is 2**30 bytes.

    >>> from optimum_neuron.hardware import TARGETS
    >>> from optimum_neuron.runtime.hbm import HbmLedger
    >>> ledger = HbmLedger(capacity_bytes=2**30, core_id=3, target=TARGETS["inf2"])
    >>> weights = ledger.charge("weights", 2**29, "bert")
    >>> ledger.name, ledger.available_bytes
    ('ND 1:NC 1', 536870912)
    >>> weights.release()
    >>> ledger.used_bytes
    0
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Mapping

from ..base.wording import aligned
from ..compiler import MICROCODE_BYTES
from ..errors import ConfigError, DeviceMemoryError, invalid_choice
from ..hardware import TARGETS, InstanceSpec, Target

MICROCODE_OWNER = "microcode"
"""Owner of the runtime's own memory on a core."""
TORCH_OWNER = "torch tensors"
"""Owner of the tensors of torch's device, in claims and ledgers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Category:
    """Uses of HBM, under this package's name and the real runtime's."""

    name: str
    runtime_name: str
    """Name in the real runtime's messages (Neuron docs, Neuron device memory)."""
    meaning: str


CATEGORIES: Mapping[str, Category] = {
    category.name: category
    for category in (
        Category(name="weights", runtime_name="model constants", meaning="parameters and constants of a model"),
        Category(
            name="kv_cache",
            runtime_name="tensors",
            meaning="state on the device: KV caches, and tensors of the torch device",
        ),
        Category(name="scratch", runtime_name="scratchpad", meaning="peak memory of intermediate results"),
        Category(name="code", runtime_name="model code", meaning="instructions, and the microcode of the core"),
    )
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Entry:
    category: str
    size_bytes: int
    owner: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Meter:
    """An owner that counts its own bytes: charging each tensor of torch's device here would cost microseconds."""

    category: str
    owner: str
    used_bytes: Callable[[], int]
    set_limit: Callable[[int], None]

    def entry(self) -> _Entry:
        return _Entry(category=self.category, size_bytes=self.used_bytes(), owner=self.owner)


class Charge:
    """A part of a core's HBM in use; made by `HbmLedger.charge`, freed by `release` or with the last reference."""

    def __init__(self, entry: _Entry, free: Callable[[], object]) -> None:
        self.category, self.size_bytes, self.owner = entry.category, entry.size_bytes, entry.owner
        self._finalizer = weakref.finalize(self, free)
        # A ledger is not read at exit.
        self._finalizer.atexit = False

    def release(self) -> None:
        """Free the bytes; calling it again does nothing."""
        self._finalizer()


class HbmLedger:
    """HBM of one core: charges by category and owner. Threads may share it."""

    def __init__(
        self, capacity_bytes: int, core_id: int, target: Target, *, used_by_others: Callable[[], int] = lambda: 0
    ) -> None:
        self._capacity_bytes, self.target = capacity_bytes, target
        self._used_by_others = used_by_others
        self.core_id = core_id
        """Logical core on the instance."""
        # Releasing is one `pop`, without the lock: it may run in a finalizer while this thread holds the lock.
        self._entries: dict[int, _Entry] = {}
        self._meters: dict[str, _Meter] = {}
        self._keys = itertools.count()
        self._lock = threading.Lock()

    @property
    def capacity_bytes(self) -> int:
        """Memory of the core; where cores of a chip share it, what the others leave."""
        return self._capacity_bytes - self._used_by_others()

    @property
    def name(self) -> str:
        """Device and core within the device, as the real runtime writes them."""
        device, core = divmod(self.core_id, self.target.logical_cores_per_chip())
        return f"ND {device}:NC {core}"

    @property
    def used_bytes(self) -> int:
        """Sum of all charges."""
        return _total(self._all())

    @property
    def available_bytes(self) -> int:
        """Capacity less all charges."""
        return self.capacity_bytes - self.used_bytes

    def used_by_category(self) -> dict[str, int]:
        """Bytes by category, every category included."""
        return _by_category(self._all())

    def used_by_owner(self) -> dict[str, dict[str, int]]:
        """Bytes by owner and category, every category included."""
        return {owner: _by_category(entries) for owner, entries in _by_owner(self._all()).items()}

    def attach(
        self, owner: str, category: str, *, used_bytes: Callable[[], int], set_limit: Callable[[int], None]
    ) -> None:
        """Count an owner that keeps its own account and must not pass a limit; attaching it again replaces it.

        `set_limit` is called with the bytes that it may have, now and whenever others take more.
        """
        self._meters[owner] = _Meter(category=category, owner=owner, used_bytes=used_bytes, set_limit=set_limit)
        set_limit(self.limit_of(owner))

    def limit_of(self, owner: str) -> int:
        """Return the bytes that an attached owner may use: all that other owners leave."""
        return self.capacity_bytes - _total([entry for entry in self._all() if entry.owner != owner])

    def refused(self, owner: str, category: str, size_bytes: int) -> str:
        """The message for an attached owner whose request passes its limit, with the table."""
        entry = _Entry(category=category, size_bytes=size_bytes, owner=owner)
        return str(self._refused(entry, size_bytes - self.available_bytes, None))

    def charge(
        self, category: str, size_bytes: int, owner: str, *, suggest: Callable[[int], str] | None = None
    ) -> Charge:
        """Take HBM; the error has the table of current charges.

        Args:
            category: a name of `CATEGORIES`.
            size_bytes: how much.
            owner: name of the model.
            suggest: returns the hint of the error: the smallest change that would fit, for the number of missing bytes.
        """
        if category not in CATEGORIES:
            raise invalid_choice("category", category, CATEGORIES)
        if size_bytes < 0:
            hint = "Call `release` of a charge to free its memory."
            raise ConfigError(f"A charge of {size_bytes} bytes is negative.", hint=hint, size_bytes=size_bytes)
        entry = _Entry(category=category, size_bytes=size_bytes, owner=owner)
        with self._lock:
            missing = size_bytes - self.available_bytes
            if missing <= 0:
                key = next(self._keys)
                self._entries[key] = entry
                for meter in list(self._meters.values()):
                    meter.set_limit(self.limit_of(meter.owner))
        if missing > 0:
            raise self._refused(entry, missing, suggest)
        return Charge(entry, lambda: self._entries.pop(key, None))

    def table(self) -> str:
        """Text table: a row for the core, one for each owner, largest first, and what is available; simulated."""
        entries = self._all()
        owners = sorted(_by_owner(entries).items(), key=lambda item: -_total(item[1]))
        rows = [(self.name, entries), *((f"  {owner}", charged) for owner, charged in owners)]
        lines = [["", "total", *(category.runtime_name for category in CATEGORIES.values())]]
        lines += [[name, size_text(_total(part)), *map(size_text, _by_category(part).values())] for name, part in rows]
        lines.append(["available", size_text(self.capacity_bytes - _total(entries)), *("" for _ in CATEGORIES)])
        title = f"HBM of core {self.core_id} of {self.target.name}, {size_text(self.capacity_bytes)}, simulated:"
        return "\n".join([title, *aligned(lines, separator=" | ", right=True)])

    def _all(self) -> list[_Entry]:
        return [*list(self._entries.values()), *(meter.entry() for meter in list(self._meters.values()))]

    def _refused(self, entry: _Entry, missing: int, suggest: Callable[[int], str] | None) -> DeviceMemoryError:
        usage = CATEGORIES[entry.category].runtime_name
        return DeviceMemoryError(
            f"Failed to allocate {size_text(entry.size_bytes)} (usage: {usage}) on {self.name}: "
            f"'{entry.owner}' needs {size_text(missing)} more than is available.\n{self.table()}",
            hint=suggest(missing) if suggest else self._advice(missing, entry.owner),
            core_id=self.core_id,
            owner=entry.owner,
            category=entry.category,
            requested_bytes=entry.size_bytes,
            missing_bytes=missing,
            capacity_bytes=self.capacity_bytes,
            used_by_category=self.used_by_category(),
            simulated=True,
        )

    def _advice(self, missing: int, requester: str) -> str:
        sizes = {owner: _total(entries) for owner, entries in _by_owner(self._all()).items()}
        keeping = (MICROCODE_OWNER, requester if requester in self._meters else None)
        enough = [(size, owner) for owner, size in sizes.items() if size >= missing and owner not in keeping]
        if enough:
            size, owner = min(enough)
            return f"Release '{owner}', which uses {size_text(size)}, or allocate {size_text(missing)} less."
        return f"Allocate {size_text(missing)} less: use a smaller batch, a shorter sequence or a narrower dtype."


def _total(entries: list[_Entry]) -> int:
    return sum(entry.size_bytes for entry in entries)


def _by_category(entries: list[_Entry]) -> dict[str, int]:
    return {name: _total([entry for entry in entries if entry.category == name]) for name in CATEGORIES}


def _by_owner(entries: list[_Entry]) -> dict[str, list[_Entry]]:
    owners: dict[str, list[_Entry]] = {}
    for entry in entries:
        owners.setdefault(entry.owner, []).append(entry)
    return owners


def size_text(size_bytes: int) -> str:
    """Bytes as the real runtime prints them: 1GB is 2**30 bytes."""
    for power, unit in ((30, "GB"), (20, "MB"), (10, "KB")):
        if size_bytes >= 2**power:
            return f"{size_bytes / 2**power:.3f}{unit}"
    return f"{size_bytes}B"


_LEDGERS: dict[tuple[str, int], tuple[HbmLedger, Charge]] = {}
_LEDGERS_LOCK = threading.Lock()


def _forget_ledgers() -> None:
    """In a forked child: it claims its own cores, which are empty."""
    _LEDGERS.clear()
    _LEDGERS_LOCK.release()


os.register_at_fork(before=_LEDGERS_LOCK.acquire, after_in_parent=_LEDGERS_LOCK.release, after_in_child=_forget_ledgers)


def ledger(instance: InstanceSpec, core_id: int) -> HbmLedger:
    """The ledger of one core in this process; the core's microcode is charged already.

    Raises:
        ConfigError: the instance has no such core.

    Example:
        ```python
        from optimum_neuron.hardware import resolve_instance
        from optimum_neuron.runtime.hbm import ledger

        core = ledger(resolve_instance("inf2.xlarge").value, 0)
        assert core.used_by_category()["code"] == 96 * 2**20
        ```
    """
    total = instance.num_logical_cores()
    if not 0 <= core_id < total:
        message = f"{instance.name} has no core {core_id}, it has {total} cores."
        raise ConfigError(message, hint=f"Use 0 to {total - 1}.", core_id=core_id, num_cores=total)
    target = TARGETS[instance.family]
    with _LEDGERS_LOCK:
        if (instance.name, core_id) not in _LEDGERS:
            others = functools.partial(_used_on_chip, instance, core_id, target)
            shared = {"used_by_others": others} if target.shares_memory else {}
            _LEDGERS[instance.name, core_id] = empty_ledger(target, core_id, **shared)
        return _LEDGERS[instance.name, core_id][0]


def _used_on_chip(instance: InstanceSpec, core_id: int, target: Target) -> int:
    """Memory that the other cores of a chip use in this process, where they share it."""
    width = target.logical_cores_per_chip()
    chip = range(core_id // width * width, core_id // width * width + width)
    made = [_LEDGERS.get((instance.name, core)) for core in chip if core != core_id]
    return sum(entry[0].used_bytes for entry in made if entry is not None)


def empty_ledger(
    target: Target, core_id: int, *, used_by_others: Callable[[], int] = lambda: 0
) -> tuple[HbmLedger, Charge]:
    """Return a new ledger of a core and the charge of its microcode, which has to live as long as the ledger."""
    made = HbmLedger(target.hbm_bytes_of_one_core(), core_id, target, used_by_others=used_by_others)
    # 96 MB for each physical core (Neuron docs, Neuron device memory).
    num_physical = target.chip.num_cores // target.logical_cores_per_chip()
    return made, made.charge("code", MICROCODE_BYTES * num_physical, MICROCODE_OWNER)
