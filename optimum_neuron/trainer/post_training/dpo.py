"""Direct preference optimization: of two answers the better one becomes likelier than it was for a reference.

The data set has the columns `prompt`, `chosen` and `rejected`. Rafailov et al., arXiv:2305.18290.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..arguments import NeuronArgumentsMixin
from ..mixin import NeuronTrainerMixin
from .upstream import configuration_for, model_for, requiring_trl

with requiring_trl("NeuronDPOTrainer", "trl.DPOTrainer"):
    from trl import DPOConfig, DPOTrainer


@dataclasses.dataclass
class NeuronDPOConfig(NeuronArgumentsMixin, DPOConfig):
    """TRL's `DPOConfig`, nothing removed, and the fields of `NeuronArgumentsMixin`.

    Raises:
        ConfigError: values that cannot be, or cannot be together; all of them are named.
    """


class NeuronDPOTrainer(NeuronTrainerMixin, DPOTrainer):
    """TRL's `DPOTrainer`, nothing removed, on simulated cores: direct preference optimization.

    Args:
        model: causal language model; an id, a folder, or a name that `neuron fetch` knows.
        ref_model: frozen reference; None: the model as it was, or with its adapter off.
        args: `NeuronDPOConfig`; None takes TRL's defaults.
        positional: further arguments of TRL's class, in its order.
        keywords: further arguments, by name: `train_dataset`, `processing_class`, `peft_config`.

    Raises:
        ConfigError: a configuration of another class.

    Example:
        ```python no-run
        from optimum_neuron import NeuronDPOConfig, NeuronDPOTrainer

        rows = Dataset.from_list([{"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}])
        NeuronDPOTrainer("smollm2", args=NeuronDPOConfig(output_dir="out"), train_dataset=rows).train()
        ```
    """

    def __init__(
        self, model: Any, ref_model: Any = None, args: NeuronDPOConfig | None = None, *positional: Any, **keywords: Any
    ) -> None:
        args = configuration_for(type(self).__name__, args, NeuronDPOConfig, model)
        super().__init__(model_for(model), ref_model, args, *positional, **keywords)
