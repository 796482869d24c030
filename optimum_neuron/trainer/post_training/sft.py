"""Supervised fine-tuning: texts, chats, or prompts with completions.

The data set has one of the columns `text`, `messages`, or `prompt` and `completion`; TRL tokenizes it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..arguments import NeuronArgumentsMixin
from ..mixin import NeuronTrainerMixin
from .upstream import configuration_for, model_for, requiring_trl

with requiring_trl("NeuronSFTTrainer", "trl.SFTTrainer"):
    from trl import SFTConfig, SFTTrainer


@dataclasses.dataclass
class NeuronSFTConfig(NeuronArgumentsMixin, SFTConfig):
    """TRL's `SFTConfig`, nothing removed, and the fields of `NeuronArgumentsMixin`.

    Raises:
        ConfigError: values that cannot be, or cannot be together; all of them are named.
    """

    max_seq_length: int | None = dataclasses.field(default=None, metadata={"help": "Sets max_length."})

    def __post_init__(self) -> None:
        if self.max_seq_length is not None:  # TRL's name before 0.20
            self.max_length = self.max_seq_length
        super().__post_init__()


class NeuronSFTTrainer(NeuronTrainerMixin, SFTTrainer):
    """TRL's `SFTTrainer`, nothing removed, on simulated cores: supervised fine-tuning.

    Args:
        model: causal language model; an id, a folder, or a name that `neuron fetch` knows.
        args: `NeuronSFTConfig`; None takes TRL's defaults.
        positional: further arguments of TRL's class, in its order.
        keywords: further arguments, by name: `train_dataset`, `processing_class`, `peft_config`.

    Raises:
        ConfigError: a configuration of another class.

    Example:
        ```python no-run
        from optimum_neuron import NeuronSFTConfig, NeuronSFTTrainer

        rows = Dataset.from_list([{"prompt": "tree:", "completion": " a tall plant with a trunk"}])
        arguments = NeuronSFTConfig(output_dir="out", max_length=128)
        NeuronSFTTrainer("smollm2", arguments, train_dataset=rows, peft_config=LoraConfig()).train()
        ```
    """

    losses_of_tokens = (SFTTrainer,)

    def __init__(self, model: Any, args: NeuronSFTConfig | None = None, *positional: Any, **keywords: Any) -> None:
        args = configuration_for(type(self).__name__, args, NeuronSFTConfig, model)
        super().__init__(model_for(model), args, *positional, **keywords)
