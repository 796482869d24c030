"""Gradients and optimizers that do not fit the HBM of a core are an error before the first step."""

from __future__ import annotations

import copy
import gc

import pytest
import torch

from optimum_neuron.device import placement
from optimum_neuron.errors import DeviceMemoryError
from optimum_neuron.trainer.memory import training_memory

PARAMETERS = [torch.nn.Parameter(torch.zeros(1000)), torch.nn.Parameter(torch.zeros(100, dtype=torch.bfloat16))]
PARAMETERS += [torch.nn.Parameter(torch.zeros(8), requires_grad=False)]  # needs nothing


@pytest.mark.parametrize(
    ("options", "gradients", "states", "masters"),
    [
        (dict(optimizer="AdamW", master_weights=True, float32_gradients=True), 4400, 8800, 400),
        (dict(optimizer="AdamW", master_weights=False, float32_gradients=False), 4200, 8400, 0),
        (dict(optimizer="SGD", master_weights=False, float32_gradients=True), 4400, 0, 0),
        (dict(optimizer="SGD", momentum=0.9, master_weights=False, float32_gradients=True), 4400, 4200, 0),
        (dict(optimizer="Unknown", master_weights=True, float32_gradients=True), 4400, 0, 400),
    ],
)
def test_memory_estimate(options, gradients, states, masters):
    need = training_memory(PARAMETERS, **options)
    assert (need.gradients, need.optimizer_states, need.master_weights) == (gradients, states, masters)


def test_estimate_matches_device(make, llama, sentences):
    trainer = make(llama, sentences, max_steps=1)
    gc.collect()  # tensors of other tests are not freed in between
    before = torch.neuron.memory_allocated()
    trainer.args.max_grad_norm = 0.0
    trainer.train()
    need = training_memory(trainer.model.parameters(), optimizer="AdamW", master_weights=True, float32_gradients=True)
    states = torch.neuron.memory_allocated() - before  # gradients are gone after a step
    # Step counts of AdamW are tensors too; logged numbers and the like come on top.
    assert need.optimizer_states <= states < need.optimizer_states + 64 * len(list(trainer.model.parameters())) + 8192


@pytest.mark.full(days=2)
@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "bfloat16"])
def test_too_large_optimizer(make, llama, sentences, narrow):
    model = copy.deepcopy(llama).to(torch.bfloat16 if narrow else torch.float32)
    trainer = make(model, sentences)
    gc.collect()  # memory of other tests on the core
    core = placement.claim(0)
    num_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    hog = core.charge("weights", core.available_bytes - 6 * num_parameters, "hog")
    try:
        with pytest.raises(DeviceMemoryError) as error:
            trainer.train()
    finally:
        hog.release()
    details = error.value.details
    assert "hog" in error.value.message and "simulated" in error.value.message and details["simulated"]
    assert (details["num_parameters"], details["optimizer"]) == (num_parameters, "AdamW")
    assert ("optim='sgd'" in details["choices"]) is not narrow and "peft_config" in details["choices"]
    assert details["needed_bytes"]["optimizer_states"] == 8 * num_parameters
    trainer.train()


def test_adapters_fit_where_full_model_does_not(make, llama, sentences):
    peft = pytest.importorskip("peft")
    trainer = make(llama, sentences, peft_config=peft.LoraConfig(r=2, task_type="CAUSAL_LM"))
    core = placement.claim(0)
    hog = core.charge("weights", core.available_bytes - 2**20, "hog")
    try:
        trainer.train()
    finally:
        hog.release()
