"""The profiler entry: what this machine really does. A timeline of a core cannot be had by measuring a simulation.

with profile(profile_type="trace"):
    model(x)
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import ConfigError, nearest, refusal

PROFILE_TYPES = ("operator", "trace")

TRACE_FILE = "host_trace.json"
"""Chrome trace in the plugin folder."""

_DEFAULTS = {"port": 9012, "ms_duration": 60000, "delete_working": True, "traced_only": False}


class profile:  # noqa: N801, the vendor's name
    """Record what the host does while a traced model runs, for chrome://tracing, Perfetto or TensorBoard.

    Args:
        port, ms_duration, delete_working, traced_only: of the vendor's profiler server; another value than the default
            has no effect here, and a warning says so.
        neuron_tensorboard_plugin_dir: folder that gets `host_trace.json`.
        profile_type: "trace". "operator", the default of the vendor, asks for times of engines of the core and is
            refused: a simulated core has none to measure.
        auto_start: start on entering the `with` block; otherwise `start` does.

    Raises:
        ConfigError: the type is "operator" or unknown.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import trace
        from optimum_neuron.tracing.profiler import profile

        model = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), compiler_args="-O1")
        with profile(profile_type="trace", neuron_tensorboard_plugin_dir="profile"):
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
        if profile_type != "trace":
            known = profile_type in PROFILE_TYPES
            raise ConfigError(
                refusal(
                    asked=f"profile_type={profile_type!r}",
                    found="times of a core's engines" if known else f"unknown{nearest(profile_type, PROFILE_TYPES)}",
                    why="a simulated core has no engines to measure, and host times would be passed off as theirs"
                    if known
                    else "there are two types",
                    do='pass profile_type="trace" for a timeline of this host',
                )
            )
        given = {"port": port, "ms_duration": ms_duration, "delete_working": delete_working, "traced_only": traced_only}
        unused = [name for name, value in given.items() if value != _DEFAULTS[name]]
        if unused:
            warnings.warn(f"profile arguments without an effect here: {', '.join(unused)}", stacklevel=2)
        self.path = Path(neuron_tensorboard_plugin_dir) / TRACE_FILE
        """Where the trace goes."""
        self._auto_start = auto_start
        self._profiler: Any = None

    def start(self) -> None:
        """Begin to record."""
        import torch

        self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self._profiler.start()

    def stop(self) -> None:
        """End, and write the trace; without `start` nothing is written."""
        if self._profiler is not None:
            self._profiler.stop()
            os.makedirs(self.path.parent, exist_ok=True)
            self._profiler.export_chrome_trace(str(self.path))
            self._profiler = None

    def __enter__(self) -> profile:
        if self._auto_start:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
