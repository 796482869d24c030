"""Layouts of a training run over simulated cores, one process for each core (torchrun, accelerate launch).

torch.distributed does the work: DDP, FSDP2 and DTensor, torch.distributed.pipelining and torch.distributed.checkpoint
over the process group "neuron". This package only says how they apply to a model.

    layout.py        `TrainingNeuronConfig`: how many cores share a batch, a layer, a pipeline
    mesh.py          the process groups of a layout, and which numbers of processes it takes
    plans.py         which parameters tensor parallelism splits, as data for each family
    styles.py        how tokens are divided between cores that share layers
    shard.py         a model's parameters as DTensors of a mesh; `dtypes.py` says which of them have 16 bits
    pipeline.py      a model in stages, and microbatches through them
    context.py       sequences divided between cores
    distribute.py    `distribute`: all of this for the model of a trainer
    whole.py         whole weights of a distributed model
    checkpoint.py    optimizer states in shards, read back on another number of cores
    consolidate.py   one file of weights out of a checkpoint
    gather.py        results of an evaluation, counted once if processes see the same batch

It knows nothing of trainers, of the compiler, or of time on the chip.
"""
