"""Models without weights."""

from __future__ import annotations

import torch
from transformers import CvtConfig, CvtForImageClassification

from optimum_neuron.models import without_weights


def test_constructors_leave_random_numbers_of_the_user_alone():
    config = CvtConfig(embed_dim=[8, 8, 8], num_heads=[1, 1, 1], depth=[1, 2, 3])
    state = torch.get_rng_state()
    with without_weights():
        model = CvtForImageClassification(config)  # its stages draw class tokens
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
