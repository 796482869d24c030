"""Speculation: tokens per second of a summary, with prompt lookup and without it."""

from __future__ import annotations

import functools
from typing import Any

from optimum_neuron.demo import TokenClock

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of

NUM_NEW, CHECKED_TOKENS = 96, 8
TEXT = """The harbour of Lindholm was built in 1874 by the engineer Maria Lund. The harbour of Lindholm was closed in
1911 after a storm damaged its northern wall. In 1923 the city council decided to repair the northern wall, and the
harbour of Lindholm was opened again in 1926. Today the harbour of Lindholm is used by fishing boats and by the ferry to
Odde. The ferry to Odde leaves the harbour of Lindholm every two hours and takes forty minutes."""


def run(settings: Settings) -> list[Row]:
    """Measure both in turn; the rate counts the tokens after the first."""
    from transformers import AutoTokenizer

    model = contenders.ours(settings.model, settings.sequence_length, speculation=CHECKED_TOKENS)
    tokenizer = AutoTokenizer.from_pretrained(contenders.folder(settings.model))
    message = {"role": "user", "content": f"Repeat the key sentences of this text word by word.\n\n{TEXT}"}
    inputs = tokenizer.apply_chat_template([message], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    model.generation_config.eos_token_id = None
    rates = in_turn(
        {
            "prompt lookup": functools.partial(
                _tokens_per_s, model, inputs, prompt_lookup_num_tokens=CHECKED_TOKENS - 1
            ),
            "plain": functools.partial(_tokens_per_s, model, inputs),
        },
        settings.rounds,
    )
    _tokens_per_s(model, inputs, prompt_lookup_num_tokens=CHECKED_TOKENS - 1)
    rows = rows_of(rates, "token/s", note=f"{NUM_NEW} tokens after a prompt of {inputs['input_ids'].shape[1]}")
    note = f"bar: 1.3; {model.last_speculation}"
    return [*rows, ratio("prompt lookup over plain decoding", rates["prompt lookup"], rates["plain"], note=note)]


def _tokens_per_s(model: Any, inputs: Any, **draft: Any) -> float:
    clock = TokenClock()
    model.generate(**inputs, max_new_tokens=NUM_NEW, do_sample=False, pad_token_id=2, streamer=clock, **draft)
    return clock.tokens_per_s
