"""`NeuronModelForEmbedding`: text embeddings by a decoder such as Qwen3-Embedding.

    model = NeuronModelForEmbedding.from_pretrained("Qwen/Qwen3-Embedding-0.6B", export=True, sequence_length=512)
    vectors = model.encode(["a cat", "a dog"])

The decoder is compiled without a KV cache and without a head. The vector is the hidden state of the last token, scaled
to length 1, unless the folder configures sentence-transformers differently.
"""

from __future__ import annotations

import dataclasses

from ..base.core import Choice
from ..exporters import Prepared
from .sentences import NeuronSentenceTransformer
from .two_step import TwoStepExport


class NeuronModelForEmbedding(NeuronSentenceTransformer, TwoStepExport):
    """A compiled decoder for embeddings, with the interface of `NeuronSentenceTransformer`."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        if not (prepared.source.folder / "modules.json").is_file():
            choice = Choice(value="lasttoken", reason="the folder has no pooling module: last token of a decoder")
            self.recipe = dataclasses.replace(
                self.recipe, pooling=("lasttoken",), modules=(("Normalize", ""),), choice=choice
            )
