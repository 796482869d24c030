"""`torch.profiler` with the vendor's options: the host's trace next to that of the simulated cores.

config = NeuronConfig(modes=[ProfileMode.DEVICE], profile_output_dir="profile")
exporter = NeuronProfiler(config)
with torch.profiler.profile(experimental_config=config, on_trace_ready=exporter.export_trace):
    model(x)

`profiling` times the calls; uncounted work is not in the trace of the cores. It writes no vendor's formats.
"""

from __future__ import annotations

import contextlib
import enum
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from ..errors import ConfigError
from ..profiling import Recorder, trace_json
from ..runtime import Execution, Recording, Track, recording
from ..upstream.torch import ExperimentalConfig

HOST_FILE, DEVICE_FILE = "pytorch_trace.json", "device_trace.json"
"""Chrome traces in the output folder: this host, measured, and the cores, simulated."""


class ProfileMode(enum.Enum):
    """Contents of a profile."""

    DEVICE = "device"
    """Engines of the cores, simulated."""
    RUNTIME = "runtime"
    """Calls of compiled programs; they are in the same trace as the engines."""
    CPU_UTIL = "cpu_util"
    """Not recorded here."""
    HOST_MEMORY = "host_memory"
    """Not recorded here; `torch.profiler.profile(profile_memory=True)` records it."""


_RECORDED = (ProfileMode.DEVICE, ProfileMode.RUNTIME)


class NeuronConfig(ExperimentalConfig):
    """Options of a profile, for `experimental_config` of `torch.profiler.profile`.

    Args:
        modes: Data to collect; at least one of DEVICE and RUNTIME. A warning names modes that are not recorded.
        profile_output_dir: folder that gets `HOST_FILE` and `DEVICE_FILE`.
        max_events_per_nc: calls that the trace keeps for each core, the last ones; None keeps all.
        capture_enabled_for_nc: cores to record, such as "0,2-5"; None records all.

    Raises:
        ConfigError: no mode is recorded here, the number of events is not positive, or cores are named wrongly.
    """

    def __init__(
        self,
        *,
        modes: Sequence[ProfileMode] = _RECORDED,
        profile_output_dir: str | Path = "profile_output",
        max_events_per_nc: int | None = None,
        capture_enabled_for_nc: str | None = None,
    ) -> None:
        super().__init__()
        self.modes = tuple(modes)
        """Collected data."""
        if not set(self.modes) & set(_RECORDED):
            names = [str(mode) for mode in modes]
            message = f"The profile modes {', '.join(names) or '(none)'} are not recorded here."
            raise ConfigError(message, hint="Pass ProfileMode.DEVICE or ProfileMode.RUNTIME.", modes=names)
        unused = [str(mode) for mode in self.modes if mode not in _RECORDED]
        if unused:
            warnings.warn(f"profile modes that are not recorded here: {', '.join(unused)}", stacklevel=2)
        self.profile_output_dir = Path(profile_output_dir)
        """Output folder of the traces."""
        if max_events_per_nc is not None and max_events_per_nc < 1:
            message = f"max_events_per_nc={max_events_per_nc} keeps no events."
            hint = "Pass a positive number, or leave it out to keep all."
            raise ConfigError(message, hint=hint, option="max_events_per_nc", value=max_events_per_nc)
        self.max_events_per_nc = max_events_per_nc
        """Calls that the trace keeps for each core; None for all."""
        self.core_ids = None if capture_enabled_for_nc is None else _core_ids(capture_enabled_for_nc)
        """Cores that are recorded; None for all."""


class NeuronProfiler:
    """Writes the traces of a profile; make it before the profile starts.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import trace
        from optimum_neuron.tracing.torch_profiler import NeuronConfig, NeuronProfiler

        model, x = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), compiler_args="-O1"), torch.rand(3, 4)
        config = NeuronConfig(profile_output_dir="profile_output")
        exporter = NeuronProfiler(config)
        with torch.profiler.profile(experimental_config=config, on_trace_ready=exporter.export_trace):
            model(x)
        ```
    """

    def __init__(self, config: NeuronConfig) -> None:
        self.config = config
        """Options of the profile."""
        stack = contextlib.ExitStack()
        self._executions: Recording = stack.enter_context(recording())
        weakref.finalize(self, stack.close)

    def export_trace(self, prof: torch.profiler.profile) -> None:
        """Write the traces of a profile that has ended, for `on_trace_ready`.

        A warning says where no compiled program ran; the trace of the cores is not written then.
        """
        folder = self.config.profile_output_dir
        folder.mkdir(parents=True, exist_ok=True)
        prof.export_chrome_trace(str(folder / HOST_FILE))
        assert prof.profiler is not None, "the profile has started"
        # torch counts from the epoch, the recording on the clock of the process.
        started_ns = prof.profiler.kineto_results.trace_start_ns() - time.time_ns() + time.perf_counter_ns()
        recorded = self.config.core_ids
        calls = [
            (track, done)
            for track, done in self._executions
            if done.started_ns >= started_ns and (recorded is None or recorded & set(track.core_ids))
        ]
        self._executions.clear()
        calls = _last_of_each_core(calls, self.config.max_events_per_nc)
        if not calls:
            warnings.warn("no compiled program ran in the profile: no trace of the cores is written", stacklevel=2)
            return
        profile = Recorder("torch.profiler", calls).profile()
        (folder / DEVICE_FILE).write_text(trace_json(profile), encoding="utf-8")


def _last_of_each_core(calls: list[tuple[Track, Execution]], limit: int | None) -> list[tuple[Track, Execution]]:
    """Drop the first calls of cores that have more than `limit`; a call on several cores counts for each."""
    if limit is None:
        return calls
    counts: Counter[int] = Counter()
    kept = []
    for track, done in sorted(calls, key=lambda call: call[1].started_ns, reverse=True):
        if any(counts[core] < limit for core in track.core_ids):
            kept.append((track, done))
        counts.update(track.core_ids)
    return kept[::-1]


def _core_ids(text: str) -> set[int]:
    """Read "0,2-5"."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            message = f"capture_enabled_for_nc={text!r} does not name cores: {part.strip()!r} is no number or range."
            raise ConfigError(message, hint='Pass cores such as "0,2-5".', option="capture_enabled_for_nc", value=text)
        cores |= set(range(int(first), int(last or first) + 1))
    return cores
