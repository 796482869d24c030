"""`TargetDecoder`: the decoder of a compiled encoder-decoder, called alone.

    hidden = model.encoder(input_ids, attention_mask).last_hidden_state
    logits = model.decoder(decoder_input_ids, encoder_hidden_states=hidden).logits

The compiled graph includes the language-model head, so the results are logits. Hidden states and attention weights are
returned if the model was exported with them.

Shape legend: R batch, S hidden states of a source, T new target tokens, D hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions

from ..cache_argument import CACHE, takes_cache
from ..errors import ShapeError
from ..exporters.seq2seq import EncodedSource
from .cache import NeuronCache
from .checks import HostCallable

if TYPE_CHECKING:
    from .encoder_decoder import NeuronEncoderDecoder


class TargetDecoder(HostCallable):
    """The decoder of a model, which it keeps alive."""

    main_input_name = "input_ids"

    def __init__(self, model: NeuronEncoderDecoder) -> None:
        self._model = model

    @takes_cache
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: NeuronCache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithCrossAttentions | tuple[torch.Tensor, ...]:
        """Return next-token logits of the new tokens.

        Args:
            input_ids: new tokens of the targets [R, T].
            attention_mask: 1 for real tokens of the targets.
            encoder_hidden_states: result of the encoder [R, S, D].
            encoder_attention_mask: 1 for real states of the sources.
            cache: the cache that an earlier call returned.
            use_cache: return the cache; the default is the configuration's.
            output_attentions: as for the model.
            output_hidden_states: as for the model.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: `encoder_hidden_states` is missing, or an input does not fit the compiled shapes.
            ConfigError: an output is requested that the graph does not return.
        """
        if encoder_hidden_states is None:
            hint = "Pass encoder_hidden_states=model.encoder(...).last_hidden_state."
            raise ShapeError("The decoder needs encoder_hidden_states.", hint=hint, input="encoder_hidden_states")
        # Text models take the mask by itself, audio models with the hidden states.
        result = self._model(
            decoder_input_ids=input_ids,
            decoder_attention_mask=attention_mask,
            encoder_outputs=EncodedSource(
                last_hidden_state=encoder_hidden_states, attention_mask=encoder_attention_mask
            ),
            attention_mask=encoder_attention_mask,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            **{CACHE: cache},
        )
        output = CausalLMOutputWithCrossAttentions(
            logits=result.logits,
            hidden_states=result.decoder_hidden_states,
            attentions=result.decoder_attentions,
            cross_attentions=result.cross_attentions,
            **{CACHE: getattr(result, CACHE)},
        )
        return output.to_tuple() if return_dict is False else output
