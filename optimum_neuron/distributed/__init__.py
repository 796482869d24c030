"""Layouts of a training run over simulated cores, one process for each core (torchrun, accelerate launch).

torch.distributed does the work: DDP, FSDP2 and DTensor, torch.distributed.pipelining and torch.distributed.checkpoint
over the process group "neuron". Here is only what they are to do for a model.

    mesh.py          how many cores share a batch, a layer, a pipeline; which numbers of processes can be
    plans.py         which parameters tensor parallelism splits, as data for each family
    styles.py        how tokens are divided between cores that share layers
    shard.py         a model's parameters as DTensors of a mesh
    pipeline.py      a model in stages, and batches in parts through them
    whole.py         whole weights of a model in parts
    checkpoint.py    optimizer states in shards, read back on another number of cores
    gather.py        results of an evaluation, once where processes see the same batch
    training.py      `DistributedTraining`: layouts for `Trainer`, as a mix-in; `steps.py` and `states.py` are its parts

It knows nothing of the compiler or of time on the chip.
"""
