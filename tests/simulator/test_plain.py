"""Counts as plain data: every field comes back, and a changed type is an error."""

from __future__ import annotations

import json

import pytest
from transformers import AutoConfig

from optimum_neuron.files.plain_json import from_plain, to_plain
from optimum_neuron.simulator.work import (
    Attention,
    DecoderSizes,
    GraphWork,
    Kernels,
    Layout,
    Step,
    Work,
    decoder_sizes,
    prefill_work,
)
from optimum_neuron.simulator.work.record import Matmul

MIXTURE = AutoConfig.for_model(
    "mixtral", hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=100
)


def sent(value):
    return json.loads(json.dumps(to_plain(value)))


def test_sizes_come_back_with_equal_work():
    sizes = decoder_sizes(MIXTURE)
    again = from_plain(DecoderSizes, sent(sizes))
    assert again == sizes and again.kind == "mixture"
    layout = Layout(num_cores=2, weight_bytes=2.0, cache_bytes=2, replicate_kv_heads=True)
    works = [prefill_work(each, layout, batch_size=1, tokens=8) for each in (sizes, again)]
    assert works[0].total == works[1].total and works[0].total.flops > 0


def test_steps_come_back_whole():
    work = GraphWork(
        name="graph",
        unknown=("aten.nonzero",),
        steps=(
            Step(
                name="linear",
                work=Work(flops=2, tensor_cycles=1.5),
                matmul=Matmul(rows=1, inner=2, columns=3, element_bytes=0.5),
            ),
            Step(
                name="sdpa",
                work=Work(kernels=Kernels((("scan", 2),))),
                attends=Attention(num_rows=1, num_heads=2, queries=3, keys=4),
            ),
        ),
    )
    assert from_plain(GraphWork, sent(work)) == work


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": "64"},
        {"hidden": 64.5},
        {"layers": None},
        {"layers": [{"count": 1}]},
        {"tied": 1},
        {"unknown_field": 1},
    ],
)
def test_other_types_and_fields_are_errors(change):
    with pytest.raises(ValueError):
        from_plain(DecoderSizes, sent(decoder_sizes(MIXTURE)) | change)


def test_missing_field_is_an_error():
    data = sent(decoder_sizes(MIXTURE))
    del data["vocab"]
    with pytest.raises(ValueError):
        from_plain(DecoderSizes, data)
