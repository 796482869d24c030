"""A check of the largest buckets alone refuses what the check of every graph refuses, and needs the same memory."""

from __future__ import annotations

import pytest

from optimum_neuron import check_model
from tests.tiny import SHAPES, tiny_config

EVERY = {name: value for name, value in SHAPES.items() if name != "optlevel"}
LARGEST = {**EVERY, "prefill_buckets": (48,), "decode_buckets": (48,)}


@pytest.mark.parametrize("model_type", ["llama", "mistral", "phi"])
def test_the_largest_buckets_show_every_operator_that_computes(model_type, tmp_path):
    tiny_config(model_type, architectures=["TinyForCausalLM"]).save_pretrained(tmp_path)
    every, largest = (check_model(tmp_path, task="text-generation", **options) for options in (EVERY, LARGEST))
    assert len(largest.graphs) < len(every.graphs)
    assert (largest.tier, largest.reasons) == (every.tier, every.reasons)
    assert largest.memory.to_dict() == every.memory.to_dict()
    judged, judged_by_all = (
        {(row.calls.op, row.calls.verdict) for row in report.operators if row.counted != "none"}
        for report in (largest, every)
    )
    assert judged == judged_by_all
