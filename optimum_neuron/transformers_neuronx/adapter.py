"""`generate` of transformers over a model of this package: greedy, sampling, beams, with padding on the left.

adapter = HuggingFaceGenerationModelAdapter(config, model)
adapter.generate(input_ids, attention_mask=attention_mask, max_length=128)
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from ..modeling import NeuronModelForCausalLM, require_rows, sequences_each
from ..options.spelling import spelled
from .families import GPT2ForSampling
from .model import NeuronModelBase
from .options import KEYWORDS


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
    @spelled(KEYWORDS)
    def generate(self, *args: Any, **options: Any) -> Any:
        """Generate as `NeuronModelForCausalLM.generate` does, with the generation configuration of this object.

        Raises:
            ShapeError: there are more prompts, or beams of them, than the batch has rows.
        """
        ids = args[0] if args else options.get("input_ids", options.get("inputs"))
        if ids is not None:
            settings = options.get("generation_config") or self.generation_config
            require_rows(len(ids), self.model.num_rows, sequences_each(settings, options))
        self.reset_generation()
        own, self._compiled.generation_config = self._compiled.generation_config, self.generation_config
        try:
            return self._compiled.generate(*args, **options)
        finally:
            self._compiled.generation_config = own

    @spelled(KEYWORDS)
    def forward(
        self,
        input_ids: torch.Tensor,
        cache_ids: torch.Tensor | None = None,
        start_ids: torch.Tensor | None = None,
        return_dict: bool | None = None,
        **options: object,
    ) -> Any:
        """Run the compiled decoder.

        Args:
            input_ids: tokens [batch, columns].
            cache_ids: as in `NeuronModelBase.forward`; the result is then the logits [batch, 1, vocabulary] in a tuple.
            start_ids: as in `NeuronModelBase.forward`.
            return_dict: whether the result has names; None: unless `cache_ids` is given.
            **options: those of `NeuronModelForCausalLM`, without `cache_ids`.
        """
        if cache_ids is None and start_ids is None:
            return self._compiled(input_ids, return_dict=return_dict, **options)
        logits = self.model(input_ids, cache_ids, start_ids)[:, None]
        return CausalLMOutput(logits=logits) if return_dict else (logits,)


class GPT2ForHuggingFaceSampling(GPT2ForSampling):
    """GPT-2 with `generate` of transformers; in new code, `HuggingFaceGenerationModelAdapter` does the same."""

    def generate(self, *args: object, **options: object) -> Any:
        """Generate as `HuggingFaceGenerationModelAdapter` does."""
        return HuggingFaceGenerationModelAdapter(self.config, self).generate(*args, **options)

    def reset_generation(self) -> None:
        """Forget the sequences in the cache."""
        self.reset()
