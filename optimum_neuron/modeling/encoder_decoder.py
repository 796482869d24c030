"""`NeuronEncoderDecoder`: what compiled models that read a source and write a target share.

`generate` runs the encoder once, then asks for one token after the other; its first call fills the cross-attention
cache on the device, later ones only read it. `seq2seq.py` has models of texts, `speech.py` those of sounds.

Shape legend: R rows, S hidden states of a source, T new target tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.modeling_outputs import Seq2SeqLMOutput

from ..errors import ShapeError, refusal
from ..exporters.encoders.entry import unflatten
from ..exporters.prepare import Prepared
from ..exporters.seq2seq.sources import Source
from ..runtime.loaded import State
from .cache import NeuronCache, own_cache
from .calls import run_all
from .checks import check_rows, checked_mask
from .generation import CompiledGenerationMixin, known_inputs, refuse_settings, saved_generation_config
from .loading import NeuronModel
from .target_decoder import TargetDecoder
from .targets import check_labels, label_loss, shifted_labels

logger = logging.getLogger(__name__)


class NeuronEncoderDecoder(CompiledGenerationMixin, NeuronModel):
    """A compiled encoder and decoder behind transformers' generation interface."""

    base_model_prefix = "model"
    output_modalities = ("text",)

    encoder: Any
    """The compiled encoder, as `generate` calls it."""
    inputs: frozenset[str]
    """Arguments of `forward`."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.source = Source(**prepared.metadata["source"])
        self._vocabulary: int = getattr(self.config, "decoder_vocab_size", None) or self.config.vocab_size
        self.generation_config = saved_generation_config(prepared.source.folder, self.config)
        if self.neuron_config.num_beams > 1:
            self.generation_config.num_beams = self.neuron_config.num_beams

    def _decode(
        self,
        encoded: Any,
        mask_RS: torch.Tensor | None,
        ids: torch.Tensor | None,
        decoder_mask: torch.Tensor | None,
        past_key_values: NeuronCache | None,
        *,
        labels: torch.Tensor | None,
        use_cache: bool | None,
        return_dict: bool | None,
    ) -> Seq2SeqLMOutput | tuple[torch.Tensor, ...]:
        """Logits of what follows the new tokens of the targets, and their loss where there are labels.

        Results of each layer are in the result where the program returns them.

        Raises:
            ShapeError: a target is longer than compiled, or does not belong to the sources.
        """
        hidden_RSD: torch.Tensor = encoded[0]
        if labels is not None:
            check_labels(labels, self._vocabulary)
            ids = shifted_labels(labels, self.config, self.task) if ids is None else ids
        cache = own_cache(past_key_values, self.loaded, self.neuron_config.num_target_rows)
        ids_RT, positions_RT = self._checked_target(ids, decoder_mask, cache.columns)
        num_rows = ids_RT.shape[0]
        check_rows(num_rows, hidden_RSD, mask_RS)
        cache.reserve(num_rows, self.loaded)
        if cache.columns == 0:
            cache.read_sources(hidden_RSD, mask_RS)
        groups = [
            self._run(
                ids_RT[rows],
                positions_RT[rows],
                None if mask_RS is None else mask_RS[rows],
                hidden_RSD[rows],
                cache.columns,
                state,
            )
            for rows, state in cache.row_groups(num_rows)
        ]
        found = unflatten({name: torch.cat([group[name] for group in groups]) for name in groups[0]})
        logits = found["logits"]
        cache.add(ids_RT.shape[1], logits)
        keep = self.config.use_cache if use_cache is None else use_cache
        output = Seq2SeqLMOutput(
            loss=None if labels is None else label_loss(logits, labels),
            past_key_values=cache if keep and labels is None else None,
            **found,
            encoder_last_hidden_state=hidden_RSD,
            encoder_hidden_states=getattr(encoded, "hidden_states", None),
            encoder_attentions=getattr(encoded, "attentions", None),
        )
        return output.to_tuple() if return_dict is False else output

    def _checked_target(
        self, ids: torch.Tensor | None, mask: torch.Tensor | None, num_past: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """New tokens and their positions, both [R, T]."""
        if ids is None:
            raise ShapeError(
                refusal(
                    asked="a call without decoder_input_ids",
                    found="no target to continue",
                    why="the graph gives logits of what follows a target",
                    do="pass decoder_input_ids that begin with decoder_start_token_id, or labels, or call generate()",
                )
            )
        mask = checked_mask(ids, mask, num_past=num_past, vocabulary=self._vocabulary)
        # Padding before a target takes the slot of its first token, which overwrites it.
        positions = (mask.long().cumsum(1) - 1).clamp(min=0)
        padded = "without padding" if not self.source.has_row_positions else "with padding before targets only"
        misplaced = mask[:, 1:] < mask[:, :-1] if self.source.has_row_positions else mask == 0
        if misplaced.any() or not mask[:, -1].all():
            raise ShapeError(
                refusal(
                    asked="decoder_attention_mask with zeros",
                    found=f"{int((mask == 0).sum())} tokens that are not to be seen",
                    why="a target's tokens all see those before them in the compiled graph",
                    do=f"pass targets of one length, {padded}",
                )
            )
        if (num_tokens := int(positions[:, -1].max()) + 1) > self.decoder_sequence_length:
            raise ShapeError(
                refusal(
                    asked=f"a target of {num_tokens} tokens",
                    found=f"compiled for {self.decoder_sequence_length}",
                    why="the cache has one slot for each token of decoder_sequence_length",
                    do="lower max_new_tokens, or export with a larger decoder_sequence_length",
                )
            )
        return ids.long(), positions[:, num_past:]

    def _run(
        self,
        ids_RT: torch.Tensor,
        positions_RT: torch.Tensor,
        mask_RS: torch.Tensor | None,
        hidden_RSD: torch.Tensor,
        num_past: int,
        state: State,
    ) -> dict[str, torch.Tensor]:
        """Results of rows that share one set of state, token by token: logits [R, T, V], and those of each layer."""
        steps = []
        for column in range(ids_RT.shape[1]):
            token_R1, position_R1 = ids_RT[:, column : column + 1], positions_RT[:, column : column + 1]
            if num_past + column == 0:
                bucket = self._bucket(hidden_RSD.shape[1])
                num_states = self.source.num_states(bucket)
                hidden = torch.nn.functional.pad(hidden_RSD.float(), (0, 0, 0, num_states - hidden_RSD.shape[1]))
                rows = [token_R1, *_padded(mask_RS, num_states), hidden]
                steps.append(run_all(self.loaded, f"prefill_{bucket}", rows, state))
            else:
                rows = [token_R1, *_padded(mask_RS, self.source.num_states(self.source_buckets[-1]))]
                if self.source.has_row_positions:
                    steps.append(run_all(self.loaded, "decode", [*rows, position_R1], state))
                else:
                    steps.append(run_all(self.loaded, "decode", rows, state, position_R1[0]))
        widths = {"cross_attentions": hidden_RSD.shape[1], "decoder_attentions": num_past + ids_RT.shape[1]}
        return {
            name: torch.cat([step[name][..., : widths.get(name.partition(".")[0])] for step in steps], -2)
            for name in steps[0]
        }

    def _bucket(self, num_states: int) -> int:
        """The smallest source length of which there are so many hidden states.

        Raises:
            ShapeError: there are more than of the longest.
        """
        for bucket in self.source_buckets:
            if num_states <= self.source.num_states(bucket):
                return bucket
        raise ShapeError(
            refusal(
                asked=f"encoder_outputs of {num_states} states",
                found=f"the longest compiled source has {self.source.num_states(self.source_buckets[-1])}",
                why="the cross-attention cache has one slot for each",
                do=f"export with a larger {self.source.axis}",
            )
        )

    @property
    def decoder(self) -> TargetDecoder:
        """The compiled decoder with its head: tokens of targets and hidden states of sources to logits."""
        return TargetDecoder(self)

    # What GenerationMixin asks of a model.

    def get_encoder(self, modality: str | None = None) -> Any:
        """The compiled encoder."""
        return self.encoder

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        refuse_settings(generation_config)
        limit = self.decoder_sequence_length
        if generation_config.max_length > limit:
            logger.warning(
                "a target is limited to %d tokens instead of %d: the model was compiled for decoder_sequence_length=%d",
                limit,
                generation_config.max_length,
                limit,
            )
            generation_config.max_length = limit
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = NeuronCache(self.loaded, self.neuron_config.num_target_rows)

    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
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

    @property
    def batch_size(self) -> int:
        """Sequences of the compiled graphs; each has `num_beams` rows in the decoder."""
        return self.neuron_config.batch_size


def _padded(mask_RS: torch.Tensor | None, num_states: int) -> list[torch.Tensor]:
    return [] if mask_RS is None else [torch.nn.functional.pad(mask_RS, (0, num_states - mask_RS.shape[1]))]
