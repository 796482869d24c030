"""A check of the smallest and the largest buckets judges, and counts memory, as one of every graph does."""

from __future__ import annotations

import pytest

from optimum_neuron import NeuronConfig, check_model
from optimum_neuron.checking.check import extremes
from tests.tiny import SHAPES, tiny_config

EVERY = {name: value for name, value in SHAPES.items() if name != "optlevel"} | {
    "prefill_buckets": (16, 24, 32, 48),
    "decode_buckets": (20, 32, 48),
}


@pytest.mark.full(days=4)
@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_smallest_and_largest_buckets_show_every_operator(model_type, tmp_path):
    tiny_config(model_type, architectures=["TinyForCausalLM"]).save_pretrained(tmp_path)
    every, ends = (
        check_model(tmp_path, task="text-generation", all_graphs=all_graphs, **EVERY) for all_graphs in (True, False)
    )
    assert (len(every.graphs), len(ends.graphs)) == (12, 7)
    assert every.buckets_between == {}
    assert ends.buckets_between == {"prefill_buckets": (24, 32), "decode_buckets": (32,)}
    assert set(ends.graphs) < set(every.graphs)
    assert (ends.config, ends.tier, ends.reasons) == (every.config, every.tier, every.reasons)
    assert ends.memory.to_dict() == every.memory.to_dict()
    ruling, judged_by_all = (
        {(row.calls.op, row.calls.verdict, row.calls.module_paths, row.counted) for row in report.operators}
        for report in (ends, every)
    )
    assert ruling == judged_by_all


def test_lists_of_other_options_keep_their_ends():
    config = NeuronConfig(batch_size=2, sequence_length=64, prefill_buckets=(8, 16, 32, 64), decode_buckets=(32, 64))
    ends, between = extremes(config)
    assert (ends.prefill_buckets, ends.decode_buckets) == ((8, 64), (32, 64))
    assert between == {"prefill_buckets": (16, 32)}
