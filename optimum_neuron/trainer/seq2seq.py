"""`Seq2SeqNeuronTrainer`: transformers' `Seq2SeqTrainer` on the device "neuron".

arguments = Seq2SeqNeuronTrainingArguments(output_dir="out", predict_with_generate=True)
Seq2SeqNeuronTrainer(model, arguments, train_dataset=data, eval_dataset=data).evaluate()
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from ..base.transformers_types import TrainingArguments
from ..errors import ConfigError
from .arguments import NeuronArgumentsMixin
from .trainer import NeuronTrainer

if TYPE_CHECKING:
    from torch import nn


@dataclasses.dataclass
class Seq2SeqNeuronTrainingArguments(NeuronArgumentsMixin, Seq2SeqTrainingArguments):
    """transformers' `Seq2SeqTrainingArguments`, nothing removed, and the fields of `NeuronArgumentsMixin`.

    Example:
        ```python
        from optimum_neuron import Seq2SeqNeuronTrainingArguments

        arguments = Seq2SeqNeuronTrainingArguments(output_dir="out", predict_with_generate=True)
        assert arguments.device.type == "neuron"
        ```
    """


class Seq2SeqNeuronTrainer(NeuronTrainer, Seq2SeqTrainer):
    """transformers' `Seq2SeqTrainer`, nothing removed, on simulated cores; evaluation can generate on the device.

    Arguments are those of `NeuronTrainer`; `args` are `Seq2SeqNeuronTrainingArguments`.

    Raises:
        ConfigError: as `NeuronTrainer`, or `args` of another class.

    Example:
        ```python
        import torch
        from transformers import T5Config, T5ForConditionalGeneration
        from optimum_neuron import Seq2SeqNeuronTrainer, Seq2SeqNeuronTrainingArguments

        sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
        model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))
        rows = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(4) + i} for i in range(4)]
        arguments = Seq2SeqNeuronTrainingArguments(output_dir="out", max_steps=1, predict_with_generate=True,
                                                   report_to=[], disable_tqdm=True)
        trainer = Seq2SeqNeuronTrainer(model, arguments, train_dataset=rows, eval_dataset=rows)
        trainer.train()
        assert trainer.predict(rows, max_length=4).predictions.shape[0] == 4
        ```
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        *positional: object,
        **keywords: object,
    ) -> None:
        if args is None:
            args = Seq2SeqNeuronTrainingArguments(output_dir="tmp_trainer")
        if not isinstance(args, Seq2SeqNeuronTrainingArguments):
            message = f"Seq2SeqNeuronTrainer needs Seq2SeqNeuronTrainingArguments, not {type(args).__name__}."
            hint = "Use Seq2SeqNeuronTrainingArguments, which takes the same keywords."
            raise ConfigError(message, hint=hint, option="args", type=type(args).__name__)
        super().__init__(model, args, *positional, **keywords)
