"""Recurrent layers of a fixed length are accepted."""

import pytest
import torch
from torch import nn

from optimum_neuron.core import Verdict


@pytest.mark.parametrize(("op", "layer"), [("aten.lstm", nn.LSTM), ("aten.gru", nn.GRU), ("aten.rnn_tanh", nn.RNN)])
def test_accepted(ruling, op, layer):
    assert ruling(op, layer(4, 4, batch_first=True), torch.randn(1, 3, 4)).verdict is Verdict.DECOMPOSED


def test_float64_is_refused(ruling):
    layer = nn.GRU(4, 4, dtype=torch.float64)
    assert ruling("aten.gru", layer, torch.randn(3, 1, 4, dtype=torch.float64)).code == "NCC_ESPP004"
