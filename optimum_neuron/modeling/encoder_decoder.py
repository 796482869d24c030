"""`NeuronEncoderDecoder`: shared parts of compiled models that read a source and write a target.

`generate` runs the encoder once, then decodes one token after the other; its first call fills the cross-attention cache
on the device, later ones only read it. `seq2seq.py` has text models, `speech.py` audio models.

Shape legend: R rows, S hidden states of a source, T new target tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions, Seq2SeqLMOutput

from ..base.foreign import output_facts
from ..base.model_facts import facts_of
from ..engine import EncoderDecoder, Steps
from ..errors import ShapeError
from ..exporters import Prepared
from ..kinds import unflatten
from ..kinds.encoder_decoder import EncodedSource, Source
from ..upstream.cache_argument import CACHE, takes_cache
from .cache import NeuronCache, own_cache
from .checks import HostCallable, check_rows, checked_mask
from .generation import NeuronGenerativeModel, known_inputs
from .targets import check_labels, label_loss, shifted_labels

if TYPE_CHECKING:
    from ..kinds.encoder_decoder import NeuronSeq2SeqConfig, NeuronSpeechSeq2SeqConfig

logger = logging.getLogger(__name__)


class NeuronEncoderDecoder(NeuronGenerativeModel):
    """A compiled encoder and decoder behind transformers' generation interface."""

    neuron_config: NeuronSeq2SeqConfig | NeuronSpeechSeq2SeqConfig

    encoder: Any
    """The compiled encoder, as `generate` calls it."""
    inputs: frozenset[str]
    """Arguments of `forward`."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.source = Source(**prepared.metadata["source"])
        self._program = EncoderDecoder(self.loaded, self._signature)
        self._vocabulary: int = facts_of(self.config).decoder_vocab_size or self.config.vocab_size
        if self.neuron_config.num_beams > 1:
            self.generation_config.num_beams = self.neuron_config.num_beams

    def _decode(
        self,
        encoded: Any,
        mask_RS: torch.Tensor | None,
        ids: torch.Tensor | None,
        decoder_mask: torch.Tensor | None,
        cache: NeuronCache | None,
        *,
        labels: torch.Tensor | None,
        use_cache: bool | None,
        return_dict: bool | None,
    ) -> Seq2SeqLMOutput | tuple[torch.Tensor, ...]:
        """Logits after the new tokens of the targets, their loss with labels, and results of each layer."""
        hidden_RSD: torch.Tensor = encoded[0]
        if labels is not None:
            check_labels(labels, self._vocabulary)
            ids = shifted_labels(labels, self.config, self.task) if ids is None else ids
        cache = own_cache(cache, self.loaded, self._signature)
        ids_RT, positions_RT = self._checked_target(ids, decoder_mask, cache.columns)
        num_rows = ids_RT.shape[0]
        check_rows(num_rows, hidden_RSD, mask_RS)
        cache.reserve(num_rows, self.loaded)
        if cache.columns == 0:
            cache.read_sources(hidden_RSD, mask_RS)
        results = unflatten(
            self._program(ids_RT, positions_RT, hidden_RSD, mask_RS, cache.sequences, num_past=cache.columns)
        )
        logits, loss = results["logits"], None
        cache.add(ids_RT.shape[1], logits)
        if labels is not None:
            hint = "Remove decoder_input_ids: they are made from the labels."
            loss = label_loss(logits, labels, of="decoder_input_ids", hint=hint)
        keep = self.config.use_cache if use_cache is None else use_cache
        output = Seq2SeqLMOutput(
            loss=loss,
            **results,
            encoder_last_hidden_state=hidden_RSD,
            encoder_hidden_states=output_facts(encoded).hidden_states,
            encoder_attentions=output_facts(encoded).attentions,
            **{CACHE: cache if keep and labels is None else None},
        )
        return output.to_tuple() if return_dict is False else output

    def _checked_target(
        self, ids: torch.Tensor | None, mask: torch.Tensor | None, num_past: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """New tokens and their positions, both [R, T]."""
        if ids is None:
            hint = "Pass decoder_input_ids that begin with decoder_start_token_id, or labels, or call generate()."
            message = "The call has neither decoder_input_ids nor labels."
            raise ShapeError(message, hint=hint, missing="decoder_input_ids")
        mask = checked_mask(ids, mask, num_past=num_past, vocabulary=self._vocabulary)
        # Padding before a target takes the slot of its first token, which overwrites it.
        positions = (mask.long().cumsum(1) - 1).clamp(min=0)
        misplaced = mask[:, 1:] < mask[:, :-1] if self._program.has_row_positions else mask == 0
        if misplaced.any() or not mask[:, -1].all():
            padding = "with padding before targets only" if self._program.has_row_positions else "without padding"
            message = f"decoder_attention_mask masks {int((mask == 0).sum())} tokens that the compiled graph sees."
            hint = f"Pass targets of equal length, {padding}."
            raise ShapeError(message, hint=hint, option="decoder_attention_mask")
        limit = self.decoder_sequence_length
        if (num_tokens := int(positions[:, -1].max()) + 1) > limit:
            message = f"The target has {num_tokens} tokens, but the model is compiled for {limit}."
            hint = "Lower max_new_tokens, or export with a larger decoder_sequence_length."
            raise ShapeError(message, hint=hint, num_tokens=num_tokens, decoder_sequence_length=limit)
        return ids.long(), positions[:, num_past:]

    @property
    def decoder(self) -> TargetDecoder:
        """The compiled decoder with its head: tokens of targets and hidden states of sources to logits."""
        return TargetDecoder(self)

    # Methods that GenerationMixin requires of a model.

    def get_encoder(self, modality: str | None = None) -> Any:
        """The compiled encoder."""
        return self.encoder

    def _steps(self, cache: NeuronCache, model_kwargs: dict[str, Any]) -> Steps:
        mask_RS = self._source_mask(model_kwargs["encoder_outputs"], model_kwargs.get("attention_mask"))
        return self._program.steps(cache.sequences, cache.lengths(model_kwargs.get("decoder_attention_mask")), mask_RS)

    def _source_mask(self, encoded: object, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
        """Return 1 for real hidden states of sources; None if the program takes no mask."""
        raise NotImplementedError

    def _limit_length(self, settings: GenerationConfig, attention_mask: torch.Tensor | None) -> None:
        limit = self.decoder_sequence_length
        if settings.max_length > limit:
            reason = f"the model was compiled for decoder_sequence_length={limit}"
            logger.warning("a target is limited to %d tokens instead of %d: %s", limit, settings.max_length, reason)
            settings.max_length = limit

    def prepare_inputs_for_generation(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """As transformers does it; only `forward`'s inputs stay."""
        return known_inputs(super().prepare_inputs_for_generation(*args, **kwargs), self.inputs)

    @property
    def source_buckets(self) -> tuple[int, ...]:
        """Source lengths that were compiled."""
        return self.neuron_config.source_buckets

    @property
    def decoder_sequence_length(self) -> int:
        """Tokens that a target can hold."""
        return self.neuron_config.num_target_slots


class TargetDecoder(HostCallable):
    """The decoder of a model, called alone; it keeps the model alive.

    The compiled graph includes the language-model head, so the results are logits. Hidden states and attention weights
    are returned if the model was exported with them.

        hidden = model.encoder(input_ids, attention_mask).last_hidden_state
        logits = model.decoder(decoder_input_ids, encoder_hidden_states=hidden).logits
    """

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
