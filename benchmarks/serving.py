"""Serving: 8 requests at once, against one at a time, transformers' own continuous batching, and llama.cpp.

The model is compiled with continuous batching for 8 rows; llama.cpp decodes 8 sequences in one batch of its C
interface. First tokens are of a prompt whose first 512 tokens an earlier request had, against one without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

NUM_ROWS, NUM_PROMPT, NUM_NEW = 8, 32, 32
NUM_SHARED, NUM_OWN = 512, 16


def run(settings: Settings) -> list[Row]:
    """Measure all contenders in turn."""
    import torch

    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(100, 10000, (NUM_ROWS, NUM_PROMPT), generator=generator).tolist()
    model = served(settings.model)
    with model.continuous_batching_context_manager() as manager:
        measured: dict[str, Callable[[], float]] = {
            "ours, 8 at once": functools.partial(_together, manager, prompts),
            "ours, one at a time": functools.partial(_one_by_one, manager, prompts),
        }
        theirs = contenders.eager(settings.model, "bfloat16")
        measured["transformers, 8 at once"] = functools.partial(_transformers, theirs, prompts)
        if contenders.has_llama_cpp():
            measured["llama.cpp, 8 at once"] = functools.partial(_llama_cpp, settings.model, prompts)
        rates = in_turn(measured, settings.rounds)
        counters = manager.engine.counters
        host_s = counters.scheduling_seconds_total + counters.sampling_seconds_total
        share = host_s / (host_s + counters.step_seconds_total + counters.chunk_seconds_total)
        first = in_turn(
            {
                "first token, 512 tokens shared": functools.partial(_first_token, manager, generator, is_shared=True),
                "first token, nothing shared": functools.partial(_first_token, manager, generator, is_shared=False),
            },
            settings.rounds,
        )
    note = f"{NUM_NEW} tokens after prompts of {NUM_PROMPT}, prompts included"
    rows = rows_of(rates, "token/s", note=note) + rows_of(first, "ms")
    ours = rates["ours, 8 at once"]
    rows.append(ratio("8 at once over one at a time", ours, rates["ours, one at a time"], note="bar: 3"))
    rows.append(ratio("ours over transformers", ours, rates["transformers, 8 at once"], note="bar: 2"))
    if "llama.cpp, 8 at once" in rates:
        rows.append(ratio("ours over llama.cpp", ours, rates["llama.cpp, 8 at once"], note="bar: 1.2"))
    rows.append(ratio("first token, shared over not", *first.values(), note="bar: 0.2"))
    rows.append(Row(what="planning and sampling of all time", value=100 * share, unit="%", note="bar: 5"))
    return rows


@functools.cache
def served(model: str) -> Any:
    """A model with continuous batching."""
    from optimum_neuron import NeuronModelForCausalLM

    return NeuronModelForCausalLM.from_pretrained(
        contenders.folder(model),
        export=True,
        batch_size=NUM_ROWS,
        sequence_length=1024,
        decode_buckets=(256, 1024),
        continuous_batching=True,
        prefill_chunk_size=64,
        torch_dtype="bfloat16",
        wait_for_host_code=True,
        # Random tokens in bfloat16: a few logits of eager transformers differ as much from those in float32.
        disable_validation=True,
    )


_GREEDY = {"max_new_tokens": NUM_NEW, "do_sample": False, "eos_token_id": -1}


def _together(manager: Any, prompts: list[list[int]]) -> float:
    def answer() -> None:
        manager.add_requests(prompts, **_GREEDY)
        for _ in prompts:
            manager.get_result()

    return NUM_ROWS * NUM_NEW / seconds(answer)


def _one_by_one(manager: Any, prompts: list[list[int]]) -> float:
    def answer() -> None:
        for prompt in prompts[:2]:
            manager.add_request(prompt, **_GREEDY)
            manager.get_result()

    return 2 * NUM_NEW / seconds(answer)


def _transformers(model: Any, prompts: list[list[int]]) -> float:
    from transformers import ContinuousBatchingConfig, GenerationConfig

    settings = GenerationConfig(max_new_tokens=NUM_NEW, do_sample=False, eos_token_id=-1)
    sizes = ContinuousBatchingConfig(num_blocks=32, max_batch_tokens=256)
    return (
        NUM_ROWS
        * NUM_NEW
        / seconds(lambda: model.generate_batch(prompts, generation_config=settings, continuous_batching_config=sizes))
    )


def _first_token(manager: Any, generator: Any, *, is_shared: bool) -> float:
    """Milliseconds until the first token of a prompt of 528."""
    import torch

    def draw(num_tokens: int) -> list[int]:
        return torch.randint(100, 10000, (num_tokens,), generator=generator).tolist()

    def answer(prompt: list[int]) -> None:
        manager.add_request(prompt, max_new_tokens=1, do_sample=False)
        manager.get_result()

    begin = draw(NUM_SHARED)
    if is_shared:
        answer(begin + draw(NUM_OWN))
    return 1e3 * seconds(lambda: answer(begin + draw(NUM_OWN)))


@functools.cache
def _llama_context(model: str) -> Any:
    """llama.cpp with room for all sequences."""
    import os

    from llama_cpp import llama_cpp as api

    engine = contenders.llama_cpp(model, 512)
    sizes = api.llama_context_default_params()
    sizes.n_ctx, sizes.n_seq_max, sizes.n_batch = NUM_ROWS * 256, NUM_ROWS, 512
    sizes.n_threads = sizes.n_threads_batch = os.cpu_count() or 1
    return api.llama_init_from_model(engine.model, sizes), api


def _llama_cpp(model: str, prompts: list[list[int]]) -> float:
    """Greedy tokens of all prompts through its batches."""
    import numpy as np

    context, api = _llama_context(model)
    api.llama_memory_clear(api.llama_get_memory(context), True)
    batch = api.llama_batch_init(512, 0, 1)
    vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(api.llama_get_model(context)))

    def decode(rows: list[list[int]], first: int) -> list[int]:
        """Add tokens to each sequence; return the next of each."""
        batch.n_tokens, ends = 0, []
        for sequence, tokens in enumerate(rows):
            for index, token in enumerate(tokens):
                place = batch.n_tokens
                batch.token[place], batch.pos[place] = token, first + index
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                batch.logits[place] = index == len(tokens) - 1
                batch.n_tokens += 1
            ends.append(batch.n_tokens - 1)
        assert api.llama_decode(context, batch) == 0
        logits = [np.ctypeslib.as_array(api.llama_get_logits_ith(context, end), (vocabulary,)) for end in ends]
        return [int(row.argmax()) for row in logits]

    def answer() -> None:
        tokens = decode(prompts, 0)
        for step in range(NUM_NEW - 1):
            tokens = decode([[token] for token in tokens], NUM_PROMPT + step)

    took = seconds(answer)
    api.llama_batch_free(batch)
    return NUM_ROWS * NUM_NEW / took
