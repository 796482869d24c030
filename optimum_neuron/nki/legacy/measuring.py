"""`nki.jit` of the older API, and `baremetal`, `benchmark`, and `profile`: kernels with their simulated latency.

There is no device: results are computed, and latencies are those of `nki.analyze`, from published cycle counts.
A simulated kernel takes the same time at each call, so all percentiles are equal. Programs of a grid run one after the
other on the physical core that their grid names. Files that are written say that they are simulated.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...files.atomic import write_bytes
from ..analysis import trace_of
from ..core import Record
from ..jit import COMPILER_OPTIONS, require_options
from ..kernel import Kernel, launch_on_cores
from ..timeline import Event, busy_us, schedule
from .grid import physical_core
from .kernel import kernel_of
from .published import signature_of

MODES = ("auto", "jax", "torchxla", "torch", "trace", "simulation")
PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""Percentiles of latency that there are."""


class Latency:
    """Simulated latencies of a kernel, in microseconds."""

    is_simulated = True

    def __init__(self, latency_us: float) -> None:
        self._latency_us = latency_us

    def get_latency_percentile(self, percentile: int) -> float:
        """Return a percentile in microseconds: the simulated latency, at any of them."""
        if percentile not in PERCENTILES:
            message = f"There is no latency percentile {percentile}."
            raise ConfigError(message, hint=f"Use one of {', '.join(map(str, PERCENTILES))}.", percentile=percentile)
        return self._latency_us


class BenchmarkResult:
    """What a call of a benchmark found."""

    def __init__(self, latency_us: float) -> None:
        self.nc_latency = Latency(latency_us)


