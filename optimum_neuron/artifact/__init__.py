"""A compiled program on disk: opened, checked against the target, bound to weights, lowered, and loaded on a core.

    artifact = open_artifact("smollm2_neuron/model.neuron", target=target)
    weights = artifact.bind(tensors)
    loaded = BoundProgram(program=artifact.program, weights=weights, host=lower(artifact.program), ...).load()

It knows no kinds of models, no transformers, and no configuration of an export.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
