"""Loaders that bring batches to a device and end a step with each: `pl.MpDeviceLoader`.

    loader = MpDeviceLoader(data_loader, "xla")
    for inputs, labels in loader:  # a graph ends before each batch, and once more after the last
        ...

A thread reads batches ahead. They are copied to the device when they are asked for, between two graphs.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..errors import ConfigError
from . import graphs, profiler
from .nested import send_cpu_data_to_device

_END = object()


class ParallelLoader:
    """Reads batches ahead, and gives them to one device or to several in turn.

    Args:
        cpu_loader: loader of batches on the CPU.
        devices: where they go: batch i to device i modulo their number.
        batchdim: dimension of the batch; batches are not divided, so it has no effect.
        batches_per_execution: batches in one graph.
        loader_prefetch_size: batches that are read ahead.
        device_prefetch_size: further batches that are read ahead for each device.
        host_to_device_transfer_threads: at least 1; copies to a simulated device need no threads.
        input_sharding: None; see `send_cpu_data_to_device`.

    Raises:
        ConfigError: an argument is out of range.
    """

    def __init__(
        self,
        cpu_loader: Iterable[Any],
        devices: Iterable[str | torch.device],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: object = None,
    ) -> None:
        sizes = {
            "batches_per_execution": batches_per_execution,
            "loader_prefetch_size": loader_prefetch_size,
            "device_prefetch_size": device_prefetch_size,
            "host_to_device_transfer_threads": host_to_device_transfer_threads,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"{name} is {size}.", hint=f"Set {name} to at least 1.", argument=name, value=size)
        self._devices = [torch.device(device) for device in devices]
        self._input_sharding = input_sharding
        self._batches_per_execution = batches_per_execution
        self._loader = cpu_loader
        ahead = loader_prefetch_size + device_prefetch_size * len(self._devices)
        self._reader = _Reader(iter(cpu_loader), len(self._devices), ahead)

    @property
    def batches_per_execution(self) -> int:
        """Batches in one graph."""
        return self._batches_per_execution

    def per_device_loader(self, device: str | torch.device) -> PerDeviceLoader:
        """Return the iterator over the batches of one device."""
        return PerDeviceLoader(self, torch.device(device))

    def per_device_samples(self) -> int:
        """Return the number of batches of each device."""
        return len(self._loader) // len(self._devices)  # type: ignore[arg-type]  # asked of loaders with a length only

    def next_item(self, device: torch.device) -> Any:
        """Return the next batch on its device; None: there are no more.

        Raises:
            BaseException: what the loader raised.
        """
        batch = self._reader.take(self._devices.index(device))
        if batch is _END:
            return None
        with torch.no_grad():
            return send_cpu_data_to_device(batch, device, self._input_sharding)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()

    def __del__(self) -> None:
        if hasattr(self, "_reader"):
            self._reader.close()


class _Reader:
    """A thread that reads ahead; it holds no reference to its loader's user, so it ends with it."""

    def __init__(self, batches: Iterator[Any], num_queues: int, ahead: int) -> None:
        self._queues: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(num_queues)]
        self._slots = threading.Semaphore(ahead)
        self._is_closed = False
        self._error: BaseException | None = None
        threading.Thread(target=self._read, args=(batches,), daemon=True, name="parallel_loader").start()

    def _read(self, batches: Iterator[Any]) -> None:
        try:
            group: list[Any] = []
            while self._slots.acquire() and not self._is_closed:
                group.append(next(batches, _END))
                if group[-1] is _END:
                    return
                if len(group) == len(self._queues):
                    for waiting, batch in zip(self._queues, group, strict=True):
                        waiting.put(batch)
                    group = []
        # Whatever the loader raises, the training loop is to raise it.
        except BaseException as error:
            self._error = error
        finally:
            for waiting in self._queues:
                waiting.put(_END)

    def take(self, number: int) -> Any:
        batch = self._queues[number].get()
        if batch is not _END:
            self._slots.release()
            return batch
        self._queues[number].put(_END)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return batch

    def close(self) -> None:
        self._is_closed = True
        self._slots.release()


class PerDeviceLoader:
    """Iterator over the batches of one device, which ends a step before each."""

    def __init__(self, loader: ParallelLoader, device: torch.device) -> None:
        self._loader, self._device = loader, device
        self._num_waiting = 0

    def __iter__(self) -> PerDeviceLoader:
        return self

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def __next__(self) -> Any:
        has_synced = not profiler.take_marked_step() and self._num_waiting >= self._loader.batches_per_execution - 1
        if has_synced:
            graphs.sync()
        batch = self._loader.next_item(self._device)
        if batch is None:
            if not has_synced:
                graphs.sync()
            raise StopIteration
        self._num_waiting = 0 if has_synced else self._num_waiting + 1
        return batch

    next = __next__


class MpDeviceLoader:
    """A loader whose batches are on a device, and which ends a step before each batch and after the last.

    Args:
        loader: loader of batches on the CPU.
        device: where they go.
        **kwargs: as of `ParallelLoader`.
    """

    def __init__(self, loader: Any, device: str | torch.device, **kwargs: Any) -> None:
        self._loader, self._device, self._options = loader, device, kwargs
        self._parallel_loader: ParallelLoader | None = None

    def __iter__(self) -> PerDeviceLoader:
        if self._parallel_loader is not None:
            self._parallel_loader.close()
        self._parallel_loader = ParallelLoader(self._loader, [self._device], **self._options)
        return self._parallel_loader.per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)

    def close(self) -> None:
        """Stop reading ahead."""
        if self._parallel_loader is not None:
            self._parallel_loader.close()
            self._parallel_loader = None
