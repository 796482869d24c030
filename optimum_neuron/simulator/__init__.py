"""The performance simulator: work, device time, and estimates. Every number it gives is simulated.

work/            graph to work: cycles by tile, passes, bytes, collectives; exact, no measured constant
device_time.py   work to device time: documented rates
fitted.py        what was fitted: data/constants.json, and files of users
stacks.py        serving stacks: buckets, batches, host path, by SDK; lengths of a request
serving.py       which graphs run how often for a request
machine.py       instance, cores, copies, price
request.py                                       what is asked: options, and the models that each has an effect on
decoders.py graphs.py compiled.py                counts of the kinds of models, and their estimates
configured.py captures.py programs.py            counted from a configuration; from graphs
known.py                                         counts of a configuration, kept on disk for other processes
result.py        the result: intervals, quantities, price and machine put together
diffusion/                                       pipelines of several models
continuous.py                                    continuous batching: the scheduler without a device
speculation.py                                   candidates that are checked together
queueing.py                                      waiting, where requests arrive at random
entry.py ranking.py training.py training_layout.py `estimate`: request, counts, time; all instances ranked; training
break_even.py    whether a port pays
calibration/     measurements of a user: constants of their own, and runs beside predictions

>>> from optimum_neuron.simulator import estimate
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
