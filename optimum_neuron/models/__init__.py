"""Decoder families in optimized form, and the generic path for every other architecture.

A family is a folder with the same files as the others: `config.py` (which checkpoints it takes, as plain
numbers), `model.py` (modules made of `common/` blocks), `weights.py` (a map from its parameters to checkpoint
names). Nothing here knows the compiler's passes, the runtime or files.

    from optimum_neuron.models import choose_family
    print(choose_family(hf_config))          # "llama (model_type llama, all options covered)"
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
