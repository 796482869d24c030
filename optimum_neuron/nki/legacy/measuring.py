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
from ..kernel import Kernel, launch_on_cores
from ..timeline import Event, schedule
from .grid import physical_core
from .kernel import kernel_of

MODES = ("auto", "jax", "torchxla", "torch", "trace", "simulation")
_NOT_NEEDED = {"additional_compile_opt", "kernel_return", "show_compiler_tb", "debug_kernel"}
"""Options that say how the vendor's compiler reports and returns: kernels return here what they return."""
PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""Percentiles of latency that there are."""


class Latency:
    """Simulated latencies of a kernel, in microseconds."""

    is_simulated = True
    """Nothing was measured."""

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

    def __init__(self, kernel: Kernel, after: Callable[[Measured, list[Event]], None]) -> None:
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


def _latency_us(events: list[Event]) -> float:
    return max((event.end_ns for event in events), default=0.0) / 1e3


def baremetal(kernel: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel that is called with NumPy arrays.

    Args:
        kernel: the kernel.
        **kwargs: `save_neff_name` and `save_trace_name` (files for its instructions and their simulated timeline),
            `artifacts_dir` (an empty folder for both), `additional_compile_opt` (must be empty).
    """
    options = _options("baremetal", kwargs, "save_neff_name save_trace_name artifacts_dir additional_compile_opt")
    if kernel is None:
        return functools.partial(baremetal, **kwargs)
    folder = _empty_folder(options.get("artifacts_dir"))

    def after(measured: Measured, events: list[Event]) -> None:
        save(measured.kernel, events, folder, options)

    return Measured(_kernel(kernel), after)


def benchmark(kernel: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel whose calls simulate its latency, print it, and keep it in `benchmark_result.nc_latency`.

    Args:
        kernel: the kernel.
        **kwargs: `warmup` and `iters` (calls of a measurement, which a simulation needs not: they are printed),
            `device_count`, and the options of `baremetal`.
    """
    names = "warmup iters device_count save_neff_name save_trace_name artifacts_dir additional_compile_opt"
    options = _options("benchmark", kwargs, names)
    if kernel is None:
        return functools.partial(benchmark, **kwargs)
    folder = _empty_folder(options.get("artifacts_dir"))

    def after(measured: Measured, events: list[Event]) -> None:
        assert measured.benchmark_result is not None
        latency = measured.benchmark_result.nc_latency
        calls = f"warmup={options.get('warmup', 10)}, iters={options.get('iters', 100)}"
        print(f"Simulated latency of {measured.kernel.function.__name__} ({calls}; not measured, so without spread)")
        print("  ".join(f"p{each}: {latency.get_latency_percentile(each):.2f} us" for each in PERCENTILES))
        save(measured.kernel, events, folder, options)

    return Measured(_kernel(kernel), after)


def profile(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel whose calls write instructions, simulated timelines, and summaries to a folder.

    Args:
        func: the kernel.
        **kwargs: `working_directory` (an absolute path), `save_neff_name` ("file.neff"), `save_trace_name`
            ("profile.ntff"), `overwrite`, `num_execs` (1) and `profile_nth` (1): each n-th execution has its files.
    """
    names = "working_directory save_neff_name save_trace_name overwrite num_execs profile_nth additional_compile_opt"
    options = _options("profile", kwargs, names)
    if func is None:
        return functools.partial(profile, **kwargs)
    folder = Path(str(options.get("working_directory", "")))
    if not folder.is_absolute():
        message = f"nki.profile working_directory={str(folder)!r} is no absolute path."
        raise ConfigError(message, hint="Pass an absolute path.", working_directory=str(folder))

    def after(measured: Measured, events: list[Event]) -> None:
        _save_profile(measured, events, folder, options)

    return Measured(_kernel(func), after)


def _kernel(function: Callable[..., Any]) -> Kernel:
    return function.kernel if isinstance(function, Measured) else kernel_of(function)


def _options(function: str, options: Mapping[str, Any], names: str) -> dict[str, Any]:
    unknown = sorted(set(options) - set(names.split()))
    if unknown:
        message = f"nki.{function} has no option {', '.join(unknown)} here."
        raise ConfigError(message, hint=f"Its options are {', '.join(names.split())}.", options=unknown)
    return dict(options)


def _empty_folder(folder: Any) -> Path | None:
    if folder is None:
        return None
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        message = f"artifacts_dir={str(path)!r} is not empty."
        raise ConfigError(message, hint="Pass a folder that is empty or does not exist.", artifacts_dir=str(path))
    return path


def _write(path: Path, content: object) -> None:
    write_bytes(path, json.dumps(content).encode(), error=ConfigError)


def save(kernel: Kernel, events: list[Event], folder: Path | None, options: Mapping[str, Any]) -> None:
    """Write the instructions and the timeline of a call to the files that its options name."""
    base = folder or Path()
    neff = options.get("save_neff_name") or ("file.neff" if folder else None)
    timeline = options.get("save_trace_name") or ("profile.ntff" if folder else None)
    if neff:
        _write(base / neff, _instructions(kernel, events))
    if timeline:
        _write(base / timeline, trace_of(events))


def _instructions(kernel: Kernel, events: list[Event]) -> dict[str, Any]:
    """Return a stream as data; no device executes it."""
    rows = [
        {"opcode": event.record.opcode, "engine": event.record.engine, "cycles": event.record.cycles}
        for event in events
    ]
    return {"simulated": True, "kernel": kernel.function.__name__, "instructions": rows}


def _save_profile(measured: Measured, events: list[Event], folder: Path, options: Mapping[str, Any]) -> None:
    if folder.exists() and any(folder.iterdir()) and not options.get("overwrite", False):
        message = f"nki.profile working_directory={str(folder)!r} is not empty."
        raise ConfigError(message, hint="Pass overwrite=True, or another folder.", working_directory=str(folder))
    reports = folder / "json_reports"
    reports.mkdir(parents=True, exist_ok=True)
    neff, name = options.get("save_neff_name", "file.neff"), options.get("save_trace_name", "profile.ntff")
    _write(folder / neff, _instructions(measured.kernel, events))
    count, step = int(options.get("num_execs", 1)), int(options.get("profile_nth", 1))
    for number in range(step, count + 1, step) if count >= step else (step,):
        stem = Path(name).stem if number == 1 else f"{Path(name).stem}_exec_{number}"
        _write(folder / f"{stem}.ntff", trace_of(events))
        busy: dict[str, float] = {}
        for event in events:
            busy[event.record.engine] = busy.get(event.record.engine, 0.0) + event.busy_ns / 1e3
        report = {"simulated": True, "total_us": _latency_us(events), "busy_us": busy}
        _write(reports / f"{stem}.json", report)


_MEASURING: dict[str, Callable[..., Any]] = {one.__name__: one for one in (baremetal, benchmark, profile)}


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
    unknown = sorted(set(kwargs) - _NOT_NEEDED)
    if unknown or mode not in MODES:
        options = unknown or [f"mode={mode}"]
        message = f"nki.jit has no option {', '.join(options)} here."
        raise ConfigError(message, hint="Leave it out: kernels are simulated.", options=options)
    if func is None:
        return functools.partial(jit, mode=mode, **({"platform_target": platform} if platform else {}))
    return kernel_of(func, platform)


def trace(func: Callable[..., Any] | None = None, **kwargs: object) -> Any:
    """Make a kernel that other kernels call; the same as `jit` here."""
    return jit(func, "trace", **kwargs)
