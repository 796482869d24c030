"""`NeuronModelForCausalLM`: a compiled decoder behind transformers' generation interface.

Everything that decides which tokens come next stays in `GenerationMixin`; this class turns a padded batch into
packed rows, picks the entry point and bucket, and gives logits back. It knows nothing of compiling: `loading`
does that.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..core import Choice, Rejected
from ..errors import ConfigError, ShapeError, refusal
from ..exporters.prepare import Prepared
from ..runtime.loaded import State
from .cache import NeuronCache
from .checks import check_length, checked_mask, limit_length, refuse_outputs
from .loading import NeuronModel
from .packing import Packing, check_positions, plan_packing
from .registration import register


@register
class NeuronModelForCausalLM(NeuronModel, GenerationMixin):
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
    _is_stateful = False

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._vocabulary: int = self.config.get_text_config(decoder=True).vocab_size
        self.generation_config = _generation_config(prepared.source.folder, self.config)

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
        cache = past_key_values if past_key_values is not None else NeuronCache(self.loaded, self.batch_size)
        if not isinstance(cache, NeuronCache):
            raise ConfigError(
                refusal(
                    asked=f"past_key_values of type {type(cache).__name__}",
                    found="a host cache",
                    why="keys and values live on the device",
                    do="pass what an earlier call returned",
                )
            )
        mask = checked_mask(input_ids, attention_mask, num_past=cache.columns, vocabulary=self._vocabulary)
        packing = plan_packing(mask, cache.columns)
        check_positions(position_ids, packing)
        check_length(packing, self.sequence_length)
        cache.reserve(input_ids.shape[0], self.loaded)
        wanted = 0 if labels is not None else logits_to_keep
        groups = [
            self._run_rows(rows, input_ids, packing, cache.columns, wanted, state)
            for rows, state in self._row_groups(input_ids.shape[0], cache)
        ]
        logits = groups[0] if len(groups) == 1 else torch.cat(groups)
        cache.columns += input_ids.shape[1]
        if not logits[:, -1].isfinite().all():
            cache.spoil()
        loss = None if labels is None else _loss(logits, labels)
        if labels is not None and logits_to_keep:
            logits = logits[:, -logits_to_keep:]
        keep = self.config.use_cache if use_cache is None else use_cache
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache if keep else None)
        return output.to_tuple() if return_dict is False else output

    def choose_bucket(self, num_tokens: int) -> Choice[int]:
        """Say which prompt bucket holds a prompt, and why.

        Raises:
            ShapeError: it is longer than the largest bucket.
        """
        buckets = self.buckets
        for bucket in buckets:
            if num_tokens <= bucket:
                rejected = tuple(
                    Rejected(candidate=str(b), reason=f"{num_tokens} tokens do not fit")
                    for b in buckets
                    if b < num_tokens
                )
                return Choice(value=bucket, reason=f"smallest bucket that holds {num_tokens} tokens", rejected=rejected)
        raise ShapeError(
            refusal(
                asked=f"a prompt of {num_tokens} tokens",
                found=f"the largest bucket holds {buckets[-1]}; buckets are " + ", ".join(map(str, buckets)),
                why="prompts are padded up to a compiled bucket",
                do="shorten the prompt or export with larger prefill_buckets or sequence_length",
            )
        )

    def _run_rows(
        self, rows: slice, input_ids: torch.Tensor, packing: Packing, num_past: int, wanted: int, state: State
    ) -> torch.Tensor:
        """Logits [rows, kept columns, V] of rows that share one set of state."""
        ids = input_ids[rows]
        part = Packing(
            positions_RT=packing.positions_RT[rows], valid_RT=packing.valid_RT[rows], first_R=packing.first_R[rows]
        )
        num_rows, num_tokens = ids.shape
        if num_tokens == 1 and num_past and bool(part.valid_RT.all()):
            return self._call("decode", ids, part.positions_RT, state)[:num_rows]
        longest = max(int(part.lengths_R.max()), 1)
        if num_past:
            packed = self._extend(part.pack(ids, longest), part.first_R, state)[:num_rows]
        else:
            bucket = self.choose_bucket(longest).value
            positions = torch.arange(bucket).expand(num_rows, -1)
            if wanted == 1:
                last = (part.lengths_R - 1).clamp(min=0)
                return self._call(f"prefill_{bucket}", part.pack(ids, bucket), positions, state, last)[:num_rows]
            packed = self._call(f"score_{bucket}", part.pack(ids, bucket), positions, state)[:num_rows]
        index = part.index_RT[:, -wanted:] if wanted else part.index_RT
        return packed.gather(1, index[:, :, None].expand(-1, -1, packed.shape[-1]))

    def _extend(self, ids: torch.Tensor, first_R: torch.Tensor, state: State) -> torch.Tensor:
        """Add packed tokens to rows that are in the cache, a compiled chunk at a time."""
        length, limit = self.neuron_config.extend_length, self.sequence_length
        chunks = []
        for start in range(0, ids.shape[1], length):
            chunk = ids[:, start : start + length]
            positions = first_R[:, None] + start + torch.arange(length)
            num_over = int(positions.max()) - limit + 1
            if num_over > 0:
                # The compiled chunk would reach past the cache: the last tokens go one by one.
                for column in range(chunk.shape[1]):
                    at = (first_R[:, None] + start + column).clamp(max=limit - 1)
                    chunks.append(self._call("decode", chunk[:, column : column + 1].contiguous(), at, state))
            else:
                padded = torch.nn.functional.pad(chunk, (0, length - chunk.shape[1]))
                logits = self._call(f"extend_{length}", padded, positions, state)
                chunks.append(logits[:, : chunk.shape[1]])
        return torch.cat(chunks, 1)

    def _call(
        self, graph: str, ids: torch.Tensor, positions: torch.Tensor, state: State, *more: torch.Tensor
    ) -> torch.Tensor:
        """Pad rows to the compiled batch and run an entry point."""
        inputs = [ids, positions, *more]
        missing = self.batch_size - ids.shape[0]
        if missing:
            inputs = [torch.cat((tensor, tensor[:1].expand(missing, *tensor.shape[1:]))) for tensor in inputs]
        return self.loaded.run(graph, [tensor.contiguous() for tensor in inputs], state)["logits"]

    def _row_groups(self, num_rows: int, cache: NeuronCache) -> Iterator[tuple[slice, State]]:
        for group, state in enumerate(cache.states):
            begin = group * self.batch_size
            if begin < num_rows:
                yield slice(begin, min(begin + self.batch_size, num_rows)), state

    # What GenerationMixin asks of a model.

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        if generation_config.cache_implementation is not None:
            raise ConfigError(
                refusal(
                    asked=f"cache_implementation={generation_config.cache_implementation!r}",
                    found="the cache is part of the compiled program",
                    why="its kind is fixed at export",
                    do="leave cache_implementation out",
                )
            )
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
        return {name: value for name, value in inputs.items() if name in _INPUTS}

    def can_generate(self) -> bool:
        """It can."""
        return True

    def is_remote_code(self) -> bool:
        """The compiled program is ours, whatever code it was captured from."""
        return False

    def get_experts_implementation(self) -> dict[str, str]:
        """Experts are compiled in; there is nothing to switch."""
        return {}

    def _valid_auto_compile_criteria(self, *args: Any, **kwargs: Any) -> bool:
        return False

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


def _generation_config(folder: Path, config: Any) -> GenerationConfig:
    if not (folder / "generation_config.json").is_file():
        return GenerationConfig.from_model_config(config)
    saved = GenerationConfig.from_pretrained(folder)
    saved.cache_implementation = None  # a wish of the checkpoint, which the compiled cache takes the place of
    return saved
