"""Reward models: of two answers the better one gets the higher score.

The data set has the columns `chosen` and `rejected`, and `prompt` where they do not repeat it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..arguments import NeuronArgumentsMixin
from ..mixin import NeuronTrainerMixin
from .upstream import configuration_for, model_for, requiring_trl

with requiring_trl("NeuronRewardTrainer", "trl.RewardTrainer"):
    from trl import RewardConfig, RewardTrainer


@dataclasses.dataclass
class NeuronRewardConfig(NeuronArgumentsMixin, RewardConfig):
    """TRL's `RewardConfig`, nothing removed, and the fields of `NeuronArgumentsMixin`.

    Raises:
        ConfigError: values that cannot be, or cannot be together; all of them are named.
    """


class NeuronRewardTrainer(NeuronTrainerMixin, RewardTrainer):
    """TRL's `RewardTrainer`, nothing removed, on simulated cores: a model that scores answers.

    Args:
        model: model for sequence classification with one label; an id, a folder, or a name that `neuron fetch` knows.
        args: `NeuronRewardConfig`; None takes TRL's defaults.
        positional: further arguments of TRL's class, in its order.
        keywords: further arguments, by name: `train_dataset`, `processing_class`, `peft_config`.

    Raises:
        ConfigError: a configuration of another class.

    Example:
        ```python no-run
        from optimum_neuron import NeuronRewardConfig, NeuronRewardTrainer

        rows = Dataset.from_list([{"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}])
        NeuronRewardTrainer("minilm", NeuronRewardConfig(output_dir="out"), train_dataset=rows).train()
        ```
    """

    def __init__(self, model: Any, args: NeuronRewardConfig | None = None, *positional: Any, **keywords: Any) -> None:
        args = configuration_for(type(self).__name__, args, NeuronRewardConfig, model)
        super().__init__(model_for(model), args, *positional, **keywords)
