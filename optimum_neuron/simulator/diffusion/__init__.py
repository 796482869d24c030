"""Estimates of diffusion pipelines, from the configurations in a pipeline's folder.

    source.py     model_index.json and the components' configurations; which pipelines and components are counted
    plan.py       a request for pictures: which component runs how often, with what work
    estimate.py   time, memory and money of a plan

diffusers is not needed, and no weight is read. Work is counted in `simulator.work.diffusion`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
