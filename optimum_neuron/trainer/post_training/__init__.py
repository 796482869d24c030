"""TRL's trainers on simulated cores: chats, preferences, rewards. Each is TRL's own class behind `NeuronTrainerMixin`.

`methods.py` has the table of methods, and makes the two classes of a method when one is first used. Losses, collators,
and loops are TRL's. TRL comes with the extra `training`.

    from optimum_neuron import NeuronSFTConfig, NeuronSFTTrainer
    NeuronSFTTrainer("smollm2", NeuronSFTConfig(output_dir="out"), train_dataset=rows).train()
"""

from __future__ import annotations

import sys
from typing import Any

_METHODS = ("DPO", "GRPO", "ORPO", "Reward", "SFT")

__all__ = [  # noqa: PLE0604  (every name is a string)
    *(f"Neuron{method}{kind}" for method in _METHODS for kind in ("Config", "Trainer"))
]

# Each method was once a separate module, and `training_args.bin` of old checkpoints names it.
sys.modules.update({f"{__name__}.{method.lower()}": sys.modules[__name__] for method in _METHODS})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from ...errors import nearest

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")
    from .methods import make_classes

    method = name.removeprefix("Neuron").removesuffix("Config").removesuffix("Trainer")
    globals().update({kind.__name__: kind for kind in make_classes(method)})
    return globals()[name]
