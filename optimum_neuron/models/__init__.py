"""Decoder families in optimized form, and the generic path for every other architecture.

A family is one file, such as `llama.py`: the model types it covers, the options it does not, the shared blocks of
`common/` with its sizes and options, a map from parameters to checkpoint names, and a plan of tensor parallelism.
Nothing here knows the compiler's passes, the runtime or files.

    from optimum_neuron.models import choose_family
    print(choose_family(hf_config))          # "llama (model_type llama, all options covered)"
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
