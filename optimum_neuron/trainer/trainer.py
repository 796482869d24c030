"""`NeuronTrainer`: transformers' `Trainer` on the device "neuron".

from optimum_neuron import NeuronTrainer, NeuronTrainingArguments
trainer = NeuronTrainer(model, NeuronTrainingArguments(output_dir="out"), train_dataset=data)
trainer.train(resume_from_checkpoint=True)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers import DataCollatorWithPadding, Trainer, set_seed
from transformers.trainer_utils import number_of_arguments

from ..base.transformers_types import TrainingArguments
from ..errors import ConfigError
from .arguments import NeuronTrainingArguments
from .inputs import main_input, require_columns, require_rows
from .mixin import PADDING_MULTIPLE, NeuronTrainerMixin

if TYPE_CHECKING:
    from torch import nn


class NeuronTrainer(NeuronTrainerMixin, Trainer):
    """transformers' `Trainer`, nothing removed, on simulated cores.

    Args:
        model: as upstream; a loaded model.
        args: `NeuronTrainingArguments`.
        positional: further arguments of `Trainer`, in its order.
        peft_config: adapter of PEFT that is put on the model and trained in its place.
        keywords: further arguments of `Trainer`, by name.

    Raises:
        ConfigError: arguments of another class, a name instead of a model, a data set without the model's input, or a
            missing PEFT.

    Example:
        ```python
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        from optimum_neuron import NeuronTrainer, NeuronTrainingArguments

        model = LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                             num_attention_heads=2, num_key_value_heads=2))
        rows = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(8)]
        arguments = NeuronTrainingArguments(output_dir="out", max_steps=2, report_to=[], disable_tqdm=True)
        result = NeuronTrainer(model, arguments, train_dataset=rows).train()
        assert result.global_step == 2
        ```
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        *positional: object,
        peft_config: object = None,
        **keywords: object,
    ) -> None:
        if args is None:
            args = NeuronTrainingArguments(output_dir="tmp_trainer")
        if isinstance(model, (str, os.PathLike)):
            message = f"{type(self).__name__} needs a loaded model, not the name {str(model)!r}."
            hint = "Load it (AutoModelForCausalLM.from_pretrained), or use NeuronSFTTrainer, which takes names."
            raise ConfigError(message, hint=hint, option="model", value=str(model))
        if peft_config is not None:
            # As upstream does before `model_init`: the seed of the run decides how the adapter begins.
            set_seed(args.seed)
            model, keywords = _with_adapter(model, keywords, peft_config)
        super().__init__(model, args, *positional, **keywords)
        has_collator = bool(positional) or keywords.get("data_collator") is not None
        if args.torch_compile and not has_collator and isinstance(self.data_collator, DataCollatorWithPadding):
            self.data_collator.pad_to_multiple_of = PADDING_MULTIPLE

    def _get_dataloader(self, dataset: object, description: str, *positional: object, **keywords: object) -> Any:
        require_rows(dataset, purpose=description.lower())
        columns = getattr(dataset, "column_names", None)
        if columns is None and isinstance(dataset, (list, tuple)) and dataset and isinstance(dataset[0], Mapping):
            columns = list(dataset[0])
        if columns is not None and self.args.remove_unused_columns:
            self._set_signature_columns_if_needed()
            name = main_input(self.model)
            if name in self._signature_columns:
                require_columns(columns, self._signature_columns, name, purpose=description.lower())
        return super()._get_dataloader(dataset, description, *positional, **keywords)


def _with_adapter(model: nn.Module, keywords: dict[str, Any], config: object) -> tuple[Any, dict[str, Any]]:
    try:
        from peft import get_peft_model
    except ImportError as problem:
        raise ConfigError(
            "peft_config needs PEFT, which is not installed.", hint="Run `pip install peft`.", option="peft_config"
        ) from problem
    if model is not None:
        return get_peft_model(model, config), keywords
    init = keywords.get("model_init")
    if init is None:
        return None, keywords

    def adapted() -> Any:
        return get_peft_model(init(), config)

    def adapted_for(trial: object) -> Any:
        return get_peft_model(init(trial), config)

    return None, {**keywords, "model_init": adapted_for if number_of_arguments(init) else adapted}
