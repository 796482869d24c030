"""Tensors of published quantized checkpoints are read as their formats say, whatever the shapes.

Nothing here is checked with the code under test: the references are matrices that the packages of the formats packed
(`published_examples.py`), transformers' own conversions, and readings element by element (`plain_readers.py`).
"""

from __future__ import annotations

import random
from unittest import mock

import pytest
import torch
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.errors import WeightsError
from optimum_neuron.sources import layout_of, published_scheme
from optimum_neuron.weights import PublishedExperts, PublishedSource, Scheme, StateDict, dequantize
from tests.weights import plain_readers
from tests.weights.published_examples import read_examples

EXAMPLES = read_examples()

SEEDS = range(12)


def source_of(parts, settings):
    tensors = {f"layer.{part}": tensor.contiguous() for part, tensor in parts.items()}
    return PublishedSource(StateDict(tensors=tensors, origin="a test"), layout_of(settings))


def read(parts, settings):
    """Return the matrix as it is dequantized, after checking that a scheme has the same numbers if it has any."""
    source = source_of(parts, settings)
    weight, _ = source.join(["layer.weight"])
    assert {name: spec.shape for name, spec in source.specs.items()} == {"layer.weight": weight.shape}
    name = published_scheme(settings).value
    if name is not None and Scheme.parse(name).fits(weight.shape[1]):
        stored = source.parts("layer.weight", Scheme.parse(name))
        if stored is not None:
            values = dequantize(stored["values"], stored["scale"], stored.get("zero"))
            torch.testing.assert_close(values, weight, rtol=1e-3, atol=1e-5 * float(weight.abs().max()))
    return weight


def compressed(weights, form):
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_of_the_packages(name):
    settings, parts, expected = EXAMPLES[name]
    torch.testing.assert_close(read(parts, settings), expected)


def integers(shape, generator, dtype=torch.int32):
    bits = torch.iinfo(dtype).bits
    return torch.randint(-(1 << (bits - 1)), 1 << (bits - 1), shape, generator=generator, dtype=torch.int64).to(dtype)


def scales(shape, generator, dtype=torch.float16):
    return (torch.rand(shape, generator=generator) + 0.1).to(dtype)


def float8(shape, generator):
    data = torch.randint(256, shape, generator=generator, dtype=torch.int64)
    return torch.where(data % 128 == 127, 0, data).to(torch.uint8).view(torch.float8_e4m3fn)


