"""Serves models on a Ray cluster: replicas on several machines, with the deployments and paths of one server.

    config.py  models, replicas, and limits      application.py  Ray Serve's application of a configuration
    replica.py models of one Ray actor           ingress.py      sends requests to replicas, and again if one dies
    run.py     serves until a signal             metrics.py      pages of all replicas

Needs the extra `ray`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
