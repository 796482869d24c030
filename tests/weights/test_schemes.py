"""Schemes of quantized weights: layouts, errors of rounding, and tensors made by recipe."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.weights import (
    QuantizedSource,
    Recipe,
    Scheme,
    StateDict,
    dequantize,
    parse_schemes,
    plain_names,
    recipe_of,
)
from optimum_neuron.weights.schemes import pack_nibbles, unpack_nibbles

WEIGHT = torch.randn(24, 128, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "steps"),
    # Half a step of the largest number of a group; e4m3 has 3 bits of fraction, and 4 bits no number 8.
    [
        ("int8", 0.5 / 127),
        ("fp8", 2**-4),
        ("fp8-g32", 2**-4),
        ("int4", 1.01 / 8),
        ("int4-g64", 1.01 / 8),
        ("int4-g64-zp", 1.02 / 7),
    ],
)
def test_error_is_half_a_step(name, steps):
    scheme = Scheme.parse(name)
    assert Scheme.parse(scheme.name) == scheme
    parts = scheme.quantize(WEIGHT)
    specs = scheme.specs(*WEIGHT.shape)
    assert {part: (tuple(t.shape), str(t.dtype)) for part, t in parts.items()} == {
        part: (spec.shape, f"torch.{spec.dtype}") for part, spec in specs.items()
    }
    result = dequantize(parts["values"], parts["scale"], parts.get("zero"))
    largest = WEIGHT.unflatten(1, (-1, scheme.group_size or 128)).abs().amax(2, keepdim=True)
    error = (result - WEIGHT).unflatten(1, (-1, scheme.group_size or 128)).abs() / largest
    assert error.max() <= steps


@pytest.mark.parametrize("name", ["int8", "int4", "int4-g32-zp", "fp8"])
def test_rows_of_zeros_stay_zeros(name):
    parts = Scheme.parse(name).quantize(torch.zeros(2, 64))
    assert not dequantize(parts["values"], parts["scale"], parts.get("zero")).any()


def test_nibbles_are_those_of_llama_cpp():
    numbers = torch.randint(16, (3, 64), generator=torch.Generator().manual_seed(1))
    packed = pack_nibbles(numbers)
    assert torch.equal(unpack_nibbles(packed), numbers.float())
    run = packed[0, :16]
    assert torch.equal(run & 15, numbers[0, :16].to(torch.uint8))
    assert torch.equal(run >> 4, numbers[0, 16:32].to(torch.uint8))


@pytest.mark.parametrize("name", ["int3", "int8-g0", "int4-g20", "fp8-zp", "int8-zp", ""])
def test_unknown_schemes_are_refused(name):
    with pytest.raises(ConfigError) as excinfo:
        Scheme.parse(name)
    assert excinfo.value.details["option"] == "quantization"


@pytest.mark.parametrize(
    ("text", "layers", "head"),
    [
        ("int8", "int8", "int8"),
        ("int8-g32", "int8-g32", "int8-g32"),
        ("int8-dynamic", "int8-dynamic", "int8"),
        ("int4", "int4-g32", "int8"),
        ("fp8", "fp8", "int8"),
        ("int4-g64/fp8", "int4-g64", "fp8"),
    ],
)
def test_the_head_has_eight_bits_unless_it_is_named(text, layers, head):
    assert [scheme.name for scheme in parse_schemes(text)] == [layers, head]


def test_recipes_make_tensors_of_a_checkpoint():
    source = StateDict(tensors={"a.weight": WEIGHT[:8], "b.weight": WEIGHT[8:]}, origin="a test")
    names = [f"{name}.weight:int8{part}" for name in "ab" for part in ("", ".scale")]
    assert recipe_of(names[1]) == Recipe("a.weight", Scheme(kind="int8"), "scale")
    assert recipe_of("a.weight") is None and plain_names([*names, "c"]) == ["a.weight", "b.weight", "c"]
    made = QuantizedSource(source, [*names, "missing:int8"])
    assert "missing:int8" not in made.specs and made.specs[names[0]].dtype == "int8"
    values, scale = (made.join([f"{name}.weight:int8{part}" for name in "ab"])[0] for part in ("", ".scale"))
    assert made.is_stored("a.weight") and not made.is_stored(names[0]), "the second one was rounded"
    # By rows, so joined tensors are quantized as one.
    whole = Scheme.parse("int8").quantize(WEIGHT)
    assert torch.equal(values, whole["values"]) and torch.equal(scale, whole["scale"])


def test_fp8_is_read_alike_by_torch():
    parts = Scheme.parse("fp8").quantize(WEIGHT)
    assert torch.equal(dequantize(parts["values"], parts["scale"]), parts["values"].float() * parts["scale"])


@pytest.mark.parametrize(
    ("name", "kind"), [("int8-g32", "Q8_0"), ("int4-g32", "Q4_0"), ("int4-g32-zp", "Q4_1"), ("mxfp4", "MXFP4")]
)
def test_numbers_are_read_alike_by_gguf(name, kind):
    gguf = pytest.importorskip("gguf")
    parts = Scheme.parse(name).quantize(WEIGHT)
    scale = parts["scale"] if kind == "MXFP4" else parts["scale"].half()
    values = parts["values"].view(torch.uint8).unflatten(1, (scale.shape[1], -1))
    if kind == "MXFP4":  # neighbors share a byte, in GGUF weights j and j + 16
        numbers = torch.stack([values & 15, values >> 4], -1).flatten(2)
        values = numbers[..., :16] | (numbers[..., 16:] << 4)
    head = [scale[..., None].view(torch.uint8)]
    if "zero" in parts:  # Q4_1 adds a minimum, with the 11 bits of float16
        head.append((-scale.float() * parts["zero"]).half()[..., None].view(torch.uint8))
    blocks = torch.cat([*head, values], -1).flatten(1).numpy()
    other = torch.from_numpy(gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind]))
    ours = dequantize(parts["values"], scale, parts.get("zero"))
    torch.testing.assert_close(ours, other, atol=2e-3 if "zero" in parts else 0.0, rtol=1e-6)
