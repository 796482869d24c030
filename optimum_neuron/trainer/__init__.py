"""Fine-tuning on simulated cores: transformers' `Trainer`, nothing removed, on the torch device "neuron".

Scripts written for `Trainer` run after changing two class names. The additions are a mix-in, so that trainers derived
from `Trainer` elsewhere (TRL's) get them too.

    arguments.py     `NeuronTrainingArguments`: upstream's, with the fields of Neuron
    trainer.py       `NeuronTrainer`
    mixin.py         `NeuronTrainerMixin`, with a table of the attributes that it and its two bases share
    construction.py  the steps of its `__init__`
    steps.py         its base that trains a distributed model
    saving.py        its base that saves and resumes
    checkpoints.py   checkpoints that appear whole or not at all; which of them can be resumed, and why not
    resume.py        a checkpoint's weights for a model, if they fit it
    optimizer.py     float32 master weights and gradients for 16-bit parameters
    rounding.py      stochastic rounding, step by step
    guard.py         the module where a loss or gradient stopped being finite
    inputs.py        errors for batches that a model cannot use
    collators.py     batches padded to a few lengths
    recompiles.py    steps that compile again
    memory.py        whether gradients and optimizer fit the HBM of a core
    metrics.py       entries of the log
    estimates.py     time of a step on the simulated instance
    accelerator.py   `NeuronAccelerator`, for custom training loops
    post_training/   TRL's trainers behind the same mix-in

Layouts over several cores are `distributed/`, which knows no trainer.
It knows nothing of models or of the compiler; time on the chip is the simulator's.

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments
    NeuronTrainer(model, NeuronTrainingArguments(output_dir="out"), train_dataset=data).train()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ..distributed.layout import TrainingNeuronConfig
    from .accelerator import NeuronAccelerator, NeuronAcceleratorState
    from .arguments import NeuronArgumentsMixin, NeuronTrainingArguments
    from .collators import BucketCollator
    from .mixin import NeuronTrainerMixin
    from .trainer import NeuronTrainer

__all__ = [
    "BucketCollator",
    "NeuronAccelerator",
    "NeuronAcceleratorState",
    "NeuronArgumentsMixin",
    "NeuronTrainer",
    "NeuronTrainerMixin",
    "NeuronTrainingArguments",
    "TrainingNeuronConfig",
]

__getattr__ = lazy_names(
    __name__,
    {
        "BucketCollator": "collators",
        "NeuronAccelerator": "accelerator",
        "NeuronAcceleratorState": "accelerator",
        "NeuronArgumentsMixin": "arguments",
        "NeuronTrainer": "trainer",
        "NeuronTrainerMixin": "mixin",
        "NeuronTrainingArguments": "arguments",
        "TrainingNeuronConfig": "models",
    },
)
