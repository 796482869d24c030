"""TRL's trainers on simulated cores: chats, preferences, rewards. Each is TRL's own class behind `NeuronTrainerMixin`.

    sft.py         `NeuronSFTTrainer`: supervised fine-tuning on texts, chats, or prompts with completions
    dpo.py         `NeuronDPOTrainer`: preferences, against a frozen reference
    orpo.py        `NeuronORPOTrainer`: preferences, without a reference
    reward.py      `NeuronRewardTrainer`: a model that scores answers
    grpo.py        `NeuronGRPOTrainer`: rewards for answers that the model samples itself
    upstream.py    what all of them need of TRL and of their configurations

It holds no losses, collators or loops: those are TRL's. TRL comes with the extra `training`.

    from optimum_neuron import NeuronSFTConfig, NeuronSFTTrainer
    NeuronSFTTrainer("smollm2", NeuronSFTConfig(output_dir="out"), train_dataset=rows).train()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .dpo import NeuronDPOConfig, NeuronDPOTrainer
    from .grpo import NeuronGRPOConfig, NeuronGRPOTrainer
    from .orpo import NeuronORPOConfig, NeuronORPOTrainer
    from .reward import NeuronRewardConfig, NeuronRewardTrainer
    from .sft import NeuronSFTConfig, NeuronSFTTrainer

__all__ = [
    "NeuronDPOConfig",
    "NeuronDPOTrainer",
    "NeuronGRPOConfig",
    "NeuronGRPOTrainer",
    "NeuronORPOConfig",
    "NeuronORPOTrainer",
    "NeuronRewardConfig",
    "NeuronRewardTrainer",
    "NeuronSFTConfig",
    "NeuronSFTTrainer",
]

__getattr__ = lazy_names(
    __name__,
    {
        "NeuronDPOConfig": "dpo",
        "NeuronDPOTrainer": "dpo",
        "NeuronGRPOConfig": "grpo",
        "NeuronGRPOTrainer": "grpo",
        "NeuronORPOConfig": "orpo",
        "NeuronORPOTrainer": "orpo",
        "NeuronRewardConfig": "reward",
        "NeuronRewardTrainer": "reward",
        "NeuronSFTConfig": "sft",
        "NeuronSFTTrainer": "sft",
    },
)
