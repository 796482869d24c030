"""Random numbers are native, sampling by weight is for the host."""

import torch
from torch.nn import functional as F

from optimum_neuron.core import Verdict


def test_uniform_numbers_are_native(ruling):
    assert ruling("aten.rand_like", torch.rand_like, torch.randn(4)).reason == "maps to RngUniform"


def test_dropout_does_nothing_outside_training(ruling):
    assert ruling("aten.dropout", lambda x: F.dropout(x, 0.5, training=False), torch.randn(4)).reason == "does no work"
    active = ruling("aten.dropout", lambda x: F.dropout(x, 0.5, training=True), torch.randn(4))
    assert active.verdict is Verdict.DECOMPOSED


def test_sampling_by_weight_is_refused(ruling):
    found = ruling("aten.multinomial", lambda x: torch.multinomial(x, 1), torch.ones(4))
    assert found.code == "NCC_EUOC002"
    assert "host" in found.remedy
