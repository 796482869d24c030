from . import (
    bench as bench,
    frame as frame,
    ls as ls,
    monitor as monitor,
    monitor_config as monitor_config,
    nccom_test as nccom_test,
    neuronx_cc as neuronx_cc,
    parallel_compile as parallel_compile,
    profile as profile,
    prometheus as prometheus,
    report as report,
    top as top,
)
from .devices import devices as devices, drawing as drawing
from .frame import Camera as Camera, Frame as Frame, ProcessFrame as ProcessFrame
from .host import (
    CPU_FIELDS as CPU_FIELDS,
    ProcessUse as ProcessUse,
    cpu_percent as cpu_percent,
    cpu_times as cpu_times,
    mean_percent as mean_percent,
    process_use as process_use,
)
from .monitor import reports as reports
from .monitor_config import (
    DEFAULT_CONFIG as DEFAULT_CONFIG,
    RUNTIME_METRICS as RUNTIME_METRICS,
    SYSTEM_METRICS as SYSTEM_METRICS,
    Metric as Metric,
    parse_config as parse_config,
    read_config as read_config,
)
from .nccom_test import COLLECTIVES as COLLECTIVES, num_bytes as num_bytes, sizes_of as sizes_of
from .processes import (
    NeuronProcess as NeuronProcess,
    choose_instance as choose_instance,
    neuron_processes as neuron_processes,
    others_in_use as others_in_use,
)
from .profile import neuron_profile as neuron_profile
from .prometheus_metrics import METRICS as METRICS, Metrics as Metrics
from .screen import View as View, render as render
from .top import Keys as Keys
from .usage import COUNTING as COUNTING, Tracker as Tracker, percentile as percentile, usage_between as usage_between
