"""Estimates of diffusion pipelines, from the configurations in a pipeline's folder.

    source.py     model_index.json and the components' configurations; which pipelines and components are counted
    calls.py      what components are called with
    modules.py    components built without weights, and captured as an export would
    plan.py       a request for pictures: which component runs how often, with what work
    estimate.py   time, memory and money of a plan

Components are those of diffusers, which must be installed, on tensors without values. No weight is read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
