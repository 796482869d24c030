from . import (
    drawing as drawing,
    inspection as inspection,
    perfetto as perfetto,
    report as report,
    torch_profiler as torch_profiler,
)
from .drawing import short_line as short_line
from .folder import calls_of as calls_of, profile_folder as profile_folder
from .graph import GraphProfile as GraphProfile
from .inspection import inspect_process as inspect_process
from .kernel_page import kernel_page as kernel_page
from .kernels import KernelEvent as KernelEvent, KernelProfile as KernelProfile
from .neff import profile_compiled as profile_compiled, profile_neff as profile_neff
from .perfetto import trace_events as trace_events, trace_json as trace_json
from .profile import Profile as Profile
from .recorder import Recorder as Recorder, record as record
from .report import page as page
from .script import profile_script as profile_script
from .torch_profiler import SIMULATED as SIMULATED
