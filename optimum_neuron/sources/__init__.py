"""Where a model comes from: folders, the Hub, the catalogue, GGUF files, quantized checkpoints, adapters; and tasks.

It knows checkpoints and the libraries that read them, and nothing of compiled programs.

    from optimum_neuron.sources import load_source, open_tensors
    source = load_source("smollm2")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
