"""Measurements of a user: they update the constants of the simulator, or are compared with a prediction.

measured.py   one measured run                    reading.py      finds the format of a file
tables.py     CSV tables                          servers.py      results of vLLM, GenAI-Perf, and LLMPerf
neuron_tools.py  neuron-profile, neuron-monitor   predicting.py   what the simulator says of a run
update.py     Bayesian update of constants        contradictions.py  values that other values contradict
values.py     a value, measured and predicted
calibrate.py  `calibrate`: files to constants     compared.py     `compare_run`: a run beside its prediction
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
