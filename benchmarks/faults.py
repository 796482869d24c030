"""Faults of serving: 10,000 requests with random lengths, settings, errors and cancels, of a tiny random model.

All are answered or refused, no block is lost, memory stays flat, and the tokens of a sample are those of each request
alone. It runs only when it is named; `--quick` makes a tenth of the requests.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.footprint import footprint
from tests.tiny import VOCABULARY, save_tiny

from .harness import Row, Settings

NUM_REQUESTS, EVERY = 10_000, 50
"""Requests in all, and of how many one is repeated alone."""


def run(settings: Settings) -> list[Row]:
    """Serve them in rounds, and compare a sample."""
    from optimum_neuron import NeuronModelForCausalLM

    number = NUM_REQUESTS // (10 if settings.quick else 1)
    with tempfile.TemporaryDirectory() as work:
        model = NeuronModelForCausalLM.from_pretrained(
            save_tiny(Path(work), "llama"),
            export=True,
            continuous_batching=True,
            batch_size=4,
            sequence_length=48,
            block_size=8,
            num_blocks=14,
            prefill_chunk_size=16,
            optlevel="1",
        )
        with model, model.continuous_batching_context_manager() as manager:
            rows = _serve(manager, number)
    return rows


def _serve(manager: Any, number: int) -> list[Row]:
    draw, sizes = random.Random(0), []
    counts = dict.fromkeys(("answered", "failed", "cancelled", "different"), 0)
    for _ in range(10):
        requests = {}
        for _ in range(number // 10):
            prompt, options = _request(draw)
            requests[manager.add_request(prompt, **options)] = prompt, options
            if draw.random() < 0.05:
                manager.cancel_request(draw.choice(list(requests)))
        outputs = [manager.get_result() for _ in requests]
        assert {output.request_id for output in outputs} == set(requests)
        for output in outputs:
            error = output.error or ""
            counts["cancelled" if "cancelled" in error else "failed" if error else "answered"] += 1
        for output in [output for output in outputs if output.error is None][::EVERY]:
            prompt, options = requests[output.request_id]
            manager.add_request(prompt, **options)
            counts["different"] += manager.get_result().generated_tokens != output.generated_tokens
        sizes.append(footprint().resident_bytes)
        print(f"{counts}, {sizes[-1] / 2**20:.0f} MiB", file=sys.stderr)
    pool = manager.engine.pool
    rows = [Row(what=f"requests {name}", value=value, unit="") for name, value in counts.items()]
    rows.append(Row(what="preemptions", value=manager.engine.counters.preemptions_total, unit=""))
    rows.append(Row(what="blocks lost", value=pool.num_usable - pool.num_free, unit="", note="bar: 0"))
    rows.append(Row(what="growth of memory after a tenth", value=(sizes[-1] - sizes[1]) / 2**20, unit="MiB"))
    return rows


def _broken(input_ids: Any, scores: Any) -> Any:
    if input_ids.shape[1] % 7 == 0:
        raise ArithmeticError("a processor that fails")
    return scores


def _request(draw: random.Random) -> tuple[list[int], dict[str, Any]]:
    """A prompt, some of which begin alike, and settings."""
    prompt = [3] * draw.choice((0, 0, 16)) + [draw.randrange(3, VOCABULARY) for _ in range(draw.randint(1, 20))]
    options: dict[str, Any] = {"max_new_tokens": draw.randint(1, 12), "seed": draw.randrange(1000)}
    if draw.random() < 0.5:
        options |= {"do_sample": True, "temperature": draw.uniform(0.5, 1.5), "top_p": draw.uniform(0.5, 1.0)}
    if draw.random() < 0.2:
        options |= {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}
    if draw.random() < 0.02:
        options |= {"logits_processor": [_broken]}
    return prompt, options
