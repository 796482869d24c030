"""Clients of a server: against Little's law, numbers counted by hand, and published loads."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig

from optimum_neuron.batching import Request, SimulatedTimes
from optimum_neuron.errors import ConfigError
from optimum_neuron.runtime import ServingCost
from optimum_neuron.simulator import SERVED, constants, estimate
from optimum_neuron.simulator.clients import serve_clients
from optimum_neuron.simulator.continuous import ServedPool
from optimum_neuron.simulator.rows import ServedRows
from tests.raising import raises

sys.path.append(str(Path(__file__).parents[2] / "tools/fidelity"))
from cases import cases, read_rows

LLAMA = AutoConfig.for_model("llama", hidden_size=512, num_hidden_layers=2, num_attention_heads=8, vocab_size=1000)
SHAPE = {"instance": "inf2.xlarge", "sequence_length": 512, "batch_size": 4, "input_length": 256, "output_length": 64}
FREE = ServingCost(chunk_s=0.0, step_s=0.0, row_s=0.0, copy_bytes_per_s=1.0, basis="no host")


def rows(num_rows: int = 2, *, prompt_s: float = 1.0, step_s: float = 0.1, num_answer: int = 100) -> ServedRows:
    return ServedRows(
        num_rows=num_rows, prompt_s=prompt_s, step_s=step_s, cost=FREE, num_prompt=10, num_answer=num_answer
    )


def test_a_step_ends_with_the_prompts_of_free_rows():
    engine = rows().engine()
    requests = [
        Request(request_id=str(tokens), prompt=[], max_new_tokens=tokens, simulated=SimulatedTimes(arrival_s=0.0))
        for tokens in (3, 5, 2)
    ]
    for request in requests:
        engine.add(request)
    while engine.has_work:
        engine.step()
    first, second, third = (request.simulated for request in requests)
    # Two prompts, then two steps; the third prompt takes the row of the first answer, behind a step of the second one.
    assert (first.first_token_s, first.end_s) == pytest.approx((2.0, 2.2))
    assert (third.start_s, third.first_token_s, third.end_s) == pytest.approx((2.2, 3.3, 3.4))
    assert (second.first_token_s, second.end_s) == pytest.approx((2.0, 3.4))  # it waits for the third prompt
    assert engine.clock.now_s == engine.clock.busy_s == pytest.approx(3.4)


@pytest.mark.parametrize(
    ("batched_tokens", "first_s"),
    [
        (None, [4.0, 4.0, 4.0, 4.0]),  # all prompts at once
        (23, [2.0, 2.0, 4.1, 4.1]),  # two prompts of 10 tokens, then two more behind a step: 2 + 2 x 10 fit
        (21, [2.0, 2.0, 3.1, 4.2]),  # two prompts, then one: two running answers leave room for 19 tokens
        (5, [1.0, 2.1, 3.2, 4.3]),  # no prompt fits, but one is read all the same
    ],
)
def test_a_step_admits_what_fits_its_tokens(batched_tokens, first_s):
    engine = dataclasses.replace(rows(4), batched_tokens=batched_tokens).engine()
    requests = [
        Request(request_id=str(number), prompt=[], max_new_tokens=50, simulated=SimulatedTimes(arrival_s=0.0))
        for number in range(4)
    ]
    for request in requests:
        engine.add(request)
    while engine.has_work:
        engine.step()
    assert [request.simulated.first_token_s for request in requests] == pytest.approx(first_s)


def test_a_number_of_requests_ends_the_load():
    pool = dataclasses.replace(rows(4, num_answer=11), batched_tokens=10)
    served = serve_clients(pool, 8, num_requests=2, answer=lambda _: 11)
    # The second prompt is read behind a step of the first answer, which then takes nine more.
    assert [one.first_token_s for one in served.times] == pytest.approx([1.0, 2.1])
    assert [one.end_s for one in served.times] == pytest.approx([3.0, 3.1])
    assert served.tokens_per_s == pytest.approx(22 / 3.1)
    cut = serve_clients(pool, 8, num_requests=2, seconds=3.0, answer=lambda _: 11)
    assert len(cut.times) == 1 and cut.tokens_per_s == pytest.approx(11 / 3.0)


def test_one_client_waits_for_nobody():
    served = serve_clients(rows(), 1)
    assert all(one.ttft_s == pytest.approx(1.0) and one.tpot_s == pytest.approx(0.1) for one in served.times)
    assert served.tokens_per_s == pytest.approx(100 / (1.0 + 99 * 0.1), rel=0.02)


@pytest.mark.parametrize(("num_rows", "num_clients"), [(4, 3), (8, 8), (4, 11)])
def test_clients_obey_littles_law(num_rows, num_clients):
    # Little 1961: requests in the system = requests per second x mean latency.
    served = serve_clients(rows(num_rows, prompt_s=0.2, step_s=0.02), num_clients)
    latency_s = statistics.mean(one.latency_s for one in served.times)
    assert served.tokens_per_s / 100 * latency_s == pytest.approx(num_clients, rel=0.12)


def test_a_full_server_is_as_fast_as_its_graphs():
    served = serve_clients(rows(8, prompt_s=0.2, step_s=0.02), 24)
    assert served.tokens_per_s == pytest.approx(8 * 100 / (8 * 0.2 + 100 * 0.02), rel=0.1)


def test_published_loads_of_vllm_are_predicted():
    errors: dict[str, list[float]] = {}
    for case in cases(row for row in read_rows() if row.category == "served"):
        ratio = case.predict(constants()) / case.row.value
        errors.setdefault(case.row.metric, []).append(abs(ratio - 1))
    assert {len(values) for values in errors.values()} == {18}
    medians = {metric: statistics.median(values) for metric, values in errors.items()}
    assert medians["ttft_ms"] < 0.2 and medians["tpot_ms"] < 0.1 and medians["tokens_per_s"] < 0.1
    assert max(errors["tokens_per_s"]) < 0.25


def test_requests_that_arrive_once_wait_for_prompts_only():
    few, many = (
        estimate(LLAMA, **SHAPE, data_parallel_size=1, num_clients=4, num_requests=number).clients.served
        for number in (4, 400)
    )
    # The first requests begin together, the later ones when a row is free.
    assert few["ttft_mean_ms"].value > 1.1 * many["ttft_mean_ms"].value


def test_estimate_has_what_clients_see():
    alone, many = (estimate(LLAMA, **SHAPE, num_clients=number).clients for number in (1, 12))
    assert many.served["ttft_mean_ms"].value > 4 * alone.served["ttft_mean_ms"].value
    assert alone.tokens_per_s.value < many.tokens_per_s.value
    assert many.served["ttft_mean_ms"].low < many.served["ttft_mean_ms"].value < many.served["ttft_mean_ms"].high
    usd_per_s = estimate(LLAMA, **SHAPE).usd_per_h / 3600
    assert many.usd_per_1m.value == pytest.approx(usd_per_s / many.tokens_per_s.value * 1e6)
    assert many.usd_per_1m.low < many.usd_per_1m.value < many.usd_per_1m.high
    data = many.to_dict()
    assert data["requests_per_s"]["value"] == pytest.approx(many.tokens_per_s.value / 64)
    assert data.keys() == {*SERVED, "num_clients", "requests_per_s", "tokens_per_s", "usd_per_1m", "note"}


@pytest.mark.parametrize("num_answer", [20, 61])
def test_an_export_serves_clients_by_its_own_scheduler(num_answer):
    # 64 slots hold a prompt of 4 and an answer of 61, whose last token is not stored: no answer is longer.
    pool = ServedPool(
        num_rows=2,
        num_blocks=64,
        block_size=16,
        block_bytes=1,
        chunk_s={16: {64: 1.0}},
        step_s={64: 0.1},
        cost=FREE,
        num_prompt=4,
        num_answer=num_answer,
    )
    served = serve_clients(pool, 2)
    lengths = {one.num_tokens for one in served.times}
    assert max(lengths) <= 61 and min(lengths) < num_answer and len(served.times) == 16
    tokens_per_s = 2 * num_answer / (2 * 1.0 + (num_answer - 1) * 0.1)
    assert served.tokens_per_s == pytest.approx(tokens_per_s, rel=0.25)


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"num_clients": 0}, {"option": "num_clients"}),
        ({"num_requests": 2}, {"option": "num_requests", "value": 2}),
        ({"num_clients": 2, "requests_per_s": 1.0}, {"options": ["num_clients", "requests_per_s"]}),
        ({"num_clients": 2, "stack": "nxd-inference"}, {"option": "num_clients", "value": 2}),
    ],
)
def test_bad_loads_are_refused(options, details):
    with raises(ConfigError, **details):
        estimate(LLAMA, **SHAPE, **options)


def test_a_model_without_answers_has_no_clients():
    bert = AutoConfig.for_model("bert", num_hidden_layers=1, hidden_size=64, num_attention_heads=2)
    bert.architectures = ["BertModel"]
    with raises(ConfigError, options=["num_clients"]):
        estimate(bert, sequence_length=32, num_clients=2)


def test_command(cli, checkpoint):
    command = ("neuron", "estimate", str(checkpoint), "--instance", "inf2.xlarge", "--sequence_length", "64")
    process = cli(*command, "--num_clients", "3")
    assert process.code == 0 and "3 clients" in process.stdout and "mean time to first token" in process.stdout
