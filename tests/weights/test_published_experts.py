"""Experts of checkpoints that have a matrix for each, under transformers' names of weights of three dimensions."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import WeightsError
from optimum_neuron.weights import Layout, PublishedExperts, PublishedSource, QuantizedSource, Scheme, StateDict

NUM_EXPERTS = 11
"""Beyond ten, names in the order of text are no longer in the order of numbers."""


def experts():
    """Mixtral's matrices: w1 is the gate, w3 goes beside it, and w2 back."""
    prefix = "model.layers.0.block_sparse_moe"
    shapes = {"w3": (64, 32), "w2": (32, 64), "w1": (64, 32)}
    every = {(number, name): torch.randn(shapes[name]) for number in range(NUM_EXPERTS) for name in shapes}
    tensors = {f"{prefix}.experts.{number}.{name}.weight": one for (number, name), one in every.items()}
    tensors[f"{prefix}.gate.weight"] = torch.randn(NUM_EXPERTS, 32)
    return prefix, every, tensors


def test_plain_experts_are_stacked_by_their_numbers():
    prefix, every, tensors = experts()
    source = PublishedExperts(StateDict(tensors=tensors, origin="memory"))
    name = "model.layers.0.mlp.experts"
    both = torch.stack([torch.cat([every[number, "w1"], every[number, "w3"]]) for number in range(NUM_EXPERTS)])
    down = torch.stack([every[number, "w2"] for number in range(NUM_EXPERTS)])
    assert torch.equal(source.join([f"{name}.gate_up_proj"])[0], both)
    assert torch.equal(source.join([f"{name}.down_proj"])[0], down)
    assert source.specs[f"{name}.gate_up_proj"].shape == both.shape
    assert source.specs[f"{name}.down_proj"].shape == down.shape
    assert torch.equal(source.join(["model.layers.0.mlp.gate.weight"])[0], tensors[f"{prefix}.gate.weight"])
    assert source.weights == [f"{name}.gate_up_proj", f"{name}.down_proj"]
    assert all(
        source.is_plain(weight) and source.parts(weight, Scheme.parse("int8")) is None for weight in source.weights
    )


def test_stored_numbers_of_experts_are_stacked_and_others_rounded():
    prefix, every, tensors = experts()
    stored = {}
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        if ".experts." in name:
            stored |= {
                name: (tensor * 20).round().to(torch.int8),
                f"{module}.weight_scale": torch.full((len(tensor), 1), 0.5),
            }
        else:
            stored[name] = tensor
    published = PublishedSource(
        StateDict(tensors=stored, origin="memory"), Layout(method="compressed-tensors", block=(1, 0))
    )
    source, name = PublishedExperts(published), "model.layers.0.mlp.experts.gate_up_proj"
    parts = source.parts(name, Scheme.parse("int8"))
    numbers = [
        stored[f"{prefix}.experts.{number}.{one}.weight"] for number in range(NUM_EXPERTS) for one in ("w1", "w3")
    ]
    assert torch.equal(parts["values"].flatten(0, 1), torch.cat(numbers)) and bool((parts["scale"] == 0.5).all())
    assert not source.is_plain(name) and source.parts(name, Scheme.parse("fp8")) is None
    assert source.parts("model.layers.0.mlp.gate.weight", Scheme.parse("int8")) is None
    assert torch.equal(source.join([name])[0], 0.5 * parts["values"].float())


@pytest.mark.parametrize("order", ["", "-t"])
def test_layers_of_experts_are_rounded_one_by_one(order):
    weight = torch.randn(3, 64, 32)
    names = [f"experts:int8{order}", f"experts:int8{order}.scale"]
    source = QuantizedSource(StateDict(tensors={"experts": weight}, origin="memory"), names)
    values, scale = (source.join([name])[0] for name in names)
    rows = weight.transpose(1, 2) if order else weight
    torch.testing.assert_close(scale, rows.abs().amax(-1, keepdim=True) / 127)
    torch.testing.assert_close(values * scale, rows, atol=float(scale.max()) / 2 + 1e-6, rtol=0)
    assert [source.specs[name].shape for name in names] == [tuple(rows.shape), (*rows.shape[:2], 1)]


def test_blocks_of_another_dtype_are_named():
    tensors = {"experts.down_proj_blocks": torch.zeros(1, 2, 1, 16, dtype=torch.int8)}
    tensors["experts.down_proj_scales"] = torch.zeros(1, 2, 1, dtype=torch.uint8)
    with pytest.raises(WeightsError) as failure:
        PublishedExperts(StateDict(tensors=tensors, origin="memory"))
    assert len(failure.value.details["problems"]) == 1
