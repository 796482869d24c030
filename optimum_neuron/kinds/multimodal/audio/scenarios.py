"""Scenarios of audio-language models: audio of the compiled length, and prompts with it."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from ...scenario import SEED, Results, Scenario
from ..scenarios import FeatureScenarios


class AudioTextScenarios(FeatureScenarios):
    """Scenarios of one program."""

    modality = "audio"
    role = "encode_audio"

    def _encoder_scenarios(self) -> Iterator[Scenario]:
        frames = self._encoders[0].inputs["input_features"].shape[-1]
        names = {"audio": frames} | ({"shorter audio": frames * 3 // 4} if self._architecture.has_mask else {})
        for name, num_frames in names.items():
            run, reference = (functools.partial(of, num_frames) for of in (self._features, self._expected_features))
            yield Scenario(name=name, run=run, reference=reference)

    def _num_tokens(self, num_frames: int) -> int:
        return int(self._architecture.num_tokens(self._reference.config, torch.tensor(num_frames)))

    def _features(self, num_frames: int) -> Results:
        features = self._encode(self._processed(self._most, num_frames))["audio_features"]
        return {"features": features[:, : self._num_tokens(num_frames)].flatten(0, 1)}

    def _expected_features(self, num_frames: int) -> Results:
        """What the reference model's own forward makes of audio: it masks padding and places features itself."""
        found: list[torch.Tensor] = []
        num_audios, count = self._num_rows * self._most, self._num_tokens(num_frames)
        projector = self._reference.get_submodule(self._architecture.encoder[-1])
        with projector.register_forward_hook(lambda _module, _inputs, output: found.append(output)), torch.no_grad():
            self._reference(self._prompt(self._most, count), **self._processed(self._most, num_frames))
        features = found[0].reshape(num_audios, -1, found[0].shape[-1])[:, :count]
        return {"features": features.flatten(0, 1).float()}

    def _encoded(self, num_parts: int) -> torch.Tensor:
        features = self._encode(self._processed(num_parts))["audio_features"]
        return features.unflatten(0, (self._num_rows, num_parts))

    def _processed(self, num_parts: int, num_frames: int | None = None) -> dict[str, torch.Tensor]:
        specs = self._encoders[0].inputs
        shape = (self._num_rows, self._most, *specs["input_features"].shape[1:])
        sounds = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))[:, :num_parts].flatten(0, 1)
        inputs = {"input_features": sounds}
        if "feature_attention_mask" in specs:
            mask = torch.ones_like(sounds[:, 0], dtype=torch.int64)
            if num_frames is not None:
                mask[:, num_frames:] = 0
            inputs["feature_attention_mask"] = mask
        return inputs
