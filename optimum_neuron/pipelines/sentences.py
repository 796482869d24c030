"""The feature-extraction pipeline of a sentence-transformers model: one vector for each text."""

from __future__ import annotations

from typing import Any

from transformers import FeatureExtractionPipeline


class SentencePipeline(FeatureExtractionPipeline):
    """Returns the sentence's vector, where transformers' pipeline returns the hidden states of all tokens."""

    def postprocess(self, model_outputs: Any, return_tensors: bool = False) -> Any:
        """Return the vector as a list of numbers, or as a tensor."""
        vector = model_outputs["sentence_embedding"][0]
        return vector if return_tensors else vector.tolist()
