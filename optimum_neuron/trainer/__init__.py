"""Fine-tuning on simulated cores: transformers' `Trainer`, nothing removed, on the torch device "neuron".

Scripts written for `Trainer` run after changing two class names. The additions are a mix-in (`mixin.py`), so that
trainers derived from `Trainer` elsewhere (TRL's, in `post_training/`) get them too. `accelerator.py` is for
custom training loops. Layouts over several cores are `distributed/`, which knows no trainer. It knows nothing of models
or of the compiler; time on the chip is the simulator's.

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
