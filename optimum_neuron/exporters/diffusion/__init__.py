"""Diffusion pipelines of diffusers: which programs one has, and how they are compiled, compared and saved.

component.py     models of a pipeline without weights      stock.py    a stock pipeline around them
dry_run.py       notes how the pipeline calls its models   plan.py     one component becomes a program
pipeline.py      all programs of a pipeline                save.py     the exported folder
safety.py        the safety checker, on the host
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
