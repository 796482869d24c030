"""Grouping of rulings."""

from optimum_neuron.compiler.rules.counts import count_rulings
from optimum_neuron.core import Ruling, Verdict


def ruling(op, verdict, path, reason="because"):
    return Ruling(
        verdict=verdict, op=op, rule="rule", reason=reason, source="page", module_path=path, source_line="model.py:3"
    )


def test_refusals_come_first_in_order_and_the_rest_by_frequency():
    counts = count_rulings(
        [
            ruling("aten.mul", Verdict.NATIVE, "a"),
            ruling("aten.add", Verdict.NATIVE, "a"),
            ruling("aten.add", Verdict.NATIVE, "b"),
            ruling("aten.sort", Verdict.UNSUPPORTED, "a"),
            ruling("aten.fft", Verdict.UNSUPPORTED, "a"),
            ruling("aten.fft", Verdict.UNSUPPORTED, "b"),
            ruling("aten.topk", Verdict.HOST, "a"),
        ]
    )
    assert [(c.op, c.count) for c in counts] == [
        ("aten.sort", 1),
        ("aten.fft", 2),
        ("aten.topk", 1),
        ("aten.add", 2),
        ("aten.mul", 1),
    ]


def test_calls_refused_for_different_reasons_stay_apart():
    counts = count_rulings(
        [ruling("aten.mm", Verdict.UNSUPPORTED, "a", "int32"), ruling("aten.mm", Verdict.UNSUPPORTED, "b", "int64")]
    )
    assert [c.reason for c in counts] == ["int32", "int64"]


def test_places_are_named_once():
    (count,) = count_rulings([ruling("aten.mm", Verdict.NATIVE, f"layers.{i}.mlp") for i in range(4)])
    assert count.where() == "layers.0-3.mlp (model.py:3)"
    (top,) = count_rulings([ruling("aten.mm", Verdict.NATIVE, "")])
    assert top.where() == "top level (model.py:3)"
