"""`generate` of transformers over a model of this package: greedy, sampling, beams, with padding on the left.

adapter = HuggingFaceGenerationModelAdapter(config, model)
adapter.generate(input_ids, attention_mask=attention_mask, max_length=128)
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel

from ..modeling import NeuronModelForCausalLM
from .model import NeuronModelBase


class HuggingFaceGenerationModelAdapter(PreTrainedModel, GenerationMixin):
    """A model that `to_neuron` has compiled, as transformers calls it."""

    main_input_name = "input_ids"
    _supports_sdpa = _supports_flash_attn = True

    def __init__(self, config: PretrainedConfig, model: NeuronModelBase) -> None:
        super().__init__(config)
        self.model = model

    @property
    def _compiled(self) -> NeuronModelForCausalLM:
        return self.model.compiled

    @property
    def device(self) -> torch.device:
        """Where inputs belong."""
        return torch.device("cpu")

    def reset_generation(self) -> None:
        """Forget the sequences in the cache."""
        self.model.reset()

    @torch.no_grad()
    def generate(self, *args: object, **options: object) -> Any:
        """Generate as `NeuronModelForCausalLM.generate` does, with the generation configuration of this object."""
        self.reset_generation()
        options.setdefault("generation_config", self.generation_config)
        return self._compiled.generate(*args, **options)

    def forward(self, input_ids: torch.Tensor, **options: object) -> Any:
        """Run the compiled decoder; arguments and result are those of `NeuronModelForCausalLM`."""
        return self._compiled(input_ids, **options)
