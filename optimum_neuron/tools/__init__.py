"""Tools that the SDK installs with its libraries, for the simulated cores of this machine.

They read files of the processes: claims on cores (`runtime/core_files.py`) and statuses (`runtime/status.py`).
They start nothing and change nothing. `neuronx-cc` compiles. The sdk distribution installs them as console scripts:
`main` takes the words of a command line (None: those of this process) and returns the exit code.

ls.py        neuron-ls: `devices` of the simulated instance, who holds their cores, their links
monitor.py   neuron-monitor: `monitor_config` says what, `monitor_groups` when, `report` in which schema
prometheus.py neuron-monitor-prometheus: lines of neuron-monitor become `prometheus_metrics`
top.py       neuron-top: `frame` is what it shows, `screen` how

neuronx_cc.py        neuronx-cc: an exported program becomes a NEFF
parallel_compile.py  neuron_parallel_compile: a script runs, and what it compiled is counted
bench.py             neuron-bench: the simulated times of a NEFF or an exported folder
profile.py           neuron-explorer and neuron-profile: the profile of a NEFF or an exported folder

processes.py who holds cores, with their statuses and what they use of the host (`host.py`)
usage.py     from two statuses to utilization and latencies
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
