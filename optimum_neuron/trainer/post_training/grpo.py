"""Group relative policy optimization: the model samples several answers to a prompt, and the better ones of a group
become likelier.

The data set has the column `prompt`. Shao et al., arXiv:2402.03300. Answers are sampled by transformers' `generate`,
with the weights that are trained, operator by operator on the device.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from accelerate.utils import set_seed

from ...errors import ConfigError, refusal
from ..arguments import NeuronArgumentsMixin
from ..mixin import NeuronTrainerMixin
from .upstream import configuration_for, model_for, requiring_trl

with requiring_trl("NeuronGRPOTrainer", "trl.GRPOTrainer"):
    from trl import GRPOConfig, GRPOTrainer


@dataclasses.dataclass
class NeuronGRPOConfig(NeuronArgumentsMixin, GRPOConfig):
    """TRL's `GRPOConfig`, nothing removed, and the fields of `NeuronArgumentsMixin`.

    Raises:
        ConfigError: values that cannot be, or cannot be together; all of them are named.
    """

    def __post_init__(self) -> None:
        # TRL counts the answers of every process, but cores that share layers have the same ones: of its larger batch
        # they would never reach a part.
        given: Any = self
        num_same = max(given.tensor_parallel_size, 1)
        if given.generation_batch_size is not None:
            given.generation_batch_size *= num_same
        super().__post_init__()
        given.generation_batch_size //= num_same
        if given.generation_batch_size % given.num_generations:
            raise ConfigError(
                refusal(
                    asked=f"num_generations={self.num_generations}",
                    found=f"batches of {self.generation_batch_size} answers",
                    why=f"a group is in one batch, and {num_same} cores that share layers have the same answers",
                    do="pass per_device_train_batch_size or gradient_accumulation_steps that num_generations divides",
                )
            )


class NeuronGRPOTrainer(NeuronTrainerMixin, GRPOTrainer):
    """TRL's `GRPOTrainer`, nothing removed, on simulated cores: group relative policy optimization.

    Args:
        model: causal language model; an id, a folder, or a name that `neuron fetch` knows.
        reward_funcs: functions of prompts and completions that give a score for each, or reward models.
        args: `NeuronGRPOConfig`; None takes TRL's defaults.
        positional: further arguments of TRL's class, in its order.
        keywords: further arguments, by name: `train_dataset`, `processing_class`, `peft_config`.

    Raises:
        ConfigError: a configuration of another class.

    Example:
        ```python no-run
        from optimum_neuron import NeuronGRPOConfig, NeuronGRPOTrainer

        def brevity(completions, **others):
            return [-float(len(text)) for text in completions]

        NeuronGRPOTrainer("smollm2", brevity, NeuronGRPOConfig(output_dir="out"), train_dataset=prompts).train()
        ```
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: NeuronGRPOConfig | None = None,
        *positional: Any,
        **keywords: Any,
    ) -> None:
        args = configuration_for(type(self).__name__, args, NeuronGRPOConfig, model)
        super().__init__(model_for(model), reward_funcs, args, *positional, **keywords)
        if self.get_tp_size() > 1:
            # TRL seeds each process on its own; cores that share layers draw the same answers, in the same order.
            set_seed(args.seed + args.process_index // self.get_tp_size())
