"""Validation of quantized checkpoints has a reference that this package's readers did not make."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ValidationError
from optimum_neuron.exporters import validation
from optimum_neuron.sources import quantization, references
from optimum_neuron.weights import READERS, PublishedExperts, PublishedSource, Scheme, StateDict, dequantize
from tests.exporters.test_published import INT8, SETTINGS, compressed, save_published
from tests.exporters.test_published_experts import save_gpt_oss, write_settings
from tests.tiny import SMALL, VOCABULARY, save_tiny, tiny_config
from tests.weights.published_examples import read_examples

EXAMPLES = read_examples()
IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
HAS_PACKAGE = importlib.util.find_spec("compressed_tensors") is not None
READ_BY = {
    "fp8": "transformers",
    "gptq": "this package",
    "awq": "this package",
    **dict.fromkeys(
        ("float-quantized", "int-quantized", "pack-quantized"), "compressed-tensors" if HAS_PACKAGE else "this package"
    ),
}


def scaled(matrix):
    return dataclasses.replace(matrix, scale_OG=1.1 * matrix.scale_OG)


def moved(matrix):
    """Rows get the scale of the row before, as where blocks are divided wrongly."""
    return dataclasses.replace(matrix, scale_OG=matrix.scale_OG.roll(1, 0))


def export(folder):
    """Compile and compare; a comparison that passed before is made again."""
    return NeuronModelForCausalLM.from_pretrained(folder, export=True, disable_neuron_cache=True, **SMALL)


@pytest.mark.full(days=2)
@pytest.mark.parametrize(("method", "corrupt"), [("fp8", scaled), ("fp8", moved), ("pack-quantized", scaled)])
def test_a_scale_that_is_read_wrongly_fails_validation(method, corrupt, tmp_path, monkeypatch):
    if READ_BY[method] == "this package":
        pytest.skip("compressed-tensors is not installed")
    save_published(tmp_path / "m", method)
    name = SETTINGS[method]["quant_method"]
    read = READERS[name]
    monkeypatch.setitem(READERS, name, lambda *module: corrupt(read(*module)))
    with pytest.raises(ValidationError) as failure:
        export(tmp_path / "m")
    assert failure.value.details["reader"] == READ_BY[method]
    assert "model.layers.0.mlp.down_proj.weight" in failure.value.details["weights"]


@pytest.mark.full(days=2)
def test_an_exponent_of_mxfp4_that_is_read_wrongly_fails_validation(tmp_path, monkeypatch):
    save_gpt_oss(tmp_path / "m")
    stored = PublishedExperts._stored_mx

    def one_more(self, name):
        values, scale = stored(self, name)
        return values, scale + 1

    monkeypatch.setattr(PublishedExperts, "_stored_mx", one_more)
    with pytest.raises(ValidationError) as failure:
        export(tmp_path / "m")
    assert failure.value.details["reader"] == "transformers"


@pytest.mark.full(days=3)
@pytest.mark.parametrize("method", READ_BY)
def test_report_names_the_reader(method, tmp_path):
    save_published(tmp_path / "m", method)
    report = export(tmp_path / "m").describe()
    assert report["reference_weights"]["value"] == READ_BY[method] and report["reference_weights"]["reason"]
    assert all(error["ok"] for error in report["validation"])


def test_integers_with_zero_points_are_rounded_once_more(tmp_path):
    """int8 with zero points has no scheme of its own; the weights are the right ones, up to that rounding."""
    plain = {}
    tensors = load_file(save_tiny(tmp_path / "m", "llama", hidden_size=64, num_hidden_layers=2) / "model.safetensors")
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        weight = tensors.pop(name)
        low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True) * 2
        scale = (high - low) / 255
        zero = (-128 - low / scale).round()
        numbers = (weight / scale + zero).round().clamp(-128, 127)
        plain[name] = (numbers - zero) * scale
        tensors |= {name: numbers.to(torch.int8), f"{name}_scale": scale, f"{name}_zero_point": zero.to(torch.int8)}
    save_file(tensors, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    write_settings(tmp_path / "m", compressed(INT8 | {"symmetric": False}))
    model = export(tmp_path / "m")
    assert "rounded once more" in model.describe()["stored_as"]["reason"]
    original = AutoModelForCausalLM.from_config(tiny_config("llama", hidden_size=64, num_hidden_layers=2)).eval()
    rest = {name: tensor for name, tensor in tensors.items() if "proj" not in name}
    for name, weight in plain.items():
        parts = Scheme.parse("int8").quantize(weight)
        rest[name] = dequantize(parts["values"], parts["scale"])
    original.load_state_dict(rest)
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, original(IDS).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4", "int4-g32-zp", "fp8-g64", "int8-g32", "mxfp4"])
def test_rounding_is_no_difference_but_a_wrong_scale_is(scheme):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 128, generator=generator) * torch.logspace(-3, 1, 24)[:, None]
    scheme = Scheme.parse(scheme)
    parts = scheme.quantize(weight)
    plain = dequantize(parts["values"], parts["scale"], parts.get("zero"))
    assert validation.weight_error(weight, plain, scheme, parts["scale"], is_stored=False) == 0.0
    assert validation.weight_error(plain, plain, scheme, parts["scale"], is_stored=True) == 0.0
    assert validation.weight_error(weight, plain, scheme, parts["scale"], is_stored=True) > 0.0
    for factor in (0.5, 2.0):
        wrong = plain.clone()
        wrong[5] *= factor
        assert validation.weight_error(weight, wrong, scheme, parts["scale"], is_stored=False) > 0.0
    wrong = plain.clone()
    wrong[5] *= 1.01
    assert validation.weight_error(plain, wrong, scheme, parts["scale"], is_stored=True) > 0.0


def both_readings(parts, settings):
    """The matrix as it is read for the program, and for the reference model."""
    tensors = {f"layer.{part}": tensor for part, tensor in parts.items()}
    stored, layout = StateDict(tensors=tensors, origin="a test"), quantization.layout_of(settings)
    sources = PublishedSource(stored, layout), references.reference_source(stored, layout, settings)
    return [source.join(["layer.weight"])[0] for source in sources]


@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (3, 2)])
def test_the_reference_of_fp8_has_partial_blocks(grid):
    generator, shape = torch.Generator().manual_seed(0), (16 * grid[0] - 5, 32 * grid[1] - 7)
    numbers = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
    parts = {"weight": numbers, "weight_scale_inv": torch.rand(grid, generator=generator) + 0.1}
    torch.testing.assert_close(*both_readings(parts, {"quant_method": "fp8", "weight_block_size": [16, 32]}))


@pytest.mark.parametrize(
    "name", [name for name, (one, *_) in sorted(EXAMPLES.items(), key=lambda item: item[0]) if "config_groups" in one]
)
def test_the_reference_of_compressed_tensors_is_its_package(name):
    pytest.importorskip("compressed_tensors")
    settings, parts, expected = EXAMPLES[name]
    actual, reference = both_readings(parts, settings)
    torch.testing.assert_close(actual, reference)
    torch.testing.assert_close(reference, expected)


@pytest.mark.parametrize("num_bits", [4, 8])
def test_the_reference_of_compressed_tensors_has_partial_groups(num_bits):
    pytest.importorskip("compressed_tensors")
    generator, per_int = torch.Generator().manual_seed(0), 32 // num_bits
    words = torch.randint(-(2**31), 2**31, (20, -(-50 // per_int)), generator=generator).int()
    zeros = torch.randint(-(2**31), 2**31, (-(-20 // per_int), 2), generator=generator).int()
    scale = torch.rand(20, 2, generator=generator).bfloat16()
    parts = {"weight_packed": words, "weight_scale": scale, "weight_zero_point": zeros}
    weights = {"num_bits": num_bits, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}
    settings = compressed(weights) | {"format": "pack-quantized"}
    torch.testing.assert_close(*both_readings(parts | {"weight_shape": torch.tensor([20, 50])}, settings))
