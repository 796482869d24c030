"""Schemes of quantized weights: layouts, errors of rounding, and tensors made by recipe."""

from __future__ import annotations

import gc
import weakref
from unittest import mock

import numpy as np
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
    quantize_rows,
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


@pytest.mark.parametrize("name", ["int4-g32", "int4-g32-zp"])
def test_every_weight_becomes_the_nearest_of_16_numbers(name):
    """Also where the largest and the smallest weight are as far from zero, and where scales are the least."""
    weight = torch.cat([WEIGHT, 2 * WEIGHT.sign(), -WEIGHT.abs(), 1e-5 * WEIGHT])
    parts = Scheme.parse(name).quantize(weight)
    scale, zero = parts["scale"].float()[..., None], parts.get("zero", torch.tensor([8]))[..., None]
    levels = (torch.arange(16) - zero.float()) * scale
    groups = weight.unflatten(1, (-1, 32))
    result = dequantize(parts["values"], parts["scale"], parts.get("zero")).unflatten(1, (-1, 32))
    nearest = (groups[..., None] - levels[..., None, :]).abs().amin(-1)
    torch.testing.assert_close((groups - result).abs(), nearest, rtol=0, atol=1e-6)


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


@pytest.mark.parametrize(
    "name", ["int3", "int8-g0", "int4-g20", "fp8-zp", "int8-zp", "", "mxfp4-g64", "int8-g32-dynamic"]
)
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
    assert made.origin == "a test" and not made.is_stored(names[2])
    assert torch.equal(made.join(["a.weight", "b.weight"])[0], WEIGHT) and made.join([names[0], names[2]])[1]
    # By rows, so joined tensors are quantized as one.
    whole = Scheme.parse("int8").quantize(WEIGHT)
    assert torch.equal(values, whole["values"]) and torch.equal(scale, whole["scale"])


def test_names_of_recipes_are_read_again():
    for name in ("int4-g64-zp", "mxfp4", "int8-dynamic", "fp8-g32"):
        for part, is_transposed in (("values", True), ("scale", False), ("scale", True)):
            recipe = Recipe("a.weight", Scheme.parse(name), part, is_transposed)
            assert recipe_of(recipe.name) == recipe and recipe.scheme.name == name
    assert recipe.name == "a.weight:fp8-g32-t.scale" and Scheme.parse("int8").fits(3)
    assert Recipe("a.weight", Scheme.parse("int8"), "values").name == "a.weight:int8", "as saved folders have it"


def test_tensors_are_made_once_and_the_values_of_the_last_weight_are_kept():
    tensors = {"a": WEIGHT, "b": WEIGHT, "odd": torch.ones(4, 31), "row": torch.ones(32)}
    names = ["a:int4-g32", "a:int4-g32.scale", "b:int4-g32", "odd:int4-g32", "row:int4-g32", "stored:int8"]
    stored = {"stored": WEIGHT, "stored:int8": torch.ones(24, 128, dtype=torch.int8)}
    made = QuantizedSource(StateDict(tensors=tensors | stored, origin="memory"), names)
    values, is_copied = made.join(names[:1])
    assert made.join(names[:1])[0] is values and is_copied
    scale, values = made.join(names[1:2])[0], weakref.ref(values)
    made.join(names[2:3])
    gc.collect()
    assert values() is None and made.join(names[1:2])[0] is scale
    assert "odd:int4-g32" not in made.specs and "row:int4-g32" not in made.specs
    assert made.join(["stored:int8"])[0] is stored["stored:int8"], "as in an exported folder"
    with mock.patch.object(StateDict, "drop_pages") as drop:
        made.drop_pages(names[:2])
    assert drop.call_args.args[0] == ["a"]


def test_four_bits_with_zero_points_are_those_of_torch():
    """Its observer of least and largest numbers, and its rounding with the scales as they are stored."""
    weight = torch.cat([WEIGHT, WEIGHT.abs() + 1, -WEIGHT.abs() - 1]).unflatten(1, (-1, 64)).flatten(0, 1)
    options = {"dtype": torch.quint8, "qscheme": torch.per_channel_affine, "quant_min": 0, "quant_max": 15}
    observer = torch.ao.quantization.PerChannelMinMaxObserver(ch_axis=0, **options)
    observer(weight)
    scale, zero = observer.calculate_qparams()
    parts = Scheme.parse("int4-g64-zp").quantize(weight)
    assert torch.equal(parts["scale"].flatten(), scale.half()) and torch.equal(parts["zero"].flatten().int(), zero)
    stored = parts["scale"].flatten().float()
    rounded = torch.fake_quantize_per_channel_affine(weight, stored, zero.int(), 0, 0, 15)
    torch.testing.assert_close(dequantize(*parts.values()), rounded)


def test_four_bits_are_those_of_gguf():
    """Numbers near the steps of a scale, the largest of which is negative or positive."""
    gguf = pytest.importorskip("gguf")
    generator = torch.Generator().manual_seed(0)
    steps = torch.randint(-7, 8, (16, 64), generator=generator) + 0.8 * torch.rand(16, 64, generator=generator) - 0.4
    for sign in (1, -1):
        steps[:, ::32] = 8 * sign
        weight = steps * 2.0**-5
        theirs = gguf.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q4_0)
        blocks = torch.from_numpy(theirs).unflatten(1, (-1, 18))
        parts = Scheme.parse("int4").quantize(weight)
        assert torch.equal(parts["scale"], blocks[..., :2].contiguous().view(torch.float16).squeeze(-1))
        assert torch.equal(parts["values"], blocks[..., 2:].flatten(1))


@pytest.mark.parametrize(("dtype", "largest"), [(torch.int8, 127), (torch.float8_e4m3fn, 240)])
def test_inputs_are_rounded_by_tokens(dtype, largest):
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    x[1, 2] = 0
    numbers, scale = quantize_rows(x, dtype)
    rows = x.float().numpy()
    expected = np.abs(rows).max(-1, keepdims=True) / np.float32(largest)
    assert np.array_equal(scale.numpy()[rows.any(-1)], expected[rows.any(-1)]) and numbers.dtype == dtype
    exact = torch.from_numpy(np.clip(rows / scale.numpy(), -largest, largest))
    assert torch.equal(numbers, (exact.round() if dtype == torch.int8 else exact).to(dtype))
    assert numbers.float().abs().amax(-1).unique().tolist() == [0, largest]


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
