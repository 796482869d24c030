"""`NeuronModelForSeq2SeqLM`: a compiled encoder and decoder behind transformers' generation interface.

`generate` runs the encoder once, then asks for one token after the other; its first call fills the cross-attention
cache on the device, later ones only read it.

Shape legend: R rows, S source tokens, T new target tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from ..errors import ShapeError, refusal
from ..exporters.prepare import Prepared
from ..runtime.loaded import LoadedProgram, State
from .cache import NeuronCache, own_cache
from .calls import choose_bucket, run_rows
from .checks import checked_mask, refuse_outputs
from .generation import CompiledGenerationMixin, known_inputs, refuse_cache_implementation, saved_generation_config
from .loading import NeuronModel
from .registration import register

logger = logging.getLogger(__name__)

_TOO_LONG = "shorten the source, or export with a larger sequence_length"


class NeuronEncoder:
    """The encoder of a compiled model, as `generate` calls it."""

    main_input_name = "input_ids"

    def __init__(self, loaded: LoadedProgram, config: Any, neuron_config: Any) -> None:
        self._loaded, self._config, self._neuron_config = loaded, config, neuron_config

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`."""
        return self.forward(*args, **kwargs)

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
            output_attentions: not possible: the compiled graph does not return them.
            output_hidden_states: not possible either.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: the source is longer than compiled, or a token is not in the vocabulary.
            ConfigError: something was asked for that the graph does not compute.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        mask = checked_mask(input_ids, attention_mask, num_past=0, vocabulary=self._config.vocab_size)
        num_rows, length = input_ids.shape
        bucket = choose_bucket(length, self._neuron_config.source_buckets, what="source", do=_TOO_LONG).value
        filler = self._config.pad_token_id or 0
        ids = torch.nn.functional.pad(input_ids, (0, bucket - length), value=filler)
        mask = torch.nn.functional.pad(mask.long(), (0, bucket - length))
        size = self._neuron_config.batch_size
        state = self._loaded.take_state()
        try:
            parts = [
                run_rows(
                    self._loaded, f"encode_{bucket}", [ids[start : start + size], mask[start : start + size]], state
                )
                for start in range(0, num_rows, size)
            ]
        finally:
            self._loaded.give_back(state)
        output = BaseModelOutput(last_hidden_state=torch.cat(parts)[:, :length])
        return output.to_tuple() if return_dict is False else output


