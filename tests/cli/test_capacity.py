"""`optimum-cli neuron serve --simulate`: a plan, a sweep, and the errors of their options."""

from __future__ import annotations

import pytest

from tests.tiny import save_tiny, save_tokenizer

POISSON = ("--simulate", "poisson:50", "--input_length", "24", "--output_length", "8", "--num_prompts", "40")
SIZES = ("--instance_type", "inf2.xlarge", "--batch_size", "2", "--prefill_chunk_size", "32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    return save_tokenizer(save_tiny(tmp_path_factory.mktemp("capacity") / "llama", "llama", **small))


def test_a_plan_of_random_arrivals(cli, folder):
    result = cli("neuron", "serve", str(folder), *POISSON, *SIZES, "--slo", "ttft=500,tpot=50", "--json")
    assert result.code == 0
    data = result.json
    assert data["simulated"] and data["completed"] == 40 and data["slo_attainment"] == 1.0
    assert data["instance"]["value"] == "inf2.xlarge" and data["configuration"]["batch_size"] == 2


def test_a_sweep_prints_what_was_tried_and_the_next_command(cli, folder):
    words = (*POISSON, *SIZES, "--tensor_parallel_size", "1", "--slo", "ttft=500", "--sweep")
    result = cli("neuron", "serve", str(folder), *words)
    assert result.code == 0
    assert "simulated" in result.stdout and "inf2.xlarge, 1 core, batch 2, chunks 32" in result.stdout
    assert "--batch_size 2" in result.stderr and "--prefill_chunk_size 32" in result.stderr


def test_texts_of_a_trace_are_counted_with_the_tokenizer(cli, folder, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"prompt": "abcd", "output_tokens": 3}\n{"prompt": "ab", "output_tokens": 5}\n')
    result = cli("neuron", "serve", str(folder), "--simulate", str(trace), *SIZES, "--request_rate", "5", "--json")
    assert result.code == 0
    assert result.json["total_input_tokens"] == 6 and result.json["total_output_tokens"] == 8


@pytest.mark.parametrize(
    "words",
    [
        ("--slo", "ttft=5"),
        ("--simulate", "poisson:5"),
        ("--simulate", "poisson:", "--input_length", "4", "--output_length", "4"),
        (*POISSON, "--sweep"),
        (*POISSON, "--port", "8001"),
        (*POISSON, "--slo", "ttft=5", "--sweep", "--num_replicas", "2"),
        ("--simulate", "missing.jsonl"),
        ("--simulate", "missing.jsonl", "--input_length", "4"),
    ],
)
def test_options_that_make_no_sense_together(cli, folder, words):
    result = cli("neuron", "serve", str(folder), *words, "--json")
    assert result.code == 1 and result.json["error"]["type"] == "ConfigError"
