"""The profiler entry: times of the simulated cores' engines, or measured times of this machine.

with profile():
    model(x)
"""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import invalid_choice

TRACE_FILES = {"operator": "device_trace.json", "trace": "host_trace.json"}
"""Chrome trace in the plugin folder, by the type of the profile."""

_DEFAULTS = {"port": 9012, "ms_duration": 60000, "delete_working": True, "traced_only": False}


class profile:  # noqa: N801, the vendor's name
    """Record a block while compiled models run, for chrome://tracing, Perfetto or TensorBoard.

    Args:
        port, ms_duration, delete_working, traced_only: of the vendor's profiler server; another value than the default
            has no effect here, and a warning says so.
        neuron_tensorboard_plugin_dir: folder that gets the file of `TRACE_FILES`.
        profile_type: "operator" for the engines of the cores, simulated (`optimum_neuron.profiling`); "trace" for
            measured times of this host.
        auto_start: start on entering the `with` block; otherwise `start` does.

    Raises:
        ConfigError: the type is unknown.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import trace
        from optimum_neuron.tracing.profiler import profile

        model = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), compiler_args="-O1")
        with profile(neuron_tensorboard_plugin_dir="profile"):
            model(torch.rand(3, 4))
        ```
    """

    def __init__(
        self,
        port: int = 9012,
        ms_duration: int = 60000,
        neuron_tensorboard_plugin_dir: str | Path = "logs/plugins/neuron",
        profile_type: str = "operator",
        auto_start: bool = True,
        delete_working: bool = True,
        traced_only: bool = False,
    ) -> None:
        if profile_type not in TRACE_FILES:
            raise invalid_choice("profile_type", profile_type, TRACE_FILES)
        given = (port, ms_duration, delete_working, traced_only)
        unused = [name for (name, default), value in zip(_DEFAULTS.items(), given, strict=True) if value != default]
        if unused:
            warnings.warn(f"profile arguments without an effect here: {', '.join(unused)}", stacklevel=2)
        self.path = Path(neuron_tensorboard_plugin_dir) / TRACE_FILES[profile_type]
        """Output folder of the trace."""
        self._type, self._auto_start = profile_type, auto_start
        self._recording = contextlib.ExitStack()
        self._recorder: Any = None

    def start(self) -> None:
        """Begin to record."""
        if self._type == "operator":
            from ..profiling import record

            self._recorder = self._recording.enter_context(record("torch_neuronx profile"))
            return
        import torch

        activities = [torch.profiler.ProfilerActivity.CPU]
        self._recorder = self._recording.enter_context(torch.profiler.profile(activities=activities))

    def stop(self) -> None:
        """End, and write the trace; without `start`, or where no compiled program ran, nothing is written."""
        self._recording.close()
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if self._type == "operator" and not recorder.num_calls:
            warnings.warn("no compiled program ran in the profile: no trace is written", stacklevel=2)
            return
        os.makedirs(self.path.parent, exist_ok=True)
        if self._type == "trace":
            recorder.export_chrome_trace(str(self.path))
            return
        from ..profiling import trace_json

        self.path.write_text(trace_json(recorder.profile()), encoding="utf-8")

    def __enter__(self) -> profile:
        if self._auto_start:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
