"""Estimates of diffusion pipelines: of a folder's configurations, or of the programs of an exported folder.

    source.py     a pipeline: its models without weights, its calls and how often it makes them, its programs
    plan.py       a request for pictures as work
    request.py    a request, complete and checked, and the cores for it
    estimate.py   time, memory and money of a plan

Calls are those that an export compiles (`kinds/diffusion/dry_run.py`), so every pipeline that can be compiled can
be estimated. diffusers must be installed. No weight is read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
