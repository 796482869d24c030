"""Entry points of a decoder for continuous batching: its cache is a pool of blocks, and tables assign them to rows.

prefill_<n>  the next chunk of one prompt, which is within its first n slots: logits of its last token
prefill_<n>_of_<t>  the same with a shorter chunk, of t tokens, for the end of a prompt
score_<n>    the same with logits of every token
extend_<n>   several more tokens of each row, logits of every one
decode_<n>   one more token of each row, which is within its first n slots
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ...base.core import Choice, TensorSpec
from ...compiler import Captured, Program, Recapture, Role, capture
from ...engine import ADAPTER_INDEX, STATE_ROW
from ...errors import ConfigError
from ...models import Family, RowAdapters
from ...options.configuration import NeuronConfig
from ...options.decoder_options import extend_lengths
from ..base import MODEL, SHARING
from .signature import graph_layers, known_kinds, prompt_captures, sampled_outputs, with_tokens


class PagedEntry(nn.Module):
    """A decoder called the way one graph with tables of blocks calls it."""

    def __init__(
        self,
        decoder: nn.Module,
        *,
        block_size: int,
        takes_rows: bool = False,
        adapters: RowAdapters | None = None,
        max_topk: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.block_size, self.adapters, self.max_topk = decoder, block_size, adapters, max_topk
        self.adds_all = False
        self.names = ("num_new_B", *("rows_B",) * takes_rows, "last_index_B")

    def forward(
        self, input_ids_BT: torch.Tensor, positions_BT: torch.Tensor, table_BM: torch.Tensor, *rest: object
    ) -> Any:
        """Logits of the last, of all tokens, or of both; the last argument is the list of states."""
        *inputs, states = rest
        rows: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.adapters is not None:
            rows = self.adapters.chosen(self.model, inputs.pop(), input_ids_BT.shape[1])
        options: dict[str, Any] = dict(zip(self.names, inputs, strict=False))
        options |= {"adds_all": True} if self.adds_all else {}
        num_slots = table_BM.shape[1] * self.block_size
        with rows:
            results = self.model(input_ids_BT, positions_BT, states, num_slots=num_slots, table_BM=table_BM, **options)
        return results if self.max_topk is None else with_tokens(results, self.max_topk)


def require_batching(family: Family, model_type: str, *, speculation: bool) -> None:
    """Check that a decoder keeps nothing between calls but slots and states that its tokens change."""
    changing = sorted({tensor.name for state in family.states for tensor in state if tensor.changes})
    if changing and speculation:
        message = f"speculation=True is not supported with continuous_batching=True for this {model_type} model: its "
        message += f"{', '.join(changing)} cannot forget rejected tokens."
        raise ConfigError(message, hint="Remove one of them.", option="speculation", model_type=model_type)
    names = sorted({tensor.name for state in family.states for tensor in state if tensor.is_fixed})
    if names:
        message = f"continuous_batching=True is not supported for this {model_type} model: its layers keep "
        message += f"{', '.join(names)}, which a whole prompt sets."
        hint = "Remove it; generate() takes padded batches of any size."
        raise ConfigError(message, hint=hint, option="continuous_batching", model_type=model_type, states=names)


def sharing_facts(family: Family) -> dict[str, Any]:
    """Return the metadata of a decoder whose requests cannot share what their prompts begin with."""
    names = sorted({tensor.name for state in family.states for tensor in state if tensor.changes})
    reason = f"{', '.join(names)} change with every token, so no prompt can go on within another"
    return {SHARING: Choice(value="off", reason=reason).to_dict()} if names else {}


def paged_graph_names(config: NeuronConfig) -> set[str]:
    """Names of all entry points that a complete configuration is compiled into."""
    names = {f"{role}_{slots}" for role in ("prefill", "score", "decode") for slots in config.decode_buckets}
    names |= {f"prefill_{slots}_of_{short}" for slots in config.decode_buckets for short in config.prefill_buckets[:-1]}
    return names | {f"extend_{length}" for length in extend_lengths(config)}


def paged_captures(family: Family, config: NeuronConfig) -> list[Recapture]:
    """Functions that capture each entry point."""
    size, chunk = config.block_size, config.prefill_chunk_size
    assert size and chunk and config.num_blocks, "a resolved configuration has sizes"
    states = {
        f"{tensor.name}.{layer}": TensorSpec(
            shape=tensor.shape(config.num_blocks if tensor.has_slots else config.batch_size, size),
            dtype=tensor.dtype or config.torch_dtype,
        )
        for layer, state in enumerate(family.states)
        for tensor in state
    }

    def entry(role: Role, num_rows: int, num_tokens: int, num_slots: int) -> Any:
        sizes = {"num_tokens": num_tokens} if role == "extend" else {"num_slots": num_slots}
        name = "_".join(map(str, (role, *sizes.values())))
        if role == "prefill" and num_tokens < chunk:
            name, sizes = f"{name}_of_{num_tokens}", {**sizes, "num_tokens": num_tokens}
        max_topk = config.max_topk if role == "decode" else None
        return functools.partial(
            _capture,
            PagedEntry(
                family.module,
                block_size=size,
                takes_rows=family.counts_tokens and role in ("prefill", "score"),
                adapters=family.adapters,
                max_topk=max_topk,
            ),
            name=name,
            role=role,
            sizes=sizes,
            inputs=_inputs(family, role, num_rows, num_tokens, -(-num_slots // size)),
            states=states,
            outputs=(*family.outputs, *sampled_outputs(config) * (role == "decode")),
            layer_results=graph_layers(family),
            cuts=tuple(f"{MODEL}.{path}" for path in family.module.cuts),
            rare=role == "extend" and not config.speculation,
        )

    captures: list[Recapture] = []
    for slots in config.decode_buckets:
        captures += prompt_captures(entry("prefill", 1, chunk, slots), entry("score", 1, chunk, slots))
        captures += [entry("prefill", 1, short, slots) for short in config.prefill_buckets[:-1]]
    captures += [entry("decode", config.batch_size, 1, slots) for slots in config.decode_buckets]
    captures += [
        entry("extend", config.batch_size, length, config.sequence_length) for length in extend_lengths(config)
    ]
    return captures


def _inputs(family: Family, role: Role, num_rows: int, num_tokens: int, num_row_blocks: int) -> dict[str, TensorSpec]:
    tokens = TensorSpec(shape=(num_rows, num_tokens), dtype="int64")
    rows = TensorSpec(shape=(num_rows,), dtype="int64")
    table = TensorSpec(shape=(num_rows, num_row_blocks), dtype="int64")
    inputs = {"input_ids": tokens, "position_ids": tokens, "block_table": table}
    # A row without a request has block 0 in its whole table, so a step with slots only needs no number of tokens.
    inputs |= {} if role == "decode" and not family.counts_tokens else {"num_new_tokens": rows}
    inputs |= {STATE_ROW: rows} if role in ("prefill", "score") and family.counts_tokens else {}
    inputs |= {"last_index": rows} if role == "prefill" else {}
    return inputs | ({} if family.adapters is None else {ADAPTER_INDEX: rows})


def _capture(entry: PagedEntry, shorten: bool, **options: Any) -> Captured:
    return capture(entry, shorten=shorten, kinds=known_kinds(entry.model, entry.adapters), **options)


def paged_problems(program: Program, config: NeuronConfig) -> list[str]:
    """Return how a program differs from a configuration."""
    return list(_problems(program, config))


def _problems(program: Program, config: NeuronConfig) -> Iterator[str]:
    rows = {graph.inputs["input_ids"].shape[0] for graph in program.graphs.values() if graph.role == "decode"}
    if rows != {config.batch_size}:
        yield f"its steps have {', '.join(map(str, sorted(rows)))} rows instead of batch_size={config.batch_size}"
    pools = [spec for name, spec in program.states.items() if name.startswith(("key_cache", "value_cache"))]
    blocks = {spec.shape[0] for spec in pools}
    if pools and blocks != {config.num_blocks}:
        yield f"its cache has {', '.join(map(str, sorted(blocks)))} blocks instead of num_blocks={config.num_blocks}"
    sizes = {spec.shape[3] for name, spec in program.states.items() if name.startswith("key_cache")}
    if pools and sizes != {config.block_size}:
        yield f"its blocks have {', '.join(map(str, sorted(sizes)))} slots instead of block_size={config.block_size}"
    if (tokens := tuple(program.chunks("prefill"))) != tuple(config.prefill_buckets):
        numbers = ", ".join(map(str, tokens))
        yield f"its chunks have {numbers} tokens instead of prefill_buckets={config.prefill_buckets}"
