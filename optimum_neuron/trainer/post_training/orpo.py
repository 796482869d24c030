"""Odds ratio preference optimization: supervised fine-tuning and preferences in one loss, without a reference.

The data set has the columns `prompt`, `chosen` and `rejected`. Hong et al., arXiv:2403.07691. TRL has it among its
experimental trainers, and says so when it is imported.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..arguments import NeuronArgumentsMixin
from ..mixin import NeuronTrainerMixin
from .upstream import configuration_for, model_for, requiring_trl

with requiring_trl("NeuronORPOTrainer", "trl.experimental.orpo.ORPOTrainer"):
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer


@dataclasses.dataclass
class NeuronORPOConfig(NeuronArgumentsMixin, ORPOConfig):
    """TRL's `ORPOConfig`, nothing removed, and the fields of `NeuronArgumentsMixin`.

    Raises:
        ConfigError: values that cannot be, or cannot be together; all of them are named.
    """


class NeuronORPOTrainer(NeuronTrainerMixin, ORPOTrainer):
    """TRL's `ORPOTrainer`, nothing removed, on simulated cores: odds ratio preference optimization.

    Args:
        model: causal language model; an id, a folder, or a name that `neuron fetch` knows.
        args: `NeuronORPOConfig`; None takes TRL's defaults.
        positional: further arguments of TRL's class, in its order.
        keywords: further arguments, by name: `train_dataset`, `processing_class`, `peft_config`.

    Raises:
        ConfigError: a configuration of another class.

    Example:
        ```python no-run
        from optimum_neuron import NeuronORPOConfig, NeuronORPOTrainer

        rows = Dataset.from_list([{"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}])
        arguments = NeuronORPOConfig(output_dir="out")
        NeuronORPOTrainer("smollm2", arguments, train_dataset=rows, processing_class=tokenizer).train()
        ```
    """

    def __init__(
        self, model: Any = None, args: NeuronORPOConfig | None = None, *positional: Any, **keywords: Any
    ) -> None:
        args = configuration_for(type(self).__name__, args, NeuronORPOConfig, model)
        super().__init__(model_for(model), args, *positional, **keywords)