@register
class NeuronModelForSeq2SeqLM(NeuronModel, CompiledGenerationMixin):
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
    main_input_name = "input_ids"
    input_modalities = ("text",)
    output_modalities = ("text",)
    base_model_prefix = "model"

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.encoder = NeuronEncoder(self.loaded, self.config, self.neuron_config)
        self._vocabulary: int = getattr(self.config, "decoder_vocab_size", None) or self.config.vocab_size
        self.generation_config = saved_generation_config(prepared.source.folder, self.config)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: NeuronCache | None = None,
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
            decoder_attention_mask: ones only: targets start together.
            encoder_outputs: what the encoder returned.
            past_key_values: the cache that an earlier call returned.
            use_cache: return the cache; the default is the configuration's.
            output_attentions: not possible: the compiled graph does not return them.
            output_hidden_states: not possible either.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: source or target is longer than compiled, or a token is not in the vocabulary.
            ConfigError: something was asked for that the graph does not compute.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        hidden_RSD = self._hidden(input_ids, attention_mask, encoder_outputs)
        cache = own_cache(past_key_values, self.loaded, self.batch_size)
        ids_RT = self._checked_target(decoder_input_ids, decoder_attention_mask, cache.columns)
        num_rows, mask_RS = ids_RT.shape[0], _source_mask(attention_mask, hidden_RSD, ids_RT.shape[0])
        cache.reserve(num_rows, self.loaded)
        groups = [
            self._run(ids_RT[rows], mask_RS[rows], hidden_RSD[rows], cache.columns, state)
            for rows, state in cache.row_groups(num_rows)
        ]
        logits = torch.cat(groups)
        cache.add(ids_RT.shape[1], logits)
        keep = self.config.use_cache if use_cache is None else use_cache
        output = Seq2SeqLMOutput(
            logits=logits,
            past_key_values=cache if keep else None,
            encoder_last_hidden_state=hidden_RSD,
        )
        return output.to_tuple() if return_dict is False else output

    def _hidden(
        self, input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None, encoder_outputs: Any
    ) -> torch.Tensor:
        """Hidden states of the sources, computed now where they were not."""
        if encoder_outputs is not None:
            return encoder_outputs[0]
        if input_ids is None:
            raise ShapeError(
                refusal(
                    asked="a call without input_ids and without encoder_outputs",
                    found="no source",
                    why="the decoder reads one",
                    do="pass input_ids, or what get_encoder() returned as encoder_outputs",
                )
            )
        return self.encoder(input_ids, attention_mask)[0]

    def _checked_target(self, ids: torch.Tensor | None, mask: torch.Tensor | None, num_past: int) -> torch.Tensor:
        if ids is None:
            raise ShapeError(
                refusal(
                    asked="a call without decoder_input_ids",
                    found="no target to continue",
                    why="the graph gives logits of what follows a target",
                    do="pass decoder_input_ids that begin with decoder_start_token_id, or call generate()",
                )
            )
        checked = checked_mask(ids, mask, num_past=num_past, vocabulary=self._vocabulary)
        if not checked.all():
            raise ShapeError(
                refusal(
                    asked="decoder_attention_mask with zeros",
                    found=f"{int((checked == 0).sum())} tokens that are not to be seen",
                    why="a target's tokens all see those before them in the compiled graph",
                    do="pass targets of one length, without padding",
                )
            )
        if num_past + ids.shape[1] > self.decoder_sequence_length:
            raise ShapeError(
                refusal(
                    asked=f"a target of {num_past + ids.shape[1]} tokens",
                    found=f"compiled for {self.decoder_sequence_length}",
                    why="the cache has one slot for each token of decoder_sequence_length",
                    do="lower max_new_tokens, or export with a larger decoder_sequence_length",
                )
            )
        return ids

    def _run(
        self, ids_RT: torch.Tensor, mask_RS: torch.Tensor, hidden_RSD: torch.Tensor, num_past: int, state: State
    ) -> torch.Tensor:
        """Logits [R, T, V] of rows that share one set of state, token by token."""
        num_source, found = mask_RS.shape[1], []
        whole_RS = torch.nn.functional.pad(mask_RS, (0, self.neuron_config.num_source_slots - num_source))
        for column in range(ids_RT.shape[1]):
            token_R1, position = ids_RT[:, column : column + 1], num_past + column
            if position == 0:
                bucket = choose_bucket(num_source, self.source_buckets, what="source", do=_TOO_LONG).value
                hidden = torch.nn.functional.pad(hidden_RSD.float(), (0, 0, 0, bucket - num_source))
                inputs = [token_R1, whole_RS[:, :bucket], hidden]
                found.append(run_rows(self.loaded, f"prefill_{bucket}", inputs, state))
            else:
                inputs = [token_R1, whole_RS]
                found.append(run_rows(self.loaded, "decode", inputs, state, torch.tensor([position])))
        return torch.cat(found, 1)

    # What GenerationMixin asks of a model.

    def get_encoder(self, modality: str | None = None) -> NeuronEncoder:
        """The compiled encoder."""
        return self.encoder

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        refuse_cache_implementation(generation_config)
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
            model_kwargs["past_key_values"] = NeuronCache(self.loaded, self.batch_size)

    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As transformers does it; only `forward`'s inputs stay."""
        return known_inputs(super().prepare_inputs_for_generation(*args, **kwargs), _INPUTS)

    @property
    def input_static_shapes(self) -> dict[str, Any]:
        """Compiled size or sizes of each axis."""
        data = self.neuron_config.to_dict()
        return {axis: data[axis] for axis in ("batch_size", "sequence_length", "decoder_sequence_length")}

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
        """Rows of the compiled graphs."""
        return self.neuron_config.batch_size


_INPUTS = frozenset(inspect.signature(NeuronModelForSeq2SeqLM.forward).parameters)


def _source_mask(mask: torch.Tensor | None, hidden_RSD: torch.Tensor, num_rows: int) -> torch.Tensor:
    """The mask of the sources, of ones where there is none.

    Raises:
        ShapeError: sources, mask and targets are not of the same rows and tokens.
    """
    shape = hidden_RSD.shape[:2]
    if shape[0] != num_rows or (mask is not None and mask.shape != shape):
        found = "no attention_mask" if mask is None else f"attention_mask of {list(mask.shape)}"
        raise ShapeError(
            refusal(
                asked=f"{num_rows} targets over sources of {list(shape)} with {found}",
                found="shapes that do not belong together",
                why="each target reads its own source, of which the mask has each token once",
                do="pass a source and a mask row for each target",
            )
        )
    return torch.ones(shape, dtype=torch.long) if mask is None else mask.long()