class Measured:
    """A kernel whose calls also say how long they would take."""

    def __init__(self, kernel: Kernel, after: After) -> None:
        self.kernel, self._after = kernel, after
        self.benchmark_result: BenchmarkResult | None = None
        functools.update_wrapper(self, kernel, updated=())

    def __getitem__(self, grid: object) -> Measured:
        """Return it for a grid."""
        return Measured(self.kernel[grid], self._after)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the kernel, and return its results."""
        result, cores = launch_on_cores(self.kernel, args, kwargs, record=True)
        streams: dict[int, list[Record]] = {}
        for core in cores:
            streams.setdefault(physical_core(core.rank, self.kernel.grid), []).extend(core.stream or ())
        timelines = [schedule(stream, cores[0].target) for stream in streams.values() if stream]
        slowest = max(timelines, key=_latency_us, default=[])
        self.benchmark_result = BenchmarkResult(_latency_us(slowest))
        self._after(self, slowest)
        return result


After = Callable[[Measured, list[Event]], None]
"""What a call does with its instructions in time."""
Options = Mapping[str, Any]
_FILES = "save_neff_name save_trace_name artifacts_dir additional_compile_opt"


def _latency_us(events: list[Event]) -> float:
    return max((event.end_ns for event in events), default=0.0) / 1e3


def _measuring(options: str, first: str = "kernel") -> Callable[[Callable[[Options], After]], Callable[..., Any]]:
    """Make a decorator of kernels: the function is given its options, and returns what each call does at its end."""

    def made(prepare: Callable[[Options], After]) -> Callable[..., Any]:
        def decorator(*args: Any, **kwargs: Any) -> Any:
            kernel = args[0] if args else kwargs.pop(first, None)
            require_options(f"nki.{prepare.__name__}", kwargs, options.split())
            if kernel is None:
                return functools.partial(decorator, **kwargs)
            plain = kernel.kernel if isinstance(kernel, Measured) else kernel_of(kernel)
            return Measured(plain, prepare(kwargs))

        decorator.__name__, decorator.__doc__ = prepare.__name__, prepare.__doc__
        decorator.__signature__ = signature_of(f"{first}=None **kwargs", {"None": None})  # type: ignore[attr-defined]
        return decorator

    return made


@_measuring(_FILES)
def baremetal(options: Options) -> After:
    """Make a kernel that is called with NumPy arrays.

    Args:
        kernel: the kernel.
        **kwargs: `save_neff_name` and `save_trace_name` (files for its instructions and their simulated timeline),
            `artifacts_dir` (an empty folder for both), `additional_compile_opt` (changes nothing).
    """
    return _saving(options)


def _saving(options: Options) -> After:
    """Return what writes the instructions and the timeline of a call to the files that options name."""
    folder = Path(options.get("artifacts_dir") or "")
    is_given = options.get("artifacts_dir") is not None
    if is_given:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            message = f"artifacts_dir={str(folder)!r} is not empty."
            raise ConfigError(message, hint="Pass a folder that is empty or does not exist.", artifacts_dir=str(folder))

    def after(measured: Measured, events: list[Event]) -> None:
        if neff := options.get("save_neff_name") or ("file.neff" if is_given else None):
            _write(folder / neff, _instructions(measured, events))
        if timeline := options.get("save_trace_name") or ("profile.ntff" if is_given else None):
            _write(folder / timeline, trace_of(events))

    return after


@_measuring(f"warmup iters device_count {_FILES}")
def benchmark(options: Options) -> After:
    """Make a kernel whose calls simulate its latency, print it, and keep it in `benchmark_result.nc_latency`.

    Args:
        kernel: the kernel.
        **kwargs: `warmup` and `iters` (calls of a measurement, which a simulation needs not: they are printed),
            `device_count`, and the options of `baremetal`.
    """
    save = _saving(options)

    def after(measured: Measured, events: list[Event]) -> None:
        assert measured.benchmark_result is not None
        latency = measured.benchmark_result.nc_latency
        calls = f"warmup={options.get('warmup', 10)}, iters={options.get('iters', 100)}"
        print(f"Simulated latency of {measured.kernel.function.__name__} ({calls}; not measured, so without spread)")
        print("  ".join(f"p{each}: {latency.get_latency_percentile(each):.2f} us" for each in PERCENTILES))
        save(measured, events)

    return after


@_measuring(
    "working_directory save_neff_name save_trace_name overwrite num_execs profile_nth additional_compile_opt", "func"
)
def profile(options: Options) -> After:
    """Make a kernel whose calls write instructions, simulated timelines, and summaries to a folder.

    Args:
        func: the kernel.
        **kwargs: `working_directory` (an absolute path), `save_neff_name` ("file.neff"), `save_trace_name`
            ("profile.ntff"), `overwrite`, `num_execs` (1) and `profile_nth` (1): each n-th execution has its files.
    """
    folder = Path(str(options.get("working_directory", "")))
    if not folder.is_absolute():
        message = f"nki.profile working_directory={str(folder)!r} is no absolute path."
        raise ConfigError(message, hint="Pass an absolute path.", working_directory=str(folder))
    stem = Path(options.get("save_trace_name", "profile.ntff")).stem
    count, step = int(options.get("num_execs", 1)), int(options.get("profile_nth", 1))

    def after(measured: Measured, events: list[Event]) -> None:
        if folder.exists() and any(folder.iterdir()) and not options.get("overwrite", False):
            message = f"nki.profile working_directory={str(folder)!r} is not empty."
            raise ConfigError(message, hint="Pass overwrite=True, or another folder.", working_directory=str(folder))
        (folder / "json_reports").mkdir(parents=True, exist_ok=True)
        _write(folder / options.get("save_neff_name", "file.neff"), _instructions(measured, events))
        report = {"simulated": True, "total_us": _latency_us(events), "busy_us": busy_us(events)}
        for number in range(step, count + 1, step) if count >= step else (step,):
            name = stem if number == 1 else f"{stem}_exec_{number}"
            _write(folder / f"{name}.ntff", trace_of(events))
            _write(folder / "json_reports" / f"{name}.json", report)

    return after


def _write(path: Path, content: object) -> None:
    write_bytes(path, json.dumps(content).encode(), error=ConfigError)


def _instructions(measured: Measured, events: list[Event]) -> dict[str, Any]:
    """Return a stream as data; no device executes it."""
    records = [event.record for event in events]
    rows = [{"opcode": one.opcode, "engine": one.engine, "cycles": one.cycles} for one in records]
    return {"simulated": True, "kernel": measured.kernel.function.__name__, "instructions": rows}


_MEASURING = {"baremetal": baremetal, "benchmark": benchmark, "profile": profile}


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Make a kernel of a function, as `@nki.jit` or `@nki.jit(mode=...)`; every mode simulates.

    Args:
        func: the function.
        mode: a framework's name, "trace" or "simulation"; "baremetal", "benchmark" and "profile" are the functions of
            these names.
        **kwargs: `platform_target`, as "trn2".

    Raises:
        ConfigError: another option.
    """
    if mode in _MEASURING:
        return _MEASURING[mode](func, **kwargs)
    platform = kwargs.pop("platform_target", None)
    require_options("nki.jit", kwargs, {*COMPILER_OPTIONS, "additional_compile_opt"})
    require_options("nki.jit mode", [mode], MODES)
    if func is None:
        return functools.partial(jit, mode=mode, **({"platform_target": platform} if platform else {}))
    return kernel_of(func, platform)


def trace(func: Callable[..., Any] | None = None, **kwargs: object) -> Any:
    """Make a kernel that other kernels call; the same as `jit` here."""
    return jit(func, "trace", **kwargs)
