"""Capacity plans: a trace of requests is replayed against simulated replicas, faster than real time.

trace.py   requests with arrivals and lengths     formats.py  reads them from files
slo.py     service level objectives               replay.py   serves a trace with simulated engines
report.py  percentiles, goodput, and cost         plan.py     one configuration
pools.py   times of many configurations           sweep.py    the cheapest configuration that meets an objective
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
