"""Counts of a configuration on disk: a second process answers the same, without torch and transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import BertConfig, LlamaConfig

import optimum_neuron
from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import compare, estimate, known

LLAMA = LlamaConfig(
    num_hidden_layers=2,
    hidden_size=128,
    intermediate_size=256,
    num_attention_heads=4,
    vocab_size=512,
    architectures=["LlamaForCausalLM"],
)
BERT = BertConfig(
    num_hidden_layers=1,
    hidden_size=64,
    intermediate_size=128,
    num_attention_heads=2,
    vocab_size=256,
    architectures=["BertForSequenceClassification"],
)
SCRIPT = """
import json, sys
from optimum_neuron.simulator import estimate

data = estimate(sys.argv[1], instance="inf2.8xlarge", batch_size=2, sequence_length=64).to_dict()
print(json.dumps({"estimate": data, "imported": [name for name in ("torch", "transformers") if name in sys.modules]}))
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path):
    LLAMA.save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def ask(folder, **options):
    return estimate(folder, **{"instance": "inf2.8xlarge", "sequence_length": 64} | options)


@pytest.mark.full(days=4)
@pytest.mark.parametrize("config", [LLAMA, BERT], ids=["decoder", "encoder"])
def test_second_process_answers_the_same_without_torch(config, tmp_path):
    config.save_pretrained(tmp_path / "model")
    cold, warm = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", SCRIPT, tmp_path / "model"], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(2)
    )
    assert cold["imported"] == ["torch", "transformers"] and warm["imported"] == []
    origins = [one["estimate"].pop("counts") for one in (cold, warm)]
    assert [origin["value"] for origin in origins] == ["counted", "cached"]
    assert str(tmp_path / "home") in origins[0]["reason"] and str(tmp_path / "home") in origins[1]["reason"]
    assert warm["estimate"] == cold["estimate"]


def test_cached_estimate_executes_few_files(folder):
    ask(folder), ask(folder)
    executed = set()
    sys.setprofile(lambda frame, event, value: executed.add(frame.f_code.co_filename))
    try:
        ask(folder)
    finally:
        sys.setprofile(None)
    root = Path(optimum_neuron.__file__).parent
    assert 10 < len([name for name in executed if root in Path(name).parents]) <= 25


def test_sizes_serve_every_request_of_a_decoder(folder):
    assert ask(folder).counts.value == "counted"
    for options in ({"batch_size": 4}, {"instance": "trn1.32xlarge"}, {"tensor_parallel_size": 2}, {"dtype": "fp32"}):
        warm = ask(folder, **options)
        in_memory = estimate(LLAMA, **{"instance": "inf2.8xlarge", "sequence_length": 64} | options)
        assert warm.counts.value == "cached" and in_memory.counts is None
        assert {"model": 0, "counts": 0} | warm.to_dict() | {"model": 0, "counts": 0} == (
            in_memory.to_dict() | {"model": 0, "counts": 0}
        )


def test_graph_serves_its_own_shapes_and_flags_only(tmp_path, monkeypatch):
    BERT.save_pretrained(tmp_path / "bert")
    origins = [
        ask(tmp_path / "bert", **options).counts.value
        for options in ({}, {"data_parallel_size": 1}, {"batches_in_flight": 2}, {"batch_size": 2}, {"dtype": "bf16"})
    ]
    assert origins == ["counted", "cached", "cached", "counted", "counted"]
    monkeypatch.setenv("NEURON_CC_FLAGS", "--optlevel=1")
    assert ask(tmp_path / "bert").counts.value == "counted"


def test_changed_configuration_and_changed_source_are_counted_again(folder, monkeypatch):
    before = ask(folder)
    LlamaConfig(**LLAMA.to_dict() | {"num_hidden_layers": 3}).save_pretrained(folder)
    changed = ask(folder)
    assert changed.counts.value == "counted" and changed.tpot_ms.value > before.tpot_ms.value
    assert ask(folder).counts.value == "cached"
    monkeypatch.setattr(known, "_versions", lambda: {"source": "other"})
    assert ask(folder).counts.value == "counted"


def test_damaged_counts_are_counted_again(folder, home):
    first = ask(folder)
    (path,) = (home / "counts").glob("*.json")
    path.write_text(path.read_text().replace('"hidden": 128', '"hidden": "128"'))
    again = ask(folder)
    assert again.counts.value == "counted" and "cannot be read" in again.counts.reason
    assert again.tpot_ms == first.tpot_ms and ask(folder).counts.value == "cached"


def test_counts_that_are_not_kept_say_why(folder, home, monkeypatch):
    assert "trust_remote_code" in ask(folder, trust_remote_code=True).counts.reason
    monkeypatch.setenv("NEURON_CC_FLAGS", "--no_cache")
    assert "--no_cache" in ask(folder).counts.reason
    assert not (home / "counts").exists()


def test_mistakes_are_errors_with_cached_counts_too(folder):
    ask(folder)
    for options in ({"prefix_hit_rate": 0.5}, {"batches_in_flight": 2}, {"height": 64}, {"stack": "no-such"}):
        with pytest.raises(ConfigError):
            ask(folder, **options)


def test_comparison_counts_once(folder, home):
    ranking = compare(folder, instance="inf2", sequence_length=64)
    assert len(ranking.ranked) > 1 == len(list((home / "counts").iterdir()))
    assert {one.counts.value for one in ranking.ranked} == {"cached"}  # the first is counted, and estimated once more