@pytest.mark.parametrize("seed", SEEDS)
def test_fp8_blocks_need_not_divide(seed):
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    block = chance.choice([(16, 32), (32, 32), (8, 16), (32, 64)])
    shape = (chance.randint(1, 3 * block[0]), chance.randint(1, 3 * block[1]))
    if seed % 2:
        shape = (shape[0], 32 * -(-shape[1] // 32))
    grid = (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
    parts = {"weight": float8(shape, generator), "weight_scale_inv": scales(grid, generator, torch.float32)}
    weight = read(parts, {"quant_method": "fp8", "weight_block_size": list(block)})
    torch.testing.assert_close(weight, plain_readers.fp8(parts, block))
    strategy = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": list(block)}
    renamed = {"weight": parts["weight"], "weight_scale": parts["weight_scale_inv"]}
    torch.testing.assert_close(read(renamed, compressed(strategy, "float-quantized")), weight)
    # transformers divides rows evenly among scales, so it is asked about whole blocks.
    padded = torch.zeros(grid[0] * block[0], grid[1] * block[1], dtype=torch.uint8)
    padded[: shape[0], : shape[1]] = parts["weight"].view(torch.uint8)
    stored = {"weight": padded.view(torch.float8_e4m3fn), "weight_scale_inv": parts["weight_scale_inv"]}
    theirs = Fp8Dequantize(None).convert(stored)["weight"]
    torch.testing.assert_close(weight, theirs[: shape[0], : shape[1]])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e8m0fnu], ids=str)
def test_fp8_scales_may_be_exponents(dtype):
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(120, 134, (2, 2), generator=generator, dtype=torch.uint8)
    parts = {"weight": float8((32, 64), generator), "weight_scale_inv": exponents}
    weight = read(parts, {"quant_method": "fp8", "weight_block_size": [16, 32], "scale_fmt": "ue8m0"})
    torch.testing.assert_close(weight, Fp8Dequantize(None).convert(dict(parts))["weight"].float())
    powers = parts | {"weight_scale_inv": torch.tensor([[2.0 ** (int(one) - 127) for one in row] for row in exponents])}
    stored = parts | {"weight_scale_inv": exponents.view(dtype)}
    weight = read(stored, {"quant_method": "fp8", "weight_block_size": [16, 32], "scale_fmt": "ue8m0"})
    torch.testing.assert_close(weight, plain_readers.fp8(powers, (16, 32)))


@pytest.mark.parametrize("packed", [False, True])
def test_symmetric_integers_with_zero_points_are_an_error(packed):
    generator = torch.Generator().manual_seed(0)
    parts = {"weight_scale": scales((16, 1), generator)}
    if packed:
        parts |= {"weight_packed": integers((16, 4), generator), "weight_shape": torch.tensor([16, 32])}
        zeros, form = torch.full((2, 1), -0x77777778, dtype=torch.int32), "pack-quantized"  # 0x88888888: all are 0
    else:
        parts |= {"weight": integers((16, 32), generator, torch.int8)}
        zeros, form = torch.zeros(16, 1, dtype=torch.int8), "int-quantized"
    settings = compressed({"num_bits": 4 if packed else 8, "type": "int", "strategy": "channel"}, form)
    expected = read(parts, settings)
    torch.testing.assert_close(read(parts | {"weight_zero_point": zeros}, settings), expected)
    with pytest.raises(WeightsError):
        read(parts | {"weight_zero_point": zeros + 1}, settings)


def test_rows_of_deepseek_v3():
    """Its kv_a_proj_with_mqa has 512 + 64 rows: four blocks and a half."""
    generator = torch.Generator().manual_seed(0)
    parts = {"weight": float8((576, 128), generator), "weight_scale_inv": scales((5, 1), generator, torch.float32)}
    weight = read(parts, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    torch.testing.assert_close(weight, plain_readers.fp8(parts, (128, 128)))


def test_masks_of_old_models_are_no_weights():
    generator = torch.Generator().manual_seed(0)
    parts = {"weight": float8((16, 32), generator), "weight_scale_inv": torch.ones(1, 1)}
    parts["attn.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.uint8)
    parts["embed.kinds"], parts["bias"] = torch.ones(8, dtype=torch.uint8), torch.ones(16).half()
    source = source_of(parts, {"quant_method": "fp8", "weight_block_size": [16, 32]})
    assert source.specs["layer.attn.bias"].dtype == "uint8"
    assert source.specs.keys() == {f"layer.{name}" for name in ("weight", "bias", "attn.bias", "embed.kinds")}
    assert source.origin == "a test"


def test_plain_and_quantized_tensors_are_joined():
    """A matrix is read once for all of its parts, and what was copied leaves the memory of its files."""
    generator = torch.Generator().manual_seed(0)
    tensors = {"a.weight": float8((2, 32), generator), "a.weight_scale_inv": torch.full((1, 1), 2.0)}
    tensors |= {"b.weight": torch.ones(3, 32).half(), "c.weight": torch.zeros(1, 32).half(), "a.bias": torch.ones(2)}
    checkpoint = StateDict(tensors=tensors, origin="a test")
    source = PublishedSource(checkpoint, layout_of({"quant_method": "fp8", "weight_block_size": [16, 32]}))
    a, is_copied = source.join(["a.weight"])
    assert torch.equal(a, 2 * tensors["a.weight"].float()) and is_copied
    both, is_copied = source.join(["b.weight", "a.weight"])
    assert torch.equal(both, torch.cat([torch.ones(3, 32), a])) and is_copied
    plain, _ = source.join(["b.weight", "c.weight"])
    assert torch.equal(plain, torch.cat([tensors["b.weight"], tensors["c.weight"]])) and plain.dtype == torch.float16
    fp8 = Scheme.parse("fp8-g32")
    assert source.parts("b.weight", fp8) is None and source.is_plain("a.bias") and not source.is_plain("a.weight")
    with mock.patch.object(StateDict, "join", side_effect=AssertionError("it was read")):
        parts = source.parts("a.weight", fp8)
    torch.testing.assert_close(dequantize(parts["values"], parts["scale"]), a, rtol=0, atol=2**-7)
    with mock.patch.object(StateDict, "drop_pages") as drop:
        source.drop_pages(["a.bias", "a.weight", "b.weight"])
    assert set(drop.call_args.args[0]) == tensors.keys() - {"c.weight"}


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (20,), (20, 1)])
def test_fp8_without_blocks(shape):
    generator = torch.Generator().manual_seed(0)
    parts = {"weight": float8((20, 48), generator), "weight_scale_inv": scales(shape, generator, torch.float32)}
    for block in (None, [16, 32]) if len(parts["weight_scale_inv"].flatten()) == 1 else (None,):
        weight = read(parts, {"quant_method": "fp8", "weight_block_size": block})
        torch.testing.assert_close(weight, plain_readers.fp8(parts, (1, 0)))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("strategy", ["tensor", "channel", "group", "block"])
def test_integers_may_have_zero_points_of_any_dtype(strategy, dtype):
    generator, shape = torch.Generator().manual_seed(0), (20, 64)
    weights = {"num_bits": 8, "type": "int", "strategy": strategy, "symmetric": False}
    weights |= {"group_size": 32} if strategy == "group" else {}
    weights |= {"block_structure": [16, 32]} if strategy == "block" else {}
    grid = {"tensor": (1,), "channel": (20, 1), "group": (20, 2), "block": (2, 2)}[strategy]
    block = {"tensor": (0, 0), "channel": (1, 0), "group": (1, 32), "block": (16, 32)}[strategy]
    parts = {"weight": integers(shape, generator, torch.int8), "weight_scale": scales(grid, generator, torch.bfloat16)}
    parts["weight_zero_point"] = integers(grid, generator, torch.int8).to(dtype)
    weight = read(parts, compressed(weights, "int-quantized"))
    torch.testing.assert_close(weight, plain_readers.compressed_unpacked(parts, block))


@pytest.mark.parametrize("seed", SEEDS)
def test_packed_integers_of_compressed_tensors(seed):
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    bits, size = chance.choice([4, 8]), chance.choice([0, 16, 32])
    num_outputs, num_inputs = chance.randint(1, 40), chance.randint(1, 100)
    num_groups, per_int = -(-num_inputs // size) if size else 1, 32 // bits
    parts = {
        "weight_packed": integers((num_outputs, -(-num_inputs // per_int)), generator),
        "weight_scale": scales((num_outputs, num_groups), generator, torch.bfloat16),
        "weight_shape": torch.tensor([num_outputs, num_inputs]),
    }
    if is_asymmetric := chance.random() < 0.7:
        parts["weight_zero_point"] = integers((-(-num_outputs // per_int), num_groups), generator)
    if size and chance.random() < 0.4:
        order = torch.randperm(num_inputs, generator=generator)
        parts["weight_g_idx"] = (torch.arange(num_inputs) // size)[order].int()
    weights = {"num_bits": bits, "type": "int", "strategy": "group" if size else "channel", "group_size": size or None}
    weight = read(parts, compressed(weights | {"symmetric": not is_asymmetric}, "pack-quantized"))
    torch.testing.assert_close(weight, plain_readers.compressed_packed(parts, (1, size), bits))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_gptq_zero_points_are_wrapped_and_groups_need_not_divide(form, seed):
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    bits, size = chance.choice([4, 8]), chance.choice([-1, 32, 64])
    per_int = 32 // bits
    num_outputs, num_inputs = chance.randint(1, 40), per_int * chance.randint(1, 12)
    num_groups = -(-num_inputs // size) if size > 0 else 1
    parts = {
        "qweight": integers((num_inputs // per_int, num_outputs), generator),
        "qzeros": integers((num_groups, -(-num_outputs // per_int)), generator),
        "scales": scales((num_groups, num_outputs), generator),
    }
    order = chance.choice([None, "neighbors", "shuffled"])
    if order is not None:
        groups = torch.arange(num_inputs) // size if size > 0 else torch.zeros(num_inputs)
        shuffled = torch.randperm(num_inputs, generator=generator)
        parts["g_idx"] = (groups if order == "neighbors" else groups[shuffled]).int()
    settings = {"quant_method": "gptq", "bits": bits, "group_size": size, "sym": False, "checkpoint_format": form}
    version = 1 if form == "gptq" else 2
    torch.testing.assert_close(read(parts, settings), plain_readers.gptq(parts, size, bits, version))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("missing", [0, 1])
def test_symmetric_gptq_has_the_version_of_its_numbers(missing, form, bits):
    """Files of both versions say "gptq": with sym, zero points of half the range are as they are, or one less."""
    generator, half = torch.Generator().manual_seed(0), 1 << (bits - 1)
    word = sum((half - missing) << (bits * place) for place in range(32 // bits))
    parts = {
        "qweight": integers((8, 16), generator),
        "qzeros": torch.full((1, 16 * bits // 32), word - (1 << 32) if word >> 31 else word, dtype=torch.int32),
        "scales": scales((1, 16), generator),
    }
    settings = {"quant_method": "gptq", "bits": bits, "group_size": -1, "sym": True, "checkpoint_format": form}
    torch.testing.assert_close(read(parts, settings), plain_readers.gptq(parts, -1, bits, 1 if missing else 2))


def test_symmetric_gptq_with_other_zero_points_is_an_error():
    generator = torch.Generator().manual_seed(0)
    shapes = {"qweight": (8, 16), "qzeros": (1, 2)}
    parts = {name: integers(shape, generator) for name, shape in shapes.items()}
    parts["scales"] = scales((1, 16), generator)
    with pytest.raises(WeightsError) as failure:
        read(parts, {"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": True})
    assert len(failure.value.details["problems"]) == 1


def test_zero_points_that_gptqmodel_wrote_borrow_from_each_other():
    """It subtracts 1 from each of the 8 numbers of an int32 at once, so that a 0 takes 1 from the next number."""
    generator = torch.Generator().manual_seed(0)
    parts = {"qweight": integers((8, 16), generator), "scales": scales((2, 16), generator)}
    zeros = integers((2, 2), generator) & ~0xF0F
    expected = plain_readers.gptq(parts | {"qzeros": zeros}, 32, 4, version=2)
    written = (zeros.long() - 0x11111111) & 0xFFFFFFFF
    parts["qzeros"] = torch.where(written >= 2**31, written - 2**32, written).int()
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}
    torch.testing.assert_close(read(parts, settings | {"meta": {"quantizer": ["gptqmodel:4.2.5"]}}), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_awq(seed):
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    size, num_outputs, num_inputs = chance.choice([-1, 32, 64]), 8 * chance.randint(1, 5), chance.randint(1, 100)
    num_groups = -(-num_inputs // size) if size > 0 else 1
    parts = {
        "qweight": integers((num_inputs, num_outputs // 8), generator),
        "qzeros": integers((num_groups, num_outputs // 8), generator),
        "scales": scales((num_groups, num_outputs), generator),
    }
    settings = {"quant_method": "awq", "bits": 4, "group_size": size, "version": chance.choice(["gemm", "GEMM"])}
    torch.testing.assert_close(read(parts, settings), plain_readers.awq(parts, size))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e8m0fnu], ids=str)
def test_mxfp4_experts(dtype):
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(256, (2, 5, 3, 16), generator=generator, dtype=torch.uint8)
    exponents = torch.randint(100, 150, (2, 5, 3), generator=generator, dtype=torch.uint8)
    name = "layers.0.mlp.experts.down_proj"
    tensors = {f"{name}_blocks": blocks, f"{name}_scales": exponents.view(dtype)}
    tensors |= {"gate.weight": torch.ones(2, 4), "gate.bias": torch.ones(4)}
    source = PublishedExperts(StateDict(tensors=tensors, origin="a test"))
    experts, is_copied = source.join([name])
    torch.testing.assert_close(experts, plain_readers.mxfp4(blocks, exponents))
    assert is_copied and source.specs == {
        name: TensorSpec(shape=(2, 96, 5), dtype="float32"),
        "gate.weight": TensorSpec(shape=(2, 4), dtype="float32"),
        "gate.bias": TensorSpec(shape=(4,), dtype="float32"),
    }
    own, mxfp4, int8 = source.parts(name, Scheme.parse("mxfp4")), Scheme.parse("mxfp4"), Scheme.parse("int8")
    assert own["values"].data_ptr() == blocks.data_ptr() and torch.equal(own["scale"], exponents)
    assert torch.equal(dequantize(own["values"], own["scale"]).transpose(1, 2), experts)
    assert source.is_mapped(name, mxfp4) and not source.is_mapped(name, int8) and not source.is_plain(name)
    assert source.parts(name, int8) is None and not source.is_mapped("gate.weight", mxfp4)
    assert (source.origin, source.weights) == ("a test", [name])
    both, _ = source.join(["gate.weight", "gate.weight"])
    assert torch.equal(both, torch.ones(4, 4))
    with mock.patch.object(StateDict, "drop_pages") as drop:
        source.drop_pages([name, "gate.weight"])
    assert [call.args[0] for call in drop.call_args_list] == [[f"{name}_blocks", f"{name}_scales"], ["gate.weight"]]
    torch.testing.assert_close(experts, convert_moe_packed_tensors(blocks, exponents, dtype=torch.float32))


WRONG = {
    "a block too few": ({"weight_scale_inv": (2, 2)}, 1),
    "a column for all blocks": ({"weight_scale_inv": (3, 1)}, 1),
    "a row for each output": ({"weight_scale_inv": (40, 2)}, 1),
    "no scale": ({"weight_scale_inv": None}, 1),
    "two kinds of scale": ({"weight_scale": (3, 2)}, 1),
    "a second scale": ({"weight_scale_2": ()}, 1),
    "experts in three dimensions": ({"experts.down_proj": (2, 4, 4)}, 1),
    "a scale of nothing": ({"gate.weight_scale_inv": (1, 1)}, 1),
    "experts in two dimensions": ({"experts.down_proj": (4, 4)}, 1),
    "experts that are called weights": ({"experts.weight": (2, 4, 4)}, 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_tensors_that_nothing_explains_are_errors(name):
    changes, num_problems = WRONG[name]
    generator = torch.Generator().manual_seed(0)
    parts = {"weight": float8((40, 48), generator), "weight_scale_inv": torch.ones(3, 2)}
    for part, shape in changes.items():
        parts.pop(part, None)
        if shape is not None:
            parts[part] = float8(shape, generator) if "experts" in part else torch.ones(shape)
    with pytest.raises(WeightsError) as failure:
        source_of(parts, {"quant_method": "fp8", "weight_block_size": [16, 32]})
    assert len(failure.value.details["problems"]) == num_problems


@pytest.mark.parametrize(("part", "size"), [("qweight", 1), ("qzeros", 1), ("qzeros", 0), ("scales", 0), ("g_idx", 0)])
def test_gptq_tensors_of_other_shapes_are_errors(part, size):
    settings, parts, _ = EXAMPLES["gptq, last group smaller"]
    parts = parts | {part: parts[part].narrow(size, 0, parts[part].shape[size] - 1)}
    if part == "scales":
        parts.pop("g_idx")
    with pytest.raises(WeightsError):
        source_of(parts, settings)


def test_gptq_groups_of_settings_without_a_size():
    """After sorting by activations, inputs name their groups; without the names, a second group is an error."""
    settings, parts, expected = EXAMPLES["gptq, reordered"]
    settings |= {"group_size": -1}
    torch.testing.assert_close(read(parts, settings), expected)
    parts = {part: tensor for part, tensor in parts.items() if part != "g_idx"}
    with pytest.raises(WeightsError):
        source_of(parts, settings)
    with pytest.raises(WeightsError) as failure:
        source_of(parts | {"scales": parts["scales"][0]}, settings)
    assert "scales" in failure.value.message


@pytest.mark.parametrize(
    ("part", "shape"), [("weight_zero_point", (4, 3)), ("weight_shape", (3,)), ("weight_zero_point", (3, 2))]
)
def test_packed_tensors_of_other_shapes_are_errors(part, shape):
    settings, parts, _ = EXAMPLES["int4 by groups"]
    with pytest.raises(WeightsError) as failure:
        source_of(parts | {part: torch.ones(shape, dtype=parts[part].dtype)}, settings)
    (problem,) = failure.value.details["problems"]
    assert part in problem


def test_zero_points_of_rows_are_errors_where_scales_have_one_axis():
    generator = torch.Generator().manual_seed(0)
    parts = {"weight": integers((20, 32), generator, torch.int8), "weight_scale": scales((20,), generator)}
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}
    for shape in ((5,), (5, 1)):
        parts["weight_zero_point"] = torch.ones(shape, dtype=torch.int32)
        with pytest.raises(WeightsError):
            source_of(parts, compressed(weights, "int-quantized"))


def test_the_first_of_many_problems_are_in_the_message():
    tensors = {f"{number}.qweight": torch.zeros(4, 8, dtype=torch.int32) for number in range(7)}
    with pytest.raises(WeightsError) as failure:
        PublishedSource(StateDict(tensors=tensors, origin="a test"), layout_of({"quant_method": "awq", "bits": 4}))
    assert len(failure.value.details["problems"]) == 7
    assert sum(problem in failure.value.message for problem in failure.value.details["problems"]) == 6


def test_groups_out_of_range_are_errors():
    settings, parts, _ = EXAMPLES["gptq, reordered"]
    with pytest.raises(WeightsError):
        read(parts | {"g_idx": parts["g_idx"] + 1}, settings)
