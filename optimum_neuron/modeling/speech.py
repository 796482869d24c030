"""`NeuronModelForSpeechSeq2Seq`: a compiled encoder of sounds with a decoder of text, Whisper or Moonshine.

Whisper generates through transformers' own `WhisperGenerationMixin`, so timestamps, languages, prompts, fallback
temperatures and recordings longer than its window work as they do there.

Shape legend: R rows, C channels, N frames or samples, S hidden states, D hidden.
"""

from __future__ import annotations

import copy
import inspect
from types import SimpleNamespace
from typing import Any, Self

import torch
from transformers import GenerationConfig, LogitsProcessor
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin
from transformers.utils import ModelOutput

from ..engine import Forward
from ..errors import ConfigError, ModelError, refusal
from ..exporters.prepare import Prepared
from ..exporters.seq2seq.entry import EncodedSource
from ..exporters.seq2seq.sources import Source
from ..runtime.loaded import LoadedProgram
from .cache import NeuronCache
from .checks import on_host, refuse_outputs
from .encoder_decoder import NeuronEncoderDecoder
from .program import CompiledProgram
from .registration import register
from .sounds import checked_audio
from .suppression import quick_processors


class NeuronSpeechEncoder:
    """The encoder of a compiled model of sounds, as `generate` calls it."""

    def __init__(self, encode: Forward, source: Source) -> None:
        self._encode, self._source = encode, source
        self.main_input_name = source.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`.

        Raises:
            ShapeError: an input is neither on the CPU nor on the device "neuron".
        """
        args, kwargs = on_host(args, kwargs)
        return self.forward(*args, **kwargs)

    def forward(
        self,
        input_features: torch.Tensor | None = None,
        input_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> EncodedSource | tuple[torch.Tensor, ...]:
        """Hidden states of sounds.

        Args:
            input_features: spectrograms [rows, channels, frames] (Whisper); any number of rows.
            input_values: recordings [rows, samples] (Moonshine); any number of rows.
            attention_mask: 1 for real samples, zeros at the end of a row; Whisper does not read it.
            output_attentions: not possible: the compiled graph does not return them.
            output_hidden_states: not possible either.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: the sound is of another form or length than compiled.
            ConfigError: something was asked for that the graph does not compute.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        tensors = {"input_features": input_features, "input_values": input_values}
        audio = checked_audio(tensors, attention_mask, self._source)
        hidden_RSD = self._encode(audio.inputs)["last_hidden_state"][:, : audio.num_states]
        output = EncodedSource(last_hidden_state=hidden_RSD, attention_mask=audio.mask_RS)
        return output.to_tuple() if return_dict is False else output


@register
class NeuronModelForSpeechSeq2Seq(NeuronEncoderDecoder):
    """An encoder-decoder that transcribes, compiled for a simulated NeuronCore: Whisper or Moonshine.

    Example:
        ```python no-run
        from optimum_neuron import NeuronModelForSpeechSeq2Seq, pipeline

        model = NeuronModelForSpeechSeq2Seq.from_pretrained("whisper-tiny.en", export=True, torch_dtype="bfloat16")
        transcribe = pipeline("automatic-speech-recognition", model)
        print(transcribe("speech.wav")["text"])
        ```
    """

    task = "automatic-speech-recognition"
    kind = "speech"
    input_modalities = ("audio",)

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.encoder = NeuronSpeechEncoder(self._program.encode, self.source)
        self.main_input_name = self.source.name

    @classmethod
    def _wrap(cls, prepared: Prepared) -> Self:
        is_whisper = prepared.source.config.model_type == "whisper"
        if cls is NeuronModelForSpeechSeq2Seq and is_whisper:
            return NeuronWhisperForConditionalGeneration(prepared)
        return cls(prepared)

    def forward(
        self,
        input_features: torch.Tensor | None = None,
        input_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: NeuronCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Seq2SeqLMOutput | tuple[torch.Tensor, ...]:
        """Run the compiled program; arguments and result are transformers'.

        Args:
            input_features: spectrograms [rows, channels, frames] (Whisper); not needed with `encoder_outputs`.
            input_values: recordings [rows, samples] (Moonshine); not needed with `encoder_outputs`.
            attention_mask: 1 for real samples; Whisper does not read it.
            decoder_input_ids: new tokens of the targets [rows, tokens].
            decoder_attention_mask: zeros before a target that is shorter than others.
            encoder_outputs: what the encoder returned.
            past_key_values: the cache that an earlier call returned.
            labels: tokens of the targets to compute the loss of, -100 to skip; they make `decoder_input_ids` too.
            use_cache: return the cache; the default is the configuration's, and with labels there is none.
            output_attentions: possible where the model was exported with it (Whisper); `cross_attentions` are then
                always returned, and no others.
            output_hidden_states: not possible: the compiled graph does not return them.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: the sound is of another form or length than compiled, the target is longer, or a token is not
                in the vocabulary.
            ConfigError: something was asked for that the graph does not compute.
        """
        refuse_outputs(
            output_attentions and not self.neuron_config.returns_attentions,
            output_hidden_states,
            exportable=("output_attentions",) if self.config.model_type == "whisper" else (),
        )
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_features, input_values, attention_mask)
        mask_RS = None
        if self.source.is_masked:
            mask_RS = getattr(encoder_outputs, "attention_mask", None)
            mask_RS = torch.ones(encoder_outputs[0].shape[:2], dtype=torch.int64) if mask_RS is None else mask_RS.long()
        return self._decode(
            encoder_outputs,
            mask_RS,
            decoder_input_ids,
            decoder_attention_mask,
            past_key_values,
            labels=labels,
            use_cache=use_cache,
            return_dict=return_dict,
        )

    inputs = frozenset(inspect.signature(forward).parameters)


class WhisperProgram(CompiledProgram):
    """Whisper's program, with what `WhisperGenerationMixin` reads from the original's modules."""

    def __init__(self, loaded: LoadedProgram, source: Source, config: Any) -> None:
        super().__init__(loaded)
        self.config = config
        self.encoder = SimpleNamespace(
            conv1=SimpleNamespace(stride=(1,)), conv2=SimpleNamespace(stride=(source.stride,))
        )


@register
class NeuronWhisperForConditionalGeneration(NeuronModelForSpeechSeq2Seq, WhisperGenerationMixin):
    """Whisper with its own `generate`; `NeuronModelForSpeechSeq2Seq.from_pretrained` returns it."""

    def __init__(self, prepared: Prepared) -> None:
        if prepared.source.config.model_type != "whisper":
            assert prepared.loaded is not None
            prepared.loaded.close()
            raise ModelError(
                refusal(
                    asked=f"{type(self).__name__} of {prepared.source.name}",
                    found=f"a {prepared.source.config.model_type} model",
                    why="its generate() writes Whisper's tokens",
                    do="use NeuronModelForSpeechSeq2Seq",
                )
            )
        super().__init__(prepared)
        self.model = WhisperProgram(self.loaded, self.source, self.config)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Transcribe or translate; every option of transformers' `WhisperForConditionalGeneration.generate`.

        Raises:
            ConfigError: timestamps of tokens were asked for, and the model was exported without `output_attentions`.
            ShapeError: the sound is of another form than compiled, or a target longer.
        """
        if kwargs.get("return_token_timestamps") and not self.neuron_config.returns_attentions:
            raise ConfigError(
                refusal(
                    asked="timestamps of words (return_token_timestamps=True)",
                    found="the compiled graphs return no attention weights",
                    why="when a word was spoken is read from the weights of cross-attention",
                    do="export with output_attentions=True, or ask for timestamps of segments, return_timestamps=True",
                )
            )
        return super().generate(*args, **kwargs)

    def _prepare_text_encoder_decoder_kwargs_for_generation(
        self, *args: Any, generation_config: GenerationConfig, **kwargs: Any
    ) -> dict[str, Any]:
        # The switch that asks for the weights of cross-attention asks for those of the encoder, which nobody reads.
        settings = copy.copy(generation_config)
        settings.output_attentions = False
        return super()._prepare_text_encoder_decoder_kwargs_for_generation(*args, generation_config=settings, **kwargs)

    def _retrieve_logit_processors(self, *args: Any, **kwargs: Any) -> list[LogitsProcessor] | None:
        return quick_processors(super()._retrieve_logit_processors(*args, **kwargs))

    def _postprocess_outputs(self, seek_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        # The cache stays on the device: it cannot be cut into rows for the result. The weights of self-attention
        # are not there, though the switch for those of cross-attention asks for them.
        if isinstance(seek_outputs, ModelOutput):
            left_out = ("past_key_values", "decoder_attentions")
            kept = {name: value for name, value in seek_outputs.items() if name not in left_out}
            seek_outputs = type(seek_outputs)(**kept)
        return super()._postprocess_outputs(seek_outputs, *args, **kwargs)
