"""Configurations of NxD Training, AWS's trainer for YAML files, as runs of `NeuronTrainer` and as estimates.

configuration.py   reads a file, or what `neuronx_distributed_config` returns, as flat options
options.py         what each option is here; unknown ones are errors
training.py        trains

    result = train("hf_llama3_8B_config.yaml")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
