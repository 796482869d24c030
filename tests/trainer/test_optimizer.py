"""Float32 master weights and gradients for 16-bit parameters; nothing changes for float32."""

from __future__ import annotations

import copy

import pytest
import torch

from optimum_neuron.trainer.optimizer import accumulate_in_float32, keep_master_weights, round_gradients
from tests.trainer.conftest import losses

DEVICES = ["cpu", "neuron"]


def weight(device, dtype=torch.bfloat16):
    return torch.nn.Parameter(torch.ones(8, dtype=dtype, device=device))


@pytest.mark.parametrize("device", DEVICES)
def test_updates_below_precision_accumulate(device):
    results = {}
    for masters in (False, True):
        parameter = weight(device)
        optimizer = torch.optim.SGD([parameter], lr=1e-4)
        if masters:
            keep_master_weights(optimizer)
        for _ in range(200):
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        results[masters] = parameter[0].item()
    assert results[False] == 1.0 and results[True] == pytest.approx(0.98, abs=2**-8)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adafactor, torch.optim.RMSprop])
@pytest.mark.parametrize("device", DEVICES)
def test_masters_match_float32_parameters(kind, device):
    narrow, wide = weight(device), weight(device, torch.float32)
    optimizer, reference = kind([narrow], lr=1e-3), kind([wide], lr=1e-3)
    kept = keep_master_weights(optimizer)
    for step in range(5):
        gradient = torch.linspace(0.1, 1, 8, device=device) * (step + 1)
        narrow.grad_dtype = torch.float32
        narrow.grad, wide.grad = gradient.clone(), gradient.clone()
        optimizer.step()
        reference.step()
    (master,) = kept._masters.values()
    assert torch.equal(master, wide) and torch.equal(narrow, wide.to(torch.bfloat16))
    assert all(value.dtype == torch.float32 for value in optimizer.state[master].values() if value.ndim)
    assert narrow.grad.dtype == torch.float32 and kept.size_bytes == 32


def test_states_are_restored_in_float32():
    first, second = weight("cpu"), weight("cpu")
    saved, loaded_model = torch.optim.AdamW([first], lr=1e-3), torch.optim.AdamW([second], lr=1e-3)
    actual, expected = keep_master_weights(saved), keep_master_weights(loaded_model)
    for _ in range(3):
        first.grad = torch.ones_like(first)
        saved.step()
    second.data.copy_(first.data)
    loaded_model.load_state_dict(saved.state_dict())
    assert torch.equal(*(next(iter(kept._masters.values())) for kept in (actual, expected)))
    for optimizer, parameter in ((saved, first), (loaded_model, second)):
        parameter.grad = torch.full_like(parameter, 0.3)
        optimizer.step()
    assert torch.equal(first, second) and second.dtype == torch.bfloat16
    assert {state["exp_avg"].dtype for state in loaded_model.state.values()} == {torch.float32}


def test_externally_written_weights_are_adopted():
    parameter = weight("cpu")
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    keep_master_weights(optimizer)
    with torch.no_grad():
        parameter.fill_(8)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert parameter[0] == 7.5


def test_used_optimizer_continues():
    parameter = weight("cpu")
    optimizer = torch.optim.AdamW([parameter], lr=1e-3)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    keep_master_weights(optimizer)
    optimizer.step()
    ((master, state),) = optimizer.state.items()
    assert state["step"] == 2 and state["exp_avg"].dtype == torch.float32 and torch.equal(parameter, master.bfloat16())


def test_float32_has_no_masters():
    optimizer = torch.optim.SGD([weight("cpu", torch.float32)], lr=0.1)
    assert keep_master_weights(optimizer) is None and not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("device", DEVICES)
def test_small_gradients_accumulate(device):
    results = {}
    for wide in (False, True):
        parameter = weight(device)
        if wide:
            accumulate_in_float32([parameter])
        for scale in [1.0] + [1e-3] * 100:
            (parameter * scale).sum().backward()
        results[wide] = parameter.grad[0].item()
    assert results[False] == 1.0 and results[True] == pytest.approx(1.1, abs=1e-3)


def test_without_masters_gradients_are_rounded_for_optimizer():
    parameter = weight("neuron")
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    accumulate_in_float32([parameter])
    round_gradients(optimizer)
    for _ in range(2):
        (parameter * 2).sum().backward()
        assert parameter.grad.dtype == torch.float32
        optimizer.step()
        optimizer.zero_grad()
    assert parameter[0] < 1 and optimizer.state[parameter]["exp_avg"].dtype == torch.bfloat16


def test_16_bit_model_learns_like_float32(train, llama, sentences):
    narrow = copy.deepcopy(llama).bfloat16()
    wide = train(llama, sentences, learning_rate=1e-4, max_steps=8)
    with_masters = train(narrow, sentences, learning_rate=1e-4, max_steps=8)
    without = train(narrow, sentences, learning_rate=1e-4, max_steps=8, optimizer_use_master_weights=False)
    kept, lost = (abs(losses(trainer)[-1] - losses(wide)[-1]) for trainer in (with_masters, without))
    assert kept < 0.02 and kept < lost
    assert {parameter.dtype for parameter in with_masters.model.parameters()} == {torch.bfloat16}
