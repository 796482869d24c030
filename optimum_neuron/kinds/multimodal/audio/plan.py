"""How a model of audio and text becomes the captures of one program."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ....base.core import TensorSpec
from ....base.transformers_types import PreTrainedConfig
from ....compiler import Graph
from ....engine import RoleSignature
from ....sources import ModelSource
from ...decoder import num_positions, require_cores, require_topk
from ..plan import FeatureKind
from ..signature import audio_signature
from .architectures import AudioArchitecture, find_architecture, num_frames
from .configuration import NeuronAudioTextConfig
from .scenarios import AudioTextScenarios


class AudioTextKind(FeatureKind[NeuronAudioTextConfig]):
    """Models that read audio and text, and generate text with their cache on the device."""

    name = "audio_text"
    config_class = NeuronAudioTextConfig
    modality = "audio"
    role = "encode_audio"
    field = "audio-language"
    scenarios_class = AudioTextScenarios
    estimate_note = "the text model alone: the audio modules are not counted"

    def architecture(self, model_config: PreTrainedConfig) -> AudioArchitecture:
        return find_architecture(model_config)

    def num_features(self, model_config: PreTrainedConfig, config: NeuronAudioTextConfig) -> int:
        frames = torch.tensor(num_frames(model_config))
        return int(find_architecture(model_config).num_tokens(model_config, frames))

    def resolve(
        self, source: ModelSource, config: NeuronAudioTextConfig, *, trust_remote_code: bool
    ) -> NeuronAudioTextConfig:
        require_cores(source.config, config)
        require_topk(source.config, config)
        return config.resolve(
            max_position_embeddings=num_positions(source.config, config.sequence_length),
            audio_tokens=self.num_features(source.config, config),
        )

    def encoder_inputs(
        self, model_config: PreTrainedConfig, config: NeuronAudioTextConfig
    ) -> Iterator[tuple[dict[str, int], dict[str, TensorSpec]]]:
        size, length = config.audio_batch_size, num_frames(model_config)
        shape = (size, model_config.audio_config.num_mel_bins, length)
        inputs = {"input_features": TensorSpec(shape=shape, dtype=config.torch_dtype)}
        if find_architecture(model_config).has_mask:
            inputs["feature_attention_mask"] = TensorSpec(shape=(size, length), dtype="int64")
        yield {}, inputs

    def encoder_signature(self, model_config: PreTrainedConfig, dtype: str) -> RoleSignature:
        return audio_signature(find_architecture(model_config).has_mask, dtype)

    def encoder_problems(self, encoders: list[Graph], config: NeuronAudioTextConfig) -> list[str]:
        if len(encoders) != 1:
            return [f"it has {len(encoders)} audio encoders instead of 1"]
        num_audios = encoders[0].inputs["input_features"].shape[0]
        if num_audios == config.audio_batch_size:
            return []
        return [f"its audio encoder takes {num_audios} audios, not {config.audio_batch_size}"]


KIND = AudioTextKind()
