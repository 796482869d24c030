"""Attention is two products around a softmax."""

import torch
from torch.nn import functional as F

from optimum_neuron.compiler.rules.report import check_graph
from optimum_neuron.core import Verdict
from optimum_neuron.hardware import resolve_target


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads(dtype):
    return [torch.zeros(1, 2, 4, 8, dtype=dtype) for _ in range(3)]


def test_attention_is_decomposed(ruling):
    found = ruling("aten.scaled_dot_product_attention", attend, *heads(torch.bfloat16))
    assert found.verdict is Verdict.DECOMPOSED
    assert "AwsNeuronSoftmax" in found.reason


def test_attention_as_torch_decomposes_it_is_accepted(export):
    exported = export(attend, *heads(torch.float32)).run_decompositions()
    report = check_graph(exported, resolve_target("trn2", environ={}).value)
    assert not report.refused
    assert "aten._softmax.default" in {r.op for r in report.rulings}


def test_attention_in_float64_is_refused(ruling):
    assert ruling("aten.scaled_dot_product_attention", attend, *heads(torch.float64)).code == "NCC_ESPP004"
