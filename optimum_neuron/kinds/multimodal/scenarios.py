"""Scenarios of models whose prompts have images or audio: features, prompts for each bucket, and those of decoders."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ...base.transformers_types import PreTrainedModel
from ...engine import Forward, Modality, PromptFeatures, Signature, feature_index, plan_packing
from ...runtime import Copies
from ..decoder import DecoderScenarios
from ..scenario import SEED, Recorder, Results, Scenario

if TYPE_CHECKING:
    from ...compiler import Role

MOST = 2
"""Images or audios of a prompt that is compared, where the prompt and the model hold them."""


class FeatureScenarios(DecoderScenarios):
    """Scenarios of one program."""

    modality: ClassVar[Modality]
    role: ClassVar[Role]

    def __init__(
        self,
        recorder: Recorder,
        signature: Signature,
        reference: PreTrainedModel,
        *,
        architecture: Any,
        num_features: int,
        most: int,
    ) -> None:
        super().__init__(recorder, signature, reference)
        self._architecture, self._num_features = architecture, num_features
        self._encode = Forward(Copies([recorder]), self.role, signature[self.role])  # type: ignore[list-item]
        self._encoders = [recorder.program.graphs[name] for name in recorder.program.by_size(self.role).values()]
        self._most = min(MOST, most)
        self._token_id: int = getattr(reference.config, f"{self.modality}_token_id")

    @abstractmethod
    def _encoder_scenarios(self) -> Iterator[Scenario]:
        """Comparisons of features."""

    @abstractmethod
    def _encoded(self, num_parts: int) -> torch.Tensor:
        """Features [rows, parts, L, D] of so many images or audios of each row."""

    @abstractmethod
    def _processed(self, num_parts: int) -> dict[str, torch.Tensor]:
        """What a processor makes of them."""

    def __iter__(self) -> Iterator[Scenario]:
        yield from self._encoder_scenarios()
        for bucket in self._decoder.prefill_buckets:
            # Shorter buckets hold no image or audio: they are compared without.
            if num_parts := min(self._most, (bucket - 1) // (self._num_features + 1)):
                yield Scenario(
                    name=f"prompts with {num_parts} {self.modality}{'s' * (num_parts > 1)}, bucket {bucket}",
                    run=functools.partial(self._with_features, num_parts),
                    reference=functools.partial(self._expected_with_features, num_parts),
                    num_equal=num_parts * (self._num_features + 1) + 1,
                )
        yield from super().__iter__()

    def _no_features(self, mask: torch.Tensor) -> PromptFeatures:
        name = next(iter(self._program.by_size("score").values()))
        width = self._program.graphs[name].inputs[f"{self.modality}_features"].shape[-1]
        index, features = torch.zeros_like(mask), torch.zeros(len(mask), 0, width)
        return PromptFeatures(index_RT=index, features_RFD=features, modality=self.modality)

    def _prompt(self, num_parts: int, num_features: int | None = None) -> torch.Tensor:
        """A token, and images or audios with a token behind each, for each row; None: of the largest size."""
        size = (self._num_features if num_features is None else num_features) + 1
        ids = torch.full((self._num_rows, num_parts * size + 1), self._token_id)
        vocabulary = self._reference.config.get_text_config(decoder=True).vocab_size
        generator = torch.Generator().manual_seed(SEED)
        text = torch.randint(vocabulary - 1, (self._num_rows, num_parts + 1), generator=generator)
        ids[:, ::size] = text + (text >= self._token_id)  # any token but the placeholder
        return ids

    def _placed(self, ids: torch.Tensor, num_parts: int) -> PromptFeatures:
        """Features of a prompt."""
        return PromptFeatures(
            index_RT=feature_index(ids, self._token_id),
            features_RFD=self._encoded(num_parts).flatten(1, 2),
            modality=self.modality,
        )

    def _with_features(self, num_parts: int) -> Results:
        ids = self._prompt(num_parts)
        packing, features = plan_packing(torch.ones_like(ids), 0), self._placed(ids, num_parts)
        return {
            name: self._decoder(ids, packing, self._sequences(), num_past=0, num_logits=num_logits, features=features)
            for name, num_logits in (("prompt", 0), ("last prompt token", 1))
        }

    def _expected_with_features(self, num_parts: int) -> Results:
        ids = self._prompt(num_parts)
        with torch.no_grad():
            logits = self._reference(ids, **self._processed(num_parts), **self._types(ids)).logits.float()
        return {"prompt": logits, "last prompt token": logits[:, -1:]}

    def _types(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Types of tokens, where the architecture has them."""
        names = {"token_type_ids", "mm_token_type_ids"}.intersection(self._architecture.inputs)
        return dict.fromkeys(names, (ids == self._token_id).long())
