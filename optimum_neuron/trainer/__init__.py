"""Fine-tuning on simulated cores: transformers' `Trainer`, nothing removed, on the torch device "neuron".

Scripts written for `Trainer` run after changing two class names. What is added is a mix-in, so that trainers derived
from `Trainer` elsewhere (TRL's) get the same.

    arguments.py     `NeuronTrainingArguments`: upstream's, and what Neuron adds; `layout.py` is its `trn_config`
    trainer.py       `NeuronTrainer`
    mixin.py         `NeuronTrainerMixin`: what is added; `saving.py` is its part that saves and resumes
    checkpoints.py   checkpoints that appear whole or not at all; which of them can be resumed, and why not
    resume.py        a checkpoint's weights for a model, if they are its own
    optimizer.py     float32 master weights and gradients for 16-bit parameters
    rounding.py      stochastic rounding, step by step
    guard.py         the module where a loss or gradient stopped being finite
    inputs.py        batches that a model cannot use, told before they reach it
    collators.py     batches padded to a few lengths
    recompiles.py    steps that compile again
    memory.py        whether gradients and optimizer fit the HBM of a core
    throughput.py    tokens per second of this host
    accelerator.py   `NeuronAccelerator`, for training loops of one's own
    estimates.py     what a step would take on the simulated instance
    post_training/   TRL's trainers, with the same added

It knows nothing of models or of the compiler; time on the chip is the simulator's.

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments
    NeuronTrainer(model, NeuronTrainingArguments(output_dir="out"), train_dataset=data).train()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .accelerator import NeuronAccelerator, NeuronAcceleratorState
    from .arguments import NeuronArgumentsMixin, NeuronTrainingArguments
    from .collators import BucketCollator
    from .layout import TrainingNeuronConfig
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
        "TrainingNeuronConfig": "layout",
    },
)
