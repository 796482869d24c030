"""Fine-tuning on simulated cores: transformers' `Trainer`, nothing removed, on the torch device "neuron".

Scripts written for `Trainer` run after changing two class names. The additions are a mix-in (`mixin.py`), so that
trainers derived from `Trainer` elsewhere (TRL's, in `post_training/`) get them too. `accelerator.py` is for custom
training loops. Layouts over several cores are `distributed/`, which knows no trainer. It does not depend on models or
of the compiler; time on the chip is the simulator's.

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments
    NeuronTrainer(model, NeuronTrainingArguments(output_dir="out"), train_dataset=data).train()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
