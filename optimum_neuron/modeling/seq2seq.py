"""`NeuronModelForSeq2SeqLM`: a compiled encoder and decoder of texts, such as T5, BART or Marian.

Shape legend: R rows, S source tokens, T new target tokens, D hidden.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from ..base.transformers_types import PreTrainedConfig
from ..engine import Forward
from ..errors import ShapeError
from ..exporters import Prepared
from ..kinds import unflatten
from ..upstream.cache_argument import takes_cache
from .cache import NeuronCache
from .checks import HostCallable, checked_mask, refuse_layers
from .encoder_decoder import NeuronEncoderDecoder
from .registration import register


class NeuronTextEncoder(HostCallable):
    """The encoder of a compiled model of texts, as `generate` calls it."""

    main_input_name = "input_ids"

    def __init__(self, encode: Forward, config: PreTrainedConfig, neuron_config: object) -> None:
        self._encode, self._config, self._neuron_config = encode, config, neuron_config

    @takes_cache
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[torch.Tensor, ...]:
        """Hidden states of sources.

        Args:
            input_ids: token ids [rows, tokens]; any number of rows.
            attention_mask: 1 for real tokens, of the same shape.
            output_attentions: possible where the model was exported with it, and then always returned.
            output_hidden_states: likewise.
            return_dict: False returns a tuple.
        """
        refuse_layers(self._neuron_config, output_attentions, output_hidden_states)
        mask = checked_mask(input_ids, attention_mask, num_past=0, vocabulary=self._config.vocab_size)
        results = self._encode({"input_ids": input_ids, "attention_mask": mask})
        output = BaseModelOutput(**unflatten(results))
        return output.to_tuple() if return_dict is False else output


@register
class NeuronModelForSeq2SeqLM(NeuronEncoderDecoder):
    """An encoder-decoder compiled for a simulated NeuronCore, such as T5, BART or Marian.

    Example:
        ```python no-run
        from transformers import AutoTokenizer
        from optimum_neuron import NeuronModelForSeq2SeqLM

        model = NeuronModelForSeq2SeqLM.from_pretrained(
            "t5-small", export=True, batch_size=1, sequence_length=128, decoder_sequence_length=64
        )
        tokenizer = AutoTokenizer.from_pretrained(model.source_folder)
        ids = tokenizer("translate English to German: Good morning.", return_tensors="pt")
        print(tokenizer.decode(model.generate(**ids)[0], skip_special_tokens=True))
        ```
    """

    task = "text2text-generation"
    kind = "seq2seq"
    main_input_name = "input_ids"
    input_modalities = ("text",)

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.encoder = NeuronTextEncoder(self._program.encode, self.config, self.neuron_config)

    @takes_cache
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
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
            input_ids: tokens of the sources [rows, tokens]; not needed with `encoder_outputs`.
            attention_mask: 1 for real tokens of the sources.
            decoder_input_ids: new tokens of the targets [rows, tokens].
            decoder_attention_mask: Ones only: targets start together.
            encoder_outputs: Result of the encoder.
            cache: the cache that an earlier call returned.
            labels: tokens of the targets to compute the loss of, -100 to skip; they make `decoder_input_ids` too.
            use_cache: return the cache; the default is the configuration's, and with labels there is none.
            output_attentions: possible where the model was exported with it, and then always returned.
            output_hidden_states: likewise.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: source or target is longer than compiled, or a token is not in the vocabulary.
            ConfigError: an output is requested that the graph does not return.
        """
        refuse_layers(self.neuron_config, output_attentions, output_hidden_states)
        if encoder_outputs is None:
            if input_ids is None:
                message = "The call has neither input_ids nor encoder_outputs."
                raise ShapeError(message, hint="Pass input_ids, or the result of get_encoder().", missing="input_ids")
            encoder_outputs = self.encoder(input_ids, attention_mask)
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

    def _source_mask(self, encoded: Any, attention_mask: torch.Tensor | None) -> torch.Tensor:
        return (torch.ones(encoded[0].shape[:2]) if attention_mask is None else attention_mask).long()
