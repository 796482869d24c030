"""Where the time of a run goes: compiled programs are run here and timed as an estimate times them. All simulated.

    operators.py    the time of one call, divided among its operators
    schedule.py     calls on one clock of host and cores; engines inside a call
    profile.py      what a profile says, as plain data
    table.py        its bottleneck table
    recorder.py     a recording of the runtime as a profile: `record`
    folder.py       an exported folder, run on dummy inputs
    neff.py         a NEFF with its weights, likewise
    script.py       a Python script, run in a child; child.py is that child
    perfetto.py     a trace for ui.perfetto.dev
    torch_profiler.py   lanes of the cores in the trace of torch.profiler
    report.py       a self-contained page; drawing.py has what page.js draws in it

It knows nothing of the command line.

    from optimum_neuron.profiling import record

    with record("my model") as recorder:
        model(**inputs)
    print(recorder.profile().rows()[0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .folder import profile_folder
    from .neff import profile_compiled, profile_neff
    from .perfetto import trace_events, trace_json
    from .profile import Profile
    from .recorder import Recorder, record
    from .report import page
    from .script import profile_script

__all__ = [
    "Profile",
    "Recorder",
    "page",
    "profile_compiled",
    "profile_folder",
    "profile_neff",
    "profile_script",
    "record",
    "trace_events",
    "trace_json",
]

_MODULES = {
    "Profile": "profile",
    "Recorder": "recorder",
    "page": "report",
    "profile_compiled": "neff",
    "profile_folder": "folder",
    "profile_neff": "neff",
    "profile_script": "script",
    "record": "recorder",
    "trace_events": "perfetto",
    "trace_json": "perfetto",
}

__getattr__ = lazy_names(__name__, _MODULES)
