"""The device "xla": values are the CPU's, cores and HBM are those of "neuron"."""

from __future__ import annotations

import copy
import io

import pytest
import torch

from optimum_neuron.device import library


def test_factories_make_tensors_of_the_device():
    for tensor in (torch.zeros(2, 3, device="xla"), torch.arange(6.0).to("xla"), torch.ones(1, device="xla:0")):
        assert tensor.is_xla and str(tensor.device) == "xla:0"


def test_values_are_those_of_the_cpu():
    torch.manual_seed(0)
    x, w = torch.randn(8, 16), torch.randn(4, 16)
    on_device = torch.nn.functional.linear(x.to("xla"), w.to("xla")).softmax(-1)
    assert torch.equal(on_device.cpu(), torch.nn.functional.linear(x, w).softmax(-1))


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_training_gives_the_bits_of_the_cpu(optimizer):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.LayerNorm(12), torch.nn.GELU(), torch.nn.Linear(12, 3))
    data, target = torch.randn(3, 5, 6), torch.randint(0, 3, (3, 5))

    def trained(device: str) -> list[torch.Tensor]:
        network = copy.deepcopy(model).to(device)
        stepper = optimizer(network.parameters(), lr=0.1)
        for x, y in zip(data, target, strict=True):
            stepper.zero_grad()
            torch.nn.functional.cross_entropy(network(x.to(device)), y.to(device)).backward()
            stepper.step()
        return [parameter.detach().cpu() for parameter in network.parameters()]

    for ours, reference in zip(trained("xla"), trained("cpu"), strict=True):
        assert torch.equal(ours, reference)


@pytest.mark.parametrize(
    ("is_causal", "masked"), [(False, None), (True, None), (False, torch.bool), (False, torch.float32)]
)
def test_attention_gives_the_bits_of_the_cpu(is_causal, masked):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 9, 8) for _ in range(3))
    mask = None if masked is None else torch.randn(2, 1, 9, 9).to(masked)

    def attended(device: str) -> list[torch.Tensor]:
        tensors = [tensor.to(device).requires_grad_() for tensor in (query, key, value)]
        on_device = None if mask is None else mask.to(device)
        result = torch.nn.functional.scaled_dot_product_attention(*tensors, on_device, is_causal=is_causal)
        result.square().sum().backward()
        return [result.detach().cpu(), *(tensor.grad.cpu() for tensor in tensors)]

    for ours, reference in zip(attended("xla"), attended("cpu"), strict=True):
        assert torch.equal(ours, reference)


def test_devices_of_two_kinds_do_not_mix():
    with pytest.raises(RuntimeError, match="xla:0"):
        torch.ones(2, device="xla") + torch.ones(2)
    with pytest.raises(RuntimeError):
        torch.ones(2, device="xla") + torch.ones(2, device="neuron")


def test_tensors_move_between_the_devices():
    there = torch.arange(3.0, device="xla").to("neuron")
    assert there.device.type == "neuron" and torch.equal(there.to("xla").cpu(), torch.arange(3.0))


def test_both_devices_charge_one_ledger():
    functions = library.load()
    before = functions.neuron_used_bytes(0)
    held = torch.ones(1 << 20, device="xla"), torch.ones(1 << 20, device="neuron:0")
    assert functions.neuron_used_bytes(0) == before + 2 * (4 << 20)
    del held
    assert functions.neuron_used_bytes(0) == before


def test_device_that_does_not_exist_is_refused():
    with pytest.raises(RuntimeError, match=r"xla:99: invalid device ordinal"):
        torch.ones(2, device="xla:99")


def test_generators_repeat():
    generator = torch.Generator("xla")
    first = torch.randn(4, generator=generator.manual_seed(3), device="xla").cpu()
    assert torch.equal(first, torch.randn(4, generator=generator.manual_seed(3), device="xla").cpu())
    assert torch.equal(first, torch.randn(4, generator=torch.Generator().manual_seed(3)))
    torch.xla.manual_seed(7)
    state = torch.xla.get_rng_state()
    drawn = torch.rand(3, device="xla").cpu()
    torch.xla.set_rng_state(state)
    assert torch.equal(drawn, torch.rand(3, device="xla").cpu())


def test_autocast_begins_with_bfloat16():
    x = torch.ones(2, 2, device="xla")
    with torch.autocast("xla"):
        assert (x @ x).dtype == torch.bfloat16 and x.exp().dtype == torch.float32


def test_saved_tensors_load_on_the_device_and_on_the_host():
    file = io.BytesIO()
    torch.save({"w": torch.arange(4.0, device="xla"), "h": torch.ones(2, dtype=torch.bfloat16, device="xla")}, file)
    for location, kind in ((None, "xla"), ("cpu", "cpu")):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded["w"].device.type == kind and loaded["h"].dtype == torch.bfloat16
        assert torch.equal(loaded["w"].cpu(), torch.arange(4.0))


@pytest.mark.full(days=2)
def test_process_of_torchrun_has_the_core_of_its_rank(new_python):
    program = (
        "import torch; from optimum_neuron import xla; from optimum_neuron.device import placement\n"
        "xla.enable(); x = torch.ones(2, device='xla'); print(x.device, placement.claimed())"
    )
    done = new_python(program, LOCAL_RANK="3", RANK="3", WORLD_SIZE="4")
    assert done.stdout == "xla:0 (3,)\n", done.stderr
