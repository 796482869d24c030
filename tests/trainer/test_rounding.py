"""Stochastic rounding while a model trains: unbiased, the same for the same seed, gone afterwards."""

from __future__ import annotations

import copy

import pytest
import torch

from optimum_neuron.device import numerics
from optimum_neuron.errors import ConfigError
from tests.raising import raises
from tests.trainer.conftest import losses


def drift(train, seed, *, stochastic):
    """Weights after steps that rounding to the nearest loses: SGD by a tenth of the distance of two numbers."""

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4096, dtype=torch.bfloat16))

        def forward(self, x, labels=None):
            return {"loss": self.weight.sum() * x.mean()}

    trainer = train(
        Line(),
        [{"x": torch.ones(1, dtype=torch.bfloat16), "labels": torch.zeros(1)}] * 4,
        max_steps=20,
        per_device_train_batch_size=1,
        optim="sgd",
        learning_rate=2**-7 / 10,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        seed=seed,
        stochastic_rounding_enabled=stochastic,
        optimizer_use_master_weights=False,
    )
    return 1 - trainer.model.weight.float().cpu()


def test_updates_survive_on_average(train):
    nearest, up_or_down = (drift(train, 0, stochastic=stochastic) for stochastic in (False, True))
    assert torch.equal(nearest, torch.zeros(4096))
    # Below 1 bfloat16 numbers are 2^-8 apart, so a step of 2^-7 / 10 is a fifth of that; 20 of them are 4 distances.
    expected = 20 * 2**-7 / 10
    error = up_or_down.std() / 4096**0.5
    assert abs(up_or_down.mean() - expected) < 4 * error and up_or_down.std() > 0


def test_seed_decides(train):
    first, same, other = (drift(train, seed, stochastic=True) for seed in (1, 1, 2))
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_rounding_ends_with_training(train, llama, sentences):
    before = numerics.current()
    narrow = copy.deepcopy(llama).bfloat16()
    plain, rounded = (train(narrow, sentences, stochastic_rounding_enabled=on) for on in (False, True))
    assert losses(plain) != losses(rounded) and losses(plain) == pytest.approx(losses(rounded), abs=0.05)
    assert numerics.current() == before


def test_rounding_ends_after_a_failing_step(train, llama, sentences):
    def fail(outputs, labels, num_items_in_batch=None):
        assert numerics.current().stochastic_rounding
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        train(copy.deepcopy(llama).bfloat16(), sentences, stochastic_rounding_enabled=True, compute_loss_func=fail)
    assert not numerics.current().stochastic_rounding


def test_float32_model_is_not_rounded(make, llama, sentences):
    with raises(ConfigError, option="stochastic_rounding_enabled"):
        make(llama, sentences, stochastic_rounding_enabled=True)
    make(llama, sentences, stochastic_rounding_enabled=True, bf16=True)
