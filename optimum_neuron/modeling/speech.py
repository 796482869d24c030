"""`NeuronModelForSpeechSeq2Seq`: a compiled audio encoder with a text decoder, Whisper or Moonshine.

Whisper generates through transformers' `WhisperGenerationMixin`, so timestamps, languages, prompts, fallback
temperatures, and recordings longer than its window work as in transformers.

Shape legend: R batch, C channels, N frames or samples, S hidden states, D hidden.
"""

from __future__ import annotations

import copy
import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import torch
from transformers import GenerationConfig, LogitsProcessor
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin
from transformers.utils import ModelOutput

from ..base.foreign import output_facts
from ..base.transformers_types import PreTrainedConfig
from ..engine import Forward
from ..errors import ConfigError, ModelError
from ..exporters import Prepared
from ..kinds.encoder_decoder import EncodedSource, Source
from ..runtime import LoadedProgram
from ..upstream.cache_argument import CACHE, takes_cache
from .cache import NeuronCache
from .checks import HostCallable, refuse_outputs
from .encoder_decoder import NeuronEncoderDecoder
from .program import CompiledProgram
from .registration import register
from .sounds import checked_audio
from .suppression import quick_processors

if TYPE_CHECKING:
    from ..kinds.encoder_decoder import NeuronSpeechSeq2SeqConfig


