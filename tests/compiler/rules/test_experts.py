"""Products of mixture-of-experts layers."""

import torch

from optimum_neuron.core import Verdict


def test_grouped_matmul_is_native(ruling):
    def run(x, w, ends):
        return torch._grouped_mm(x, w, offs=ends)

    tokens, experts = torch.zeros(16, 16, dtype=torch.bfloat16), torch.zeros(2, 16, 16, dtype=torch.bfloat16)
    found = ruling("aten._grouped_mm", run, tokens, experts, torch.tensor([8, 16], dtype=torch.int32))
    assert found.verdict is Verdict.NATIVE


def test_counting_into_bins_is_refused_and_one_hot_is_not(ruling, check):
    found = ruling("aten.histc", lambda x: torch.histc(x, 4, 0, 3), torch.zeros(8))
    assert found.code == "NCC_EUOC002"
    assert "one_hot" in found.remedy
    ids = torch.zeros(8, dtype=torch.int64)
    assert not check(lambda x: torch.nn.functional.one_hot(x, 4).sum(0), ids).refused
