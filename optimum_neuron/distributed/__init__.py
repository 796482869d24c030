"""Layouts of a training run over simulated cores, one process for each core (torchrun, accelerate launch).

torch.distributed does the work: DDP, FSDP2 and DTensor, torch.distributed.pipelining and torch.distributed.checkpoint
over the process group "neuron". This package only applies them to a model: `layout.py` has the settings of a run,
`distribute.py` applies them to a model, `whole.py` and `checkpoint.py` save sharded tensors. It does not depend on
trainers, of the compiler, or of time on the chip.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
