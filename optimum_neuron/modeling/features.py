"""The base of decoders whose prompts have images or audio: features replace the embeddings of placeholder tokens.

Shape legend: R rows, T columns, F features of a row, D hidden.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling, CausalLMOutputWithPast

from ..compiler import Role
from ..engine import Forward, Modality, PromptFeatures, feature_index
from ..exporters import Prepared
from ..sources import architectures_of
from .checks_features import check_features
from .decoder import NeuronDecoderModel


class FeatureDecoderModel(NeuronDecoderModel):
    """A decoder with an encoder of images or audio; it has no `forward`."""

    modality: ClassVar[Modality]

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        role: Role = "encode_audio" if self.modality == "audio" else "encode_image"
        self._num_tokens: int = prepared.metadata[f"{self.modality}_tokens"]
        self._most: int = getattr(self.neuron_config, f"max_num_{self.modality}s")
        self._token_id: int = getattr(self.config, f"{self.modality}_token_id")
        self._encode = Forward(self.copies, role, self._signature[role])
        inputs = self.loaded.program.graphs[self._decoder.score_graph].inputs
        self._width = inputs[f"{self.modality}_features"].shape[-1]
        self._output_type = _output_type(self.config.model_type, self.task)

    def _prompt_features(
        self, input_ids: torch.Tensor, mask: torch.Tensor, features: list[torch.Tensor], *, by_row: bool
    ) -> PromptFeatures:
        """Features by row, and where a prompt reads them; they come by row, or for each image or audio."""
        # Padding is never a placeholder, whatever it is filled with.
        index_RT = feature_index(input_ids.masked_fill(mask == 0, -1), self._token_id)
        counts = index_RT.amax(1).tolist()
        lengths, modality = [len(part) for part in features], self.modality
        check_features(counts, lengths, num_tokens=self._num_tokens, most=self._most, by_row=by_row, modality=modality)
        features_RFD = torch.zeros(len(counts), max(counts), features[0].shape[-1] if features else self._width)
        if features:
            for row, part in enumerate(torch.cat(features).split(counts)):
                features_RFD[row, : len(part)] = part
        return PromptFeatures(index_RT=index_RT, features_RFD=features_RFD, modality=modality)

    def _feature_results(self, features: list[torch.Tensor]) -> dict[str, Any]:
        """Features under the name that the class of results has for them, if any: transformers 5.24 renamed some."""
        fields, name = self._output_type.__dataclass_fields__, self.modality
        if features and f"{name}_outputs" in fields:
            return {f"{name}_outputs": BaseModelOutputWithPooling(pooler_output=features)}
        if features and f"{name}_hidden_states" in fields:
            return {f"{name}_hidden_states": torch.cat(features)}
        return {}

    @property
    def base_model(self) -> FeatureDecoderModel:
        """`generate` looks for the method that returns features here."""
        return self


def _output_type(model_type: str, task: str) -> Any:
    """transformers' class of results of an architecture."""
    name = architectures_of(task)[model_type][0].replace("ForConditionalGeneration", "CausalLMOutputWithPast")
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    return getattr(module, name, CausalLMOutputWithPast)
