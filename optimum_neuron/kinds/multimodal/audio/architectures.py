"""What differs between audio-language architectures, as data.

Shape legend: N audios, C mel bins, T frames, S states after the convolutions, L tokens of an audio, D hidden of the
decoder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from ....base.transformers_types import PreTrainedConfig, PreTrainedModel
from ....errors import ModelError
from ..architecture import FeatureArchitecture


@dataclasses.dataclass(frozen=True, kw_only=True)
class AudioArchitecture(FeatureArchitecture):
    """What is known of one or several model types."""

    encoder: tuple[str, ...] = ("model.audio_tower", "model.multi_modal_projector")
    num_tokens: Callable[[Any, torch.Tensor], torch.Tensor]
    """Tokens that stand for audios of so many frames, from a configuration."""

    @property
    def has_mask(self) -> bool:
        """Whether an audio can be shorter than compiled."""
        return "feature_attention_mask" in self.inputs


def num_frames(config: PreTrainedConfig) -> int:
    """Return the frames of a spectrogram, which the convolutions halve."""
    return 2 * config.audio_config.max_source_positions


def _states(num_frames: torch.Tensor) -> torch.Tensor:
    """States that frames become in Whisper's convolutions."""
    return (num_frames - 1) // 2 + 1


def _pooled(model: PreTrainedModel, features_NCT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """Features [N, L, D] of Qwen2-Audio, which averages pairs of states; states of padding are not attended to."""
    states = torch.arange(num_frames(model.config) // 2)
    real_NS = states < _states(mask_NT.sum(1, keepdim=True))
    hidden = features_NCT.new_zeros(())
    mask_N11S = torch.where(real_NS, hidden, torch.finfo(hidden.dtype).min)[:, None, None]
    states_NLD = model.model.audio_tower(features_NCT, attention_mask=mask_N11S).last_hidden_state
    return model.model.multi_modal_projector(states_NLD)


def _joined(model: PreTrainedModel, features_NCT: torch.Tensor) -> torch.Tensor:
    """Features [N, L, D] of Voxtral, which joins neighboring states."""
    features = model.model.get_audio_features(features_NCT, return_dict=True).pooler_output
    return features.unflatten(0, (len(features_NCT), -1))


QWEN2_AUDIO = AudioArchitecture(
    model_types=("qwen2_audio",),
    features=_pooled,
    num_tokens=lambda config, frames: (_states(frames) - 2) // 2 + 1,
    inputs=("feature_attention_mask",),
)

VOXTRAL = AudioArchitecture(
    model_types=("voxtral",),
    features=_joined,
    num_tokens=lambda config, frames: (
        _states(frames) * config.audio_config.hidden_size // config.audio_config.intermediate_size
    ),
)

IMPLEMENTED = {model_type: row for row in (QWEN2_AUDIO, VOXTRAL) for model_type in row.model_types}
"""Architectures by model type."""


def find_architecture(config: PreTrainedConfig) -> AudioArchitecture:
    """Return the architecture of a configuration."""
    row = IMPLEMENTED.get(config.model_type)
    if row is None:
        message = f"The audio-language architecture {config.model_type} is not implemented."
        hint = f"Pass a checkpoint of {', '.join(IMPLEMENTED)}."
        raise ModelError(message, hint=hint, model_type=config.model_type, choices=list(IMPLEMENTED))
    return row
