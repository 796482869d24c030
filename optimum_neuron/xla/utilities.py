"""Small tools that training scripts import from `torch_xla.utils.utils` and `torch_xla.core.xla_model`."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import torch

from ..base import env

T = TypeVar("T")
Print = Callable[[str], None]


class SampleGenerator:
    """The same data a number of times, in place of a `DataLoader`.

    Args:
        data: the data.
        sample_count: how often.
    """

    def __init__(self, data: object, sample_count: int) -> None:
        self._data, self._count, self._num_taken = data, sample_count, 0

    def __iter__(self) -> SampleGenerator:
        return SampleGenerator(self._data, self._count)

    def __len__(self) -> int:
        return self._count

    def __next__(self) -> Any:
        if self._num_taken >= self._count:
            raise StopIteration
        self._num_taken += 1
        return self._data

    next = __next__


class FnDataGenerator:
    """Random inputs with a function of them as targets.

    Args:
        func: target of an input.
        batch_size: inputs at a time.
        gen_tensor: makes an input of a size, such as `torch.randn`.
        dims: its size besides the batch.
        count: number of batches.
    """

    def __init__(
        self,
        func: Callable[[torch.Tensor], Any],
        batch_size: int,
        gen_tensor: Callable[..., torch.Tensor],
        dims: Sequence[int] | None = None,
        count: int = 1,
    ) -> None:
        self._func, self._gen_tensor = func, gen_tensor
        self._size, self._count, self._num_made = (batch_size, *(dims or (1,))), count, 0

    def __iter__(self) -> FnDataGenerator:
        return FnDataGenerator(self._func, self._size[0], self._gen_tensor, self._size[1:], self._count)

    def __len__(self) -> int:
        return self._count

    def __next__(self) -> tuple[torch.Tensor, Any]:
        if self._num_made >= self._count:
            raise StopIteration
        self._num_made += 1
        data = self._gen_tensor(*self._size)
        return data, self._func(data)

    next = __next__


class RateTracker:
    """Counts events, such as samples, and their rate: `xm.RateTracker`.

    Args:
        smooth_factor: weight of the last rate, between 0 and 1; None: 0.4, or RATE_TRACKER_SMOOTHING.
    """

    def __init__(self, smooth_factor: float | None = None) -> None:
        self._weight = getenv_as("RATE_TRACKER_SMOOTHING", float, 0.4) if smooth_factor is None else smooth_factor
        self._start_s = self._last_s = time.time()
        self._num_before = self._num_new = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        """Add events."""
        self._num_new += count

    def rate(self) -> float:
        """Return events a second since the last call, smoothed."""
        now_s = time.time()
        elapsed_s = now_s - self._last_s
        if elapsed_s <= 0:
            return 0.0
        rate = self._num_new / elapsed_s
        self._rate = rate if self._rate is None else self._weight * self._rate + (1 - self._weight) * rate
        self._num_before, self._num_new, self._last_s = self._num_before + self._num_new, 0.0, now_s
        return self._rate

    def global_rate(self) -> float:
        """Return events a second since the start."""
        elapsed_s = time.time() - self._start_s
        return (self._num_before + self._num_new) / elapsed_s if elapsed_s > 0 else 0.0


class Cleaner:
    """Calls a function when the object is deleted."""

    def __init__(self, func: Callable[[], Any]) -> None:
        self.func = func

    def __del__(self) -> None:
        self.func()


class TmpFolder:
    """A temporary folder, deleted with the object; `name` is its path."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp()
        self.cleaner = Cleaner(lambda: shutil.rmtree(self.name))


class LazyProperty(Generic[T]):
    """A value that is computed when `value` is first read."""

    def __init__(self, gen_fn: Callable[[], T]) -> None:
        self._compute: Callable[[], T] | None = gen_fn

    @property
    def value(self) -> T:
        """The value."""
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value


class TimedScope:
    """Prints how long a block took.

    Args:
        msg: before the time.
        printfn: None: stderr.
    """

    def __init__(self, msg: str = "", printfn: Print | None = None) -> None:
        self._message, self._print, self._error = msg, printfn or eprint, None

    def __enter__(self) -> TimedScope:
        self._start_s = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        if self._error is None:
            self._print(f"{self._message}{1000 * (time.time() - self._start_s):.3f}ms")

    def set_error(self, error: Any) -> None:
        """Print nothing if an error is given."""
        self._error = error


def timed(fn: Callable[[], T], msg: str = "", printfn: Print | None = None) -> T:
    """Call a function, print how long it took, and return its result."""
    with TimedScope(msg, printfn):
        return fn()


def eprint(*args: object, **kwargs: Any) -> None:
    """Print to stderr."""
    print(*args, file=sys.stderr, **kwargs)


def get_print_fn(debug: int | None = None) -> Callable[..., None]:
    """Return a function that prints to stderr if `debug`, or the variable DEBUG where it is None, is not 0."""
    return eprint if (getenv_as("DEBUG", int, 0) if debug is None else debug) else lambda *args, **kwargs: None


def as_list(t: object) -> Any:
    """Return lists and tuples as they are, and everything else in a list."""
    return t if isinstance(t, (tuple, list)) else [t]


def getenv_as(name: str, type: Callable[[str], Any], defval: object = None) -> Any:
    """Return an environment variable of a script as a type; `bool` reads numbers.

    Args:
        name: its name.
        type: such as `int`.
        defval: where it is not set.
    """
    text = env.variable(name)
    if text is None:
        return defval
    return bool(int(text)) if type is bool else type(text)


def check_env_flag(name: str, default: str = "") -> bool:
    """Return whether a variable is "true" or a number other than 0."""
    text = env.variable(name) or default
    return text == "true" or (text.isdigit() and int(text) > 0)


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """Return so many ports that are free."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def parallel_work(num_workers: int, fn: Callable[..., T], *args: Sequence[Any]) -> list[T]:
    """Call a function in threads, for the items of one list or of several, and return its results."""
    with ThreadPoolExecutor(num_workers) as threads:
        return list(threads.map(fn, *args))
