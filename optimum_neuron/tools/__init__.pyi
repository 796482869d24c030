from . import (
    bench as bench,
    frame as frame,
    ls as ls,
    monitor as monitor,
    nccom_test as nccom_test,
    neuronx_cc as neuronx_cc,
    parallel_compile as parallel_compile,
    profile as profile,
    prometheus as prometheus,
    report as report,
    top as top,
)
from .devices import devices as devices, drawing as drawing
from .monitor_config import Metric as Metric
from .processes import neuron_processes as neuron_processes
from .prometheus_metrics import Metrics as Metrics
from .top import Keys as Keys
