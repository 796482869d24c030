"""Traces are read from the public formats; wrong ones are errors that count all problems."""

from __future__ import annotations

import json

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import poisson_trace, read_trace
from optimum_neuron.simulator.capacity.trace import TraceRequest

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.6805900,396,109
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
7.5,ChatGPT,1087,230,1317,Conversation log
9,ChatGPT,417,0,417,Conversation log
"""
MOONCAKE = [
    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]},
    {"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47]},
]
SHAREGPT = [
    {"id": "a", "conversations": [{"from": "human", "value": "one two"}, {"from": "gpt", "value": "three"}]},
    {"prompt": "one two three", "output_tokens": 7},
]


LENGTHS = [{"input_length": 3, "output_length": 4}, {"input_length": 5, "output_length": 6}]


def lines(rows):
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("azure.csv", AZURE, [(0.0, 374, 44), (4.0, 396, 109)]),
        ("burst.csv", BURST, [(0.0, 472, 18), (2.5, 1087, 230)]),
        ("mooncake.jsonl", lines(MOONCAKE), [(0.0, 6955, 52), (3.053, 6472, 26)]),
        ("vidur.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n3,5,6\n1,7,8\n", [(0, 7, 8), (2, 5, 6)]),
        (
            "zones.jsonl",
            lines([{"timestamp": f"2026-03-01T0{9 - n}:00:00+0{2 - n}:00", **LENGTHS[n]} for n in (0, 1)]),
            [(0.0, 3, 4), (0.0, 5, 6)],
        ),
        ("one.jsonl", lines([{"arrival_time": 2.5, "prompt_len": 3, "max_tokens": 4}]), [(0.0, 3, 4)]),
    ],
)
def test_public_formats(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text)
    trace = read_trace(path)
    assert trace.has_arrivals
    found = [(one.arrival_s, one.num_prompt, one.num_answer) for one in trace.requests]
    assert found == [pytest.approx(one) for one in expected]


@pytest.mark.parametrize("dump", [json.dumps, lines])
def test_texts_are_counted_and_have_no_arrivals(tmp_path, dump):
    path = tmp_path / "sharegpt.json"
    path.write_text(dump(SHAREGPT))
    trace = read_trace(path, count_tokens=lambda text: len(text.split()))
    assert sorted((one.num_prompt, one.num_answer) for one in trace.requests) == [(2, 1), (3, 7)]
    assert not trace.has_arrivals
    assert trace.at_rate(5.0).has_arrivals and trace.at_rate(5.0) == trace.at_rate(5.0)


def test_empty_requests_are_left_out_and_noted(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text(BURST)
    assert len(read_trace(path).requests) == 2 and "1 request" in read_trace(path).notes[0]
    assert len(read_trace(path).first(1).requests) == 1


def test_problems_are_counted_together(tmp_path):
    path = tmp_path / "wrong.jsonl"
    path.write_text(lines([{"input_length": 3}, {"prompt": "text", "output_length": 2}, {"input_length": -1}]))
    with pytest.raises(ConfigError) as error:
        read_trace(path)
    assert error.value.details["num_problems"] == 3


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", "{", "[" * 5000),
        *(json.dumps({"timestamp": time, "input_length": 1, "output_length": 1}) for time in (True, [1], "inf")),
        '{"timestamp": 1, "input_length": 0, "output_length": 1}',
    ],
)
def test_unreadable_files(tmp_path, text):
    path = tmp_path / "wrong.jsonl"
    path.write_text(text)
    for wrong in (path, tmp_path / "missing.jsonl"):
        with pytest.raises(ConfigError) as error:
            read_trace(wrong)
        assert error.value.details["value"] == str(wrong)


def test_arrivals_are_given_for_all_or_none(tmp_path):
    path = tmp_path / "half.jsonl"
    path.write_text(lines([{**MOONCAKE[0]}, {"input_length": 1, "output_length": 1}]))
    with pytest.raises(ConfigError):
        read_trace(path)


def test_random_arrivals():
    trace = poisson_trace(4.0, num_requests=2000, num_prompt=3, num_answer=2)
    assert trace.requests[0] == TraceRequest(0.0, 3, 2) and 3.7 < trace.requests_per_s < 4.3
    for wrong in (0.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError):
            poisson_trace(wrong, num_requests=2, num_prompt=3, num_answer=2)
