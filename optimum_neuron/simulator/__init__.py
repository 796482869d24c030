"""The performance simulator: work, device time, and what a user sees of both. Every number it gives is simulated.

work/            graph to work: cycles by tile, passes, bytes, collectives; exact, no measured constant
constants.py     what was fitted, from data/constants.json
device_time.py   work to device time: documented rates and those constants
stacks.py        serving stacks: buckets, batches, host path, by SDK
serving.py       which graphs run how often for a request
machine.py       instance, cores, copies, price
decoders.py graphs.py compiled.py                the kinds of models
configured.py programs.py                        from a configuration; from graphs
result.py        intervals, quantities, price and machine put together
diffusion/                                       pipelines of several models
queueing.py                                      waiting, where requests arrive at random
quantity.py      the result
entry.py ranking.py training.py training_layout.py `estimate`; all instances ranked; training
break_even.py    whether a port pays

>>> from optimum_neuron.simulator import estimate
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .break_even import Breakeven, breakeven
    from .entry import estimate
    from .quantity import Estimate, Quantity
    from .ranking import Comparison, compare
    from .training import TrainingEstimate, estimate_training

__all__ = [
    "Breakeven",
    "Comparison",
    "Estimate",
    "Quantity",
    "TrainingEstimate",
    "breakeven",
    "compare",
    "estimate",
    "estimate_training",
]

_MODULES = {
    "Breakeven": "break_even",
    "Comparison": "ranking",
    "Estimate": "quantity",
    "Quantity": "quantity",
    "TrainingEstimate": "training",
    "breakeven": "break_even",
    "compare": "ranking",
    "estimate": "entry",
    "estimate_training": "training",
}

__getattr__ = lazy_names(__name__, _MODULES)
