"""`NeuronModelForMultimodalLM`: a compiled audio encoder and decoder behind transformers' generation interface.

Audio is encoded once for each prompt; `generate` hands its features to the rows that continue it.

Shape legend: N audios, L tokens of an audio, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..exporters import Prepared
from ..kinds.multimodal.audio import find_architecture
from ..upstream.cache_argument import takes_cache
from .cache import NeuronCache
from .checks import refuse_outputs
from .checks_features import check_features, encoded_features
from .checks_image_text import check_known
from .features import FeatureDecoderModel
from .registration import register

if TYPE_CHECKING:
    from ..kinds.multimodal.audio import NeuronAudioTextConfig


@register
class NeuronModelForMultimodalLM(FeatureDecoderModel):
    """A model of audio and text compiled for a simulated NeuronCore: Qwen2-Audio and Voxtral.

    Example:
        ```python no-run
        from transformers import AutoProcessor
        from optimum_neuron import NeuronModelForMultimodalLM

        model = NeuronModelForMultimodalLM.from_pretrained(
            "Qwen/Qwen2-Audio-7B-Instruct", export=True, sequence_length=1024
        )
        processor = AutoProcessor.from_pretrained(model.source_folder)
        prompt = "<|audio_bos|><|AUDIO|><|audio_eos|>What is this sound?"
        inputs = processor(text=prompt, audio=processor.feature_extractor.fetch_audio("dog.wav"), return_tensors="pt")
        print(processor.decode(model.generate(**inputs, max_new_tokens=32)[0]))
        ```
    """

    neuron_config: NeuronAudioTextConfig

    task = "any-to-any"
    input_modalities = ("audio", "text")
    modality = "audio"

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._architecture = find_architecture(self.config)

    @takes_cache
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        input_features: torch.Tensor | None = None,
        feature_attention_mask: torch.Tensor | None = None,
        mm_encoder_outputs: dict[str, Any] | None = None,
        position_ids: torch.Tensor | None = None,
        cache: NeuronCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        adapter_names: Sequence[str] | None = None,
    ) -> Any:
        """Run the compiled program; arguments and result are transformers'.

        Args:
            input_ids: token ids [rows, new columns]; any number of rows, each with any number of audios. The processor
                repeats the audio token for each feature.
            attention_mask: 1 for real tokens, [rows, all columns]; padding may be on either side.
            input_features: spectrograms [audios, bins, frames] of all rows, as the model's processor makes them.
            feature_attention_mask: 1 for real frames, where the architecture has it; the default is all.
            mm_encoder_outputs: Result of `get_audio_features`, under "audio", in place of `input_features`.
            position_ids: only the running count of `attention_mask` is possible, which is the default.
            cache: the cache that an earlier call returned; audio comes with the first call.
            labels: token ids to compute the loss of, -100 to skip.
            use_cache: return the cache; the default is the configuration's.
            logits_to_keep: return logits of so many last columns only, or of the columns that a tensor names; 0 means
                all.
            output_attentions: not possible: the compiled graph does not return them.
            output_hidden_states: not possible either.
            return_dict: False returns a tuple.
            adapter_names: LoRA adapter of each row, "__base__" for the base model; None: the active one.

        Raises:
            ShapeError: the sequence is longer than compiled, an audio has another length than compiled, there are more
                than compiled, or the audio tokens in the text are not those of the audio.
            ConfigError: an output is requested that the graph does not return.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        mask, cache = self._checked_mask(input_ids, attention_mask, cache)
        details = {"feature_attention_mask": feature_attention_mask}
        features = encoded_features(
            mm_encoder_outputs, input_features, details, num_past=cache.columns, modality="audio"
        )
        if input_features is not None:
            features = self.get_audio_features(input_features, feature_attention_mask).pooler_output
        placed = None if cache.columns else self._prompt_features(input_ids, mask, features, by_row=False)
        result = self._logits_and_loss(
            input_ids, mask, position_ids, cache, labels, logits_to_keep, placed, adapter_names
        )
        return self._output(result, cache, use_cache, return_dict, **self._feature_results(features))

    def get_audio_features(
        self,
        input_features: torch.Tensor,
        feature_attention_mask: torch.Tensor | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutputWithPooling:
        """Encode audio.

        Args:
            input_features: spectrograms [audios, bins, frames], padded to the compiled length.
            feature_attention_mask: 1 for real frames, where the architecture has it; the default is all.
            return_dict: accepted as transformers passes it; the result is always of a class.

        Returns:
            `pooler_output`: features [L, D] of each audio, without padding.
        """
        check_known(self.config.model_type, self._architecture.inputs, feature_attention_mask=feature_attention_mask)
        inputs = {"input_features": input_features}
        if feature_attention_mask is not None:
            inputs["feature_attention_mask"] = feature_attention_mask
        features_NLD = self._encode(inputs)["audio_features"]
        lengths = [self._num_tokens] * len(features_NLD)
        if feature_attention_mask is not None:
            lengths = self._architecture.num_tokens(self.config, feature_attention_mask.long().sum(1)).tolist()
        parts = [part[:length] for part, length in zip(features_NLD, lengths, strict=True)]
        return BaseModelOutputWithPooling(pooler_output=parts)

    def _maybe_prepare_encoder_kwargs_for_generation(
        self, inputs_tensor: torch.Tensor, model_kwargs: dict[str, Any], *args: object, **kwargs: object
    ) -> dict[str, Any]:
        """Encode audio once for all rows of a prompt, which transformers does for images only."""
        if model_kwargs.get("input_features") is not None and model_kwargs.get("mm_encoder_outputs") is None:
            inputs = [model_kwargs.pop(name, None) for name in ("input_features", "feature_attention_mask")]
            model_kwargs["mm_encoder_outputs"] = {"audio": self.get_audio_features(*inputs)}
        return model_kwargs

    def _expand_multimodal_outputs(
        self, input_ids: torch.Tensor, mm_encoder_output: dict[str, Any], expand_size: int = 1, **options: object
    ) -> dict[str, Any]:
        """Repeat the features of each row, for beams and returned sequences."""
        if (outputs := mm_encoder_output.get("audio")) is None:
            return mm_encoder_output
        counts, features = (input_ids == self._token_id).sum(1).tolist(), outputs.pooler_output
        check_features(
            counts,
            [len(part) for part in features],
            num_tokens=self._num_tokens,
            most=self._most,
            by_row=False,
            modality="audio",
        )
        rows = [row for row in torch.cat(list(features)).split(counts) for _ in range(expand_size)]
        return {"audio": BaseModelOutputWithPooling(pooler_output=rows)}

    @property
    def max_num_audios(self) -> int:
        """Audios that a prompt can have; one that is longer than compiled counts as its parts."""
        return self.neuron_config.max_num_audios
