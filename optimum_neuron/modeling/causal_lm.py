"""`NeuronModelForCausalLM`: a compiled decoder behind transformers' generation interface.

Everything that decides which tokens come next stays in `GenerationMixin`; this class turns a padded batch into
packed rows, picks the entry point and bucket, and gives logits back. It knows nothing of compiling: `loading`
does that.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..core import Choice
from ..exporters.prepare import Prepared
from .cache import NeuronCache, own_cache
from .calls import DecoderCalls, choose_bucket
from .checks import check_length, checked_mask, limit_length, refuse_outputs
from .generation import CompiledGenerationMixin, known_inputs, refuse_cache_implementation, saved_generation_config
from .loading import NeuronModel
from .packing import check_positions, plan_packing
from .registration import register


@register
class NeuronModelForCausalLM(NeuronModel, CompiledGenerationMixin):
    """A decoder compiled for a simulated NeuronCore.

    Example:
        ```python no-run
        from transformers import AutoTokenizer
        from optimum_neuron import NeuronModelForCausalLM

        model = NeuronModelForCausalLM.from_pretrained("smollm2", export=True, sequence_length=512)
        tokenizer = AutoTokenizer.from_pretrained(model.source_folder)
        ids = tokenizer("The capital of France is", return_tensors="pt")
        print(tokenizer.decode(model.generate(**ids, max_new_tokens=8)[0]))
        ```
    """

    task = "text-generation"
    main_input_name = "input_ids"
    input_modalities = ("text",)
    output_modalities = ("text",)
    base_model_prefix = "model"

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._calls = DecoderCalls(self.loaded, self.neuron_config)
        self._vocabulary: int = self.config.get_text_config(decoder=True).vocab_size
        self.generation_config = saved_generation_config(prepared.source.folder, self.config)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: NeuronCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[torch.Tensor, ...]:
        """Run the compiled program; arguments and result are transformers'.

        Args:
            input_ids: token ids [rows, new columns]; any number of rows.
            attention_mask: 1 for real tokens, [rows, all columns]; padding may be on either side.
            position_ids: only the running count of `attention_mask` is possible, which is the default.
            past_key_values: the cache that an earlier call returned.
            labels: token ids to compute the loss of, -100 to skip.
            use_cache: return the cache; the default is the configuration's.
            logits_to_keep: return logits of the last columns only; 0 means all.
            output_attentions: not possible: the compiled graph does not return them.
            output_hidden_states: not possible either.
            return_dict: False returns a tuple.

        Raises:
            ShapeError: the sequence is longer than compiled, a token is not in the vocabulary, or positions are not
                the running count.
            ConfigError: something was asked for that the graph does not compute.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        cache = own_cache(past_key_values, self.loaded, self.batch_size)
        mask = checked_mask(input_ids, attention_mask, num_past=cache.columns, vocabulary=self._vocabulary)
        packing = plan_packing(mask, cache.columns)
        check_positions(position_ids, packing)
        check_length(packing, self.sequence_length)
        cache.reserve(input_ids.shape[0], self.loaded)
        wanted = 0 if labels is not None else logits_to_keep
        groups = [
            self._calls.run(input_ids[rows], packing.rows(rows), cache.columns, wanted, state)
            for rows, state in cache.row_groups(input_ids.shape[0])
        ]
        logits = groups[0] if len(groups) == 1 else torch.cat(groups)
        cache.add(input_ids.shape[1], logits)
        loss = None if labels is None else _loss(logits, labels)
        if labels is not None and logits_to_keep:
            logits = logits[:, -logits_to_keep:]
        keep = self.config.use_cache if use_cache is None else use_cache
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache if keep else None)
        return output.to_tuple() if return_dict is False else output

    # What GenerationMixin asks of a model.

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        refuse_cache_implementation(generation_config)
        limit_length(generation_config, model_kwargs.get("attention_mask"), self.sequence_length)
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = NeuronCache(self.loaded, self.batch_size)

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, *args: Any, is_first_iteration: bool | None = False, **kwargs: Any
    ) -> dict[str, Any]:
        """As transformers does it, but positions of later tokens come from the mask, and only `forward`'s inputs stay.

        `generate` counts on from the last column, which after right padding is a padding column, and passes on what
        only its own parts need, such as the tokenizer of stop strings.
        """
        inputs = super().prepare_inputs_for_generation(
            input_ids, *args, is_first_iteration=is_first_iteration, **kwargs
        )
        if not is_first_iteration:
            inputs.pop("position_ids", None)
        return known_inputs(inputs, _INPUTS)

    def choose_bucket(self, num_tokens: int) -> Choice[int]:
        """Say which prompt bucket holds a prompt, and why.

        Raises:
            ShapeError: it is longer than the largest bucket.
        """
        return choose_bucket(num_tokens, self.buckets)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Prompt lengths that were compiled."""
        assert self.neuron_config.prefill_buckets is not None
        return self.neuron_config.prefill_buckets

    @property
    def sequence_length(self) -> int:
        """Tokens that a row can hold."""
        assert self.neuron_config.sequence_length is not None
        return self.neuron_config.sequence_length

    @property
    def batch_size(self) -> int:
        """Rows of the compiled graphs."""
        return self.neuron_config.batch_size


_INPUTS = frozenset(inspect.signature(NeuronModelForCausalLM.forward).parameters)


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next token, as transformers' ForCausalLMLoss."""
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), shifted.flatten(), ignore_index=-100)
