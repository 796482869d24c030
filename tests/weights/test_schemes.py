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
    pack_nibbles,
    plain_names,
    recipe_of,
    unpack_nibbles,
)

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


def test_recipes_make_tensors_of_a_checkpoint():
    source = StateDict(tensors={"a.weight": WEIGHT[:8], "b.weight": WEIGHT[8:]}, origin="a test")
    names = [f"{name}.weight:int8{part}" for name in "ab" for part in ("", ".scale")]
    assert recipe_of(names[1]) == Recipe("a.weight", Scheme(kind="int8"), "scale")
    assert recipe_of("a.weight") is None and plain_names([*names, "c"]) == ["a.weight", "b.weight", "c"]
    made = QuantizedSource(source, [*names, "missing:int8"])
    assert "missing:int8" not in made.specs and made.specs[names[0]].dtype == "int8"
    values, scale = (made.join([f"{name}.weight:int8{part}" for name in "ab"])[0] for part in ("", ".scale"))
    # By rows, so joined tensors are quantized as one.
    whole = Scheme.parse("int8").quantize(WEIGHT)
    assert torch.equal(values, whole["values"]) and torch.equal(scale, whole["scale"])