class NeuronSpeechEncoder(HostCallable):
    """The encoder of a compiled speech model, as `generate` calls it."""

    def __init__(self, encode: Forward, source: Source) -> None:
        self._encode, self._source = encode, source
        self.main_input_name = source.name

    @takes_cache
    def forward(
        self,
        input_features: torch.Tensor | None = None,
        input_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> EncodedSource | tuple[torch.Tensor, ...]:
        """Encode audio.

        Args:
            input_features: spectrograms [batch, channels, frames] (Whisper); any batch size.
            input_values: recordings [batch, samples] (Moonshine); any batch size.
            attention_mask: 1 for real samples, 0 for padding at the end; Whisper ignores it.
            output_attentions: not supported.
            output_hidden_states: not supported.
            return_dict: False returns a tuple.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        tensors = {"input_features": input_features, "input_values": input_values}
        inputs, num_states, mask_RS = checked_audio(tensors, attention_mask, self._source)
        hidden_RSD = self._encode(inputs)["last_hidden_state"][:, :num_states]
        output = EncodedSource(last_hidden_state=hidden_RSD, attention_mask=mask_RS)
        return output.to_tuple() if return_dict is False else output


@register
class NeuronModelForSpeechSeq2Seq(NeuronEncoderDecoder):
    """A speech-to-text encoder-decoder compiled for a simulated NeuronCore: Whisper or Moonshine.

    Example:
        ```python no-run
        from optimum_neuron import NeuronModelForSpeechSeq2Seq, pipeline

        model = NeuronModelForSpeechSeq2Seq.from_pretrained("whisper-tiny.en", export=True, torch_dtype="bfloat16")
        transcribe = pipeline("automatic-speech-recognition", model)
        print(transcribe("speech.wav")["text"])
        ```
    """

    neuron_config: NeuronSpeechSeq2SeqConfig

    task = "automatic-speech-recognition"
    kind = "speech"
    input_modalities = ("audio",)

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.encoder = NeuronSpeechEncoder(self._program.encode, self.source)
        self.main_input_name = self.source.name

    @classmethod
    def _wrap(cls, prepared: Prepared) -> Self:
        if cls is NeuronModelForSpeechSeq2Seq and prepared.source.config.model_type == "whisper":
            return NeuronWhisperForConditionalGeneration(prepared)
        return cls(prepared)

    @takes_cache
    def forward(
        self,
        input_features: torch.Tensor | None = None,
        input_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: object = None,
        cache: NeuronCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Seq2SeqLMOutput | tuple[torch.Tensor, ...]:
        """Run the compiled program; arguments and result are transformers'.

        Args:
            input_features: spectrograms [batch, channels, frames] (Whisper); not needed with `encoder_outputs`.
            input_values: recordings [batch, samples] (Moonshine); not needed with `encoder_outputs`.
            attention_mask: 1 for real samples; Whisper ignores it.
            decoder_input_ids: new tokens of the targets [batch, tokens].
            decoder_attention_mask: 1 for real tokens of the targets, 0 for padding on the left.
            encoder_outputs: result of the encoder.
            cache: the cache that an earlier call returned.
            labels: token IDs to compute the loss of, -100 to skip; without `decoder_input_ids` they are shifted too.
            use_cache: return the cache; the default is the configuration's, False with labels.
            output_attentions: needs an export with `output_attentions` (Whisper); `cross_attentions` are then always
                returned, and no others.
            output_hidden_states: not supported.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: audio or target do not fit the compiled shapes, or a token is not in the vocabulary.
            ConfigError: an output is requested that the graph does not return.
        """
        refuse_outputs(
            output_attentions and not self.neuron_config.returns_attentions,
            output_hidden_states,
            exportable=("output_attentions",) if self.config.model_type == "whisper" else (),
        )
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_features, input_values, attention_mask)
        return self._decode(
            encoder_outputs,
            self._source_mask(encoder_outputs, attention_mask),
            decoder_input_ids,
            decoder_attention_mask,
            cache,
            labels=labels,
            use_cache=use_cache,
            return_dict=return_dict,
        )

    inputs = frozenset(inspect.signature(forward).parameters)

    def _source_mask(self, encoded: Any, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
        if not self.source.is_masked:
            return None
        mask_RS = output_facts(encoded).attention_mask
        return torch.ones(encoded[0].shape[:2], dtype=torch.int64) if mask_RS is None else mask_RS.long()


class WhisperProgram(CompiledProgram):
    """Whisper's program, with the module attributes that `WhisperGenerationMixin` reads."""

    def __init__(self, loaded: LoadedProgram, source: Source, config: PreTrainedConfig) -> None:
        super().__init__(loaded)
        self.config = config
        self.encoder = SimpleNamespace(
            conv1=SimpleNamespace(stride=(1,)), conv2=SimpleNamespace(stride=(source.stride,))
        )


@register
class NeuronWhisperForConditionalGeneration(NeuronModelForSpeechSeq2Seq, WhisperGenerationMixin):
    """Whisper with its own `generate`, as returned by `NeuronModelForSpeechSeq2Seq.from_pretrained`."""

    def __init__(self, prepared: Prepared) -> None:
        if prepared.source.config.model_type != "whisper":
            assert prepared.loaded is not None
            prepared.loaded.close()
            model_type = prepared.source.config.model_type
            message = f"{prepared.source.name} is a {model_type} model, not Whisper."
            raise ModelError(message, hint="Use NeuronModelForSpeechSeq2Seq.", model_type=model_type)
        super().__init__(prepared)
        self.model = WhisperProgram(self.loaded, self.source, self.config)

    def generate(self, *args: object, **kwargs: object) -> Any:
        """Transcribe or translate, with all options of transformers' `WhisperForConditionalGeneration.generate`.

        Raises:
            ConfigError: word timestamps are requested, but the model was exported without `output_attentions`.
            ShapeError: audio or target do not fit the compiled shapes.
        """
        if kwargs.get("return_token_timestamps") and not self.neuron_config.returns_attentions:
            message = "Word timestamps need the weights of cross-attention, but the model was exported without them."
            hint = "Export with output_attentions=True, or request segments with return_timestamps=True."
            raise ConfigError(message, hint=hint, option="return_token_timestamps")
        return super().generate(*args, **kwargs)

    def _prepare_text_encoder_decoder_kwargs_for_generation(
        self, *args: object, generation_config: GenerationConfig, **kwargs: object
    ) -> dict[str, Any]:
        # The option for the weights of cross-attention also requests those of the encoder, which are never read.
        settings = copy.copy(generation_config)
        settings.output_attentions = False
        return super()._prepare_text_encoder_decoder_kwargs_for_generation(*args, generation_config=settings, **kwargs)

    def _retrieve_logit_processors(self, *args: object, **kwargs: object) -> list[LogitsProcessor] | None:
        return quick_processors(super()._retrieve_logit_processors(*args, **kwargs))

    def _postprocess_outputs(self, seek_outputs: object, *args: object, **kwargs: object) -> Any:
        # The cache stays on the device: it cannot be split by sequence. The option for the weights of cross-attention
        # also requests those of self-attention, which the graph does not return.
        if isinstance(seek_outputs, ModelOutput):
            removed = {CACHE, "decoder_attentions"}
            removed |= set() if self.neuron_config.returns_attentions else {"cross_attentions"}
            seek_outputs = type(seek_outputs)(**{k: value for k, value in seek_outputs.items() if k not in removed})
        return super()._postprocess_outputs(seek_outputs, *args, **kwargs)
