"""Simulated time of a served load: an engine against the estimate of the same exported folder, with other arrivals.

A tiny random model answers requests that arrive at random in simulated time, so the benchmark takes seconds. The
estimate schedules its own arrivals at the same rate and runs no graph.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from .harness import Row, Settings

NUM_REQUESTS, NUM_PROMPT, NUM_ANSWER = 5000, 40, 8
SHARES = (0.3, 0.5, 0.7)
"""Parts of the capacity that arrive."""


def run(settings: Settings) -> list[Row]:
    """Serve and estimate loads; the bar of each ratio is 0.9 to 1.1."""
    from optimum_neuron import NeuronModelForCausalLM
    from optimum_neuron.simulator import estimate, summarize
    from tests.tiny import save_tiny

    num_requests = NUM_REQUESTS // (10 if settings.quick else 1)
    lengths = {"sequence_length": NUM_PROMPT + NUM_ANSWER, "output_length": NUM_ANSWER, "data_parallel_size": 1}
    rows = []
    with tempfile.TemporaryDirectory() as work:
        model = NeuronModelForCausalLM.from_pretrained(
            save_tiny(Path(work, "tiny"), "llama"),
            export=True,
            continuous_batching=True,
            batch_size=4,
            sequence_length=64,
            block_size=8,
            prefill_chunk_size=16,
            decode_buckets=(32, 64),
            extend_length=1,
            optlevel="1",
        )
        model.save_pretrained(Path(work, "neuron"))
        for share in SHARES:
            capacity = estimate(Path(work, "neuron"), requests_per_s=1.0, **lengths).load
            rate = share / capacity.utilization.value
            load = estimate(Path(work, "neuron"), requests_per_s=rate, **lengths).load
            served = summarize(serve(model, rate, num_requests))
            note = f"{share:.0%} of the capacity, {num_requests} requests, simulated on {model.neuron_config.target}"
            rows += [
                Row(what=f"{name}, engine over estimate", value=served[name] / value.value, unit="x", note=note)
                for name, value in load.served.items()
            ]
        model.close()
    return rows


def serve(model: Any, requests_per_s: float, num_requests: int) -> list[Any]:
    """Serve a random load in simulated time; return the times of its requests, without the first tenth."""
    from optimum_neuron.batching import Engine, Request, Runner, SimulatedTimes, make_sampler, serve_trace
    from optimum_neuron.simulator import poisson_arrivals

    engine = Engine(Runner(model.loaded, model._signature), enable_prefix_caching=False)
    draw, requests = random.Random(1), []
    for number, arrival_s in enumerate(poisson_arrivals(requests_per_s, num_requests, seed=1)):
        prompt = [draw.randrange(3, model.config.vocab_size) for _ in range(NUM_PROMPT)]
        options = {"max_new_tokens": NUM_ANSWER, "do_sample": False, "eos_token_id": -1}
        sampler = make_sampler(model, prompt, None, options, num_slots=64, seed=0, wants_logprobs=False)
        times = SimulatedTimes(arrival_s=arrival_s)
        requests.append(
            Request(request_id=str(number), prompt=prompt, max_new_tokens=NUM_ANSWER, sampler=sampler, simulated=times)
        )
    try:
        serve_trace(engine, requests)
    finally:
        engine.runner.close()
    return [request.simulated for request in requests[num_requests // 10 :]]
