"""Scenarios of audio-language models: audio of the compiled length, and prompts with it."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from .features import FeatureScenarios
from .scenarios import SEED, Results, Scenario


class AudioTextScenarios(FeatureScenarios):
    """Scenarios of one program."""

    modality = "audio"
    role = "encode_audio"

    def _encoder_scenarios(self) -> Iterator[Scenario]:
        run = functools.partial(self._features, self._most)
        yield Scenario(name="audio", run=run, reference=self._expected_features)

    def _features(self, num_audios: int) -> Results:
        inputs = self._processed(num_audios)
        return {"features": self._encode(inputs)["audio_features"].flatten(0, 1)}

    def _expected_features(self) -> Results:
        with torch.no_grad():
            features = self._architecture.expected(self._reference, self._processed(self._most)["input_features"])
        return {"features": features.reshape(-1, features.shape[-1]).float()}

    def _encoded(self, num_parts: int) -> torch.Tensor:
        return self._features(num_parts)["features"].unflatten(0, (self._num_rows, num_parts, -1))

    def _processed(self, num_parts: int) -> dict[str, torch.Tensor]:
        specs = self._encoders[0].inputs
        shape = (self._num_rows, self._most, *specs["input_features"].shape[1:])
        sounds = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))[:, :num_parts].flatten(0, 1)
        inputs = {"input_features": sounds}
        if "feature_attention_mask" in specs:
            inputs["feature_attention_mask"] = torch.ones_like(sounds[:, 0], dtype=torch.int64)
        return inputs
