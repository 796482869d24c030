"""Experts of checkpoints that have a matrix for each, under transformers' names of weights of three dimensions."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from optimum_neuron.errors import WeightsError
from optimum_neuron.weights import (
    Layout,
    PublishedExperts,
    PublishedSource,
    QuantizedSource,
    Recipe,
    Scheme,
    StateDict,
    dequantize,
    is_expert,
)

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
    assert source.join([f"{name}.down_proj"])[1] and [is_expert(one) for one in tensors] == [True] * 33 + [False]
    with mock.patch.object(StateDict, "drop_pages") as drop:
        source.drop_pages([f"{name}.down_proj", "model.layers.0.mlp.gate.weight", "other"])
    experts_of, *others = (call.args[0] for call in drop.call_args_list)
    assert experts_of == [f"{prefix}.experts.{number}.w2.weight" for number in range(NUM_EXPERTS)]
    assert others == [[f"{prefix}.gate.weight"], ["other"]]


def test_stored_numbers_of_experts_are_stacked_and_others_rounded():
    prefix, every, tensors = experts()
    stored, query = {}, "model.layers.0.self_attn.q_proj"
    for name, tensor in (tensors | {f"{query}.weight": torch.randn(4, 32)}).items():
        module = name.removesuffix(".weight")
        if ".experts." in name or module == query:
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
    names = [f"{query}.weight", f"{query}.weight:int8"]
    assert torch.equal(source.parts(names[0], Scheme.parse("int8"))["values"], stored[names[0]])
    quantized = QuantizedSource(source, [names[1], f"{name}:int8", f"{name}:int4-g32"])
    assert torch.equal(quantized.join([names[1]])[0], stored[names[0]]) and quantized.is_stored(names[1])
    assert torch.equal(quantized.join([f"{name}:int8"])[0], parts["values"]) and quantized.origin == "memory"
    assert not quantized.is_stored(f"{name}:int4-g32") and quantized.join([f"{name}:int4-g32"])[1]
    plain = {f"{prefix}.experts.0.{one}.weight": torch.ones(2, 32).half() for one in ("w1", "w3")}
    source = PublishedExperts(PublishedSource(StateDict(tensors=plain, origin="memory"), published.layout))
    assert source.is_plain(name) and source.specs[name].dtype == "float16" and source.specs[name].shape == (1, 4, 32)


def test_parts_of_blocks_are_views_of_the_file():
    name = "experts.down_proj"
    tensors = {f"{name}_blocks": torch.randint(256, (2, 5, 3, 16), dtype=torch.uint8)}
    tensors[f"{name}_scales"] = torch.randint(100, 150, (2, 5, 3), dtype=torch.uint8)
    made = QuantizedSource(PublishedExperts(StateDict(tensors=tensors, origin="memory")), [f"{name}:mxfp4-t"])
    values, is_copied = made.join([f"{name}:mxfp4-t"])
    assert torch.equal(values, tensors[f"{name}_blocks"].flatten(-2)) and not is_copied
    assert made.specs[f"{name}:mxfp4-t"].shape == values.shape and made.is_stored(f"{name}:mxfp4-t")


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


@pytest.mark.parametrize("name", ["int4-g32-zp", "mxfp4", "fp8-g32"])
def test_layers_of_experts_have_the_numbers_of_each_matrix(name):
    """Groups divide inputs only: 64 of them, and 40 outputs."""
    weight, scheme = torch.randn(3, 40, 64), Scheme.parse(name)
    names = {part: Recipe("experts", scheme, part).name for part in scheme.parts}
    source = QuantizedSource(StateDict(tensors={"experts": weight}, origin="memory"), list(names.values()))
    parts = {part: source.join([name])[0] for part, name in names.items()}
    each = [scheme.quantize(matrix) for matrix in weight]
    assert all(torch.equal(parts[part], torch.stack([one[part] for one in each])) for part in scheme.parts)
    rows = [dequantize(*one.values()) for one in each]
    assert torch.equal(dequantize(*parts.values()), torch.stack(rows))
    assert {part: source.specs[name].shape for part, name in names.items()} == {p: t.shape for p, t in parts.items()}


@pytest.mark.parametrize(
    ("blocks", "scales", "dtypes"),
    [
        ((1, 2, 1, 16), (1, 2, 1), ("int8", "uint8")),
        ((1, 2, 1, 16), (1, 2, 1), ("uint8", "int8")),
        ((1, 2, 1, 16), None, ("uint8", "uint8")),
        ((1, 2, 1, 8), (1, 2, 1), ("uint8", "uint8")),
        ((1, 2, 2, 16), (1, 2, 1), ("uint8", "uint8")),
        ((2, 1, 16), (2, 1), ("uint8", "uint8")),
    ],
)
def test_other_blocks_are_named(blocks, scales, dtypes):
    tensors = {"experts.down_proj_blocks": torch.zeros(blocks, dtype=getattr(torch, dtypes[0]))}
    if scales is not None:
        tensors["experts.down_proj_scales"] = torch.zeros(scales, dtype=getattr(torch, dtypes[1]))
    with pytest.raises(WeightsError) as failure:
        PublishedExperts(StateDict(tensors=tensors, origin="memory"))
    (problem,) = failure.value.details["problems"]
    assert "experts.down_proj" in problem
