"""Quantized checkpoints: dequantized by transformers or refused by the name of their method."""

from __future__ import annotations

import json
from inspect import signature

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.checking import check_model
from optimum_neuron.errors import ModelError, WeightsError
from optimum_neuron.exporters import main_export
from optimum_neuron.simulator import estimate
from optimum_neuron.sources import quantization
from tests.raising import raises
from tests.tiny import SHAPES, VOCABULARY, save_tiny, tiny_config

BLOCK = 16
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
REFUSED = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemv"},
    "gptq": {"quant_method": "gptq", "bits": 3, "group_size": 128, "desc_act": False},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "torchao": {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}},
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
}
IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))


def declare(folder, quantization):
    """Write the quantization settings of the weights into a configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))
    return folder


def save_fp8(folder, *, seed=0):
    """Write a Llama with its projections in blocks of FP8, and return it with the tensors that they stand for."""
    tensors = load_file(save_tiny(folder, "llama", seed=seed) / "model.safetensors")
    plain, stored = dict(tensors), dict(tensors)
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        rows, columns = tensors[name].shape
        blocks = tensors[name].view(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
        scale = blocks.abs().amax((1, 3), keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
        eight_bits = (blocks / scale).to(torch.float8_e4m3fn)
        stored[name], stored[f"{name}_scale_inv"] = eight_bits.view(rows, columns), scale[:, 0, :, 0].contiguous()
        plain[name] = (eight_bits.float() * scale).view(rows, columns)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return declare(folder, FP8), plain


def logits_of(tensors):
    model = AutoModelForCausalLM.from_config(tiny_config("llama")).eval()
    model.load_state_dict(tensors)
    with torch.no_grad():
        return model(IDS).logits


def assert_close(model, logits):
    torch.testing.assert_close(model(IDS).logits, logits, atol=2e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def fp8(tmp_path_factory):
    return save_fp8(tmp_path_factory.mktemp("checkpoint") / "fp8")


@pytest.fixture(scope="module")
def export_result(fp8, tmp_path_factory):
    output = tmp_path_factory.mktemp("exported") / "fp8"
    return main_export(fp8[0], output, **SHAPES), output


def test_fp8_weights_are_bound_with_their_scales(fp8, export_result):
    report, output = export_result
    data = report.to_dict()
    assert "fp8" in data["weights"]["reason"] and all(error["ok"] for error in data["validation"])
    assert "quantization_config" not in json.loads((output / "config.json").read_text())
    model = NeuronModelForCausalLM.from_pretrained(output)
    assert_close(model, logits_of(fp8[1]))


def save_mxfp4(folder):
    """Write a GPT-OSS with its experts as pairs of four bits with a power of two for 32 of them, and return it."""
    sizes = {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "layer_types": ["full_attention"] * 2}
    tensors = load_file(save_tiny(folder, "gpt_oss", num_hidden_layers=2, **sizes) / "model.safetensors")
    plain, stored = dict(tensors), dict(tensors)
    magnitudes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    values = torch.cat([magnitudes, -magnitudes])  # E2M1, the OCP's specification of MX formats, table 4
    generator = torch.Generator().manual_seed(0)
    for name in [name for name in tensors if name.endswith("_proj") and "experts" in name]:
        num_experts, columns, rows = tensors[name].shape
        packed = torch.randint(256, (num_experts, rows, columns // 32, 16), generator=generator)
        exponents = torch.randint(122, 125, (num_experts, rows, columns // 32), generator=generator)
        del stored[name]
        stored[f"{name}_blocks"], stored[f"{name}_scales"] = packed.to(torch.uint8), exponents.to(torch.uint8)
        pairs = values[torch.stack([packed % 16, packed // 16], -1)].flatten(-2)
        scaled = pairs * 2.0 ** (exponents[..., None] - 127)
        plain[name] = scaled.flatten(-2).transpose(1, 2).contiguous()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return declare(folder, {"quant_method": "mxfp4"}), plain


def test_mxfp4_experts_are_dequantized(tmp_path):
    folder, plain = save_mxfp4(tmp_path / "mxfp4")
    shapes = SHAPES | {"sequence_length": 16, "prefill_buckets": (16,), "decode_buckets": (16,), "extend_length": 1}
    model = NeuronModelForCausalLM.from_pretrained(folder, export=True, **shapes, disable_validation=True)
    assert "mxfp4" in model.describe()["weights"]["reason"]
    original = AutoModelForCausalLM.from_config(quantization.with_quantization(model.config, None)).eval()
    original.load_state_dict(plain)
    with torch.no_grad():
        assert_close(model, original(IDS).logits)


def test_other_weights_may_be_quantized_or_not(export_result, tmp_path):
    model = NeuronModelForCausalLM.from_pretrained(export_result[1])
    model.replace_weights(save_tiny(tmp_path / "plain", "llama", seed=3))
    assert_close(model, logits_of(load_file(tmp_path / "plain" / "model.safetensors")))
    folder, tensors = save_fp8(tmp_path / "fp8", seed=5)
    model.replace_weights(folder)
    assert_close(model, logits_of(tensors))
    with pytest.raises(ModelError) as excinfo:
        model.replace_weights(declare(folder, REFUSED["awq"]))
    assert excinfo.value.details["quantization"] == "awq"
    with raises(WeightsError) as error:  # their scales would be ignored
        model.replace_weights(load_file(folder / "model.safetensors"))
    assert "float8_e4m3fn" in " ".join(error.value.details["problems"])


@pytest.mark.parametrize("method", REFUSED)
@pytest.mark.parametrize("entry", ["export", "check", "estimate", "estimate of a configuration"])
def test_other_methods_are_refused_by_name(method, entry, tmp_path):
    tiny_config("llama", architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path / "model")
    folder = declare(tmp_path / "model", REFUSED[method])
    entries = {
        "export": lambda: main_export(folder, tmp_path / "out", **SHAPES),
        "check": lambda: check_model(folder, batch_size=1, sequence_length=16),
        "estimate": lambda: estimate(folder),
        "estimate of a configuration": lambda: estimate(tiny_config("llama", quantization_config=REFUSED[method])),
    }
    with pytest.raises(ModelError) as excinfo:
        entries[entry]()
    assert excinfo.value.details["quantization"] == method and not (tmp_path / "out").exists()


def test_estimate_reports_dequantization(fp8):
    assert any("fp8" in note for note in estimate(fp8[0]).notes)
    assert not any("quantized" in note for note in estimate(tiny_config("llama")).notes)


def test_quantized_model_in_memory_is_refused():
    model = AutoModelForCausalLM.from_config(tiny_config("llama"))
    model.config.quantization_config = dict(REFUSED["bitsandbytes"])
    with pytest.raises(ModelError) as excinfo:
        NeuronModelForCausalLM.from_model(model, **SHAPES)
    assert excinfo.value.details["quantization"] == "bitsandbytes"


def test_inner_text_model_reports_dequantization():
    config = tiny_config("gemma3", text_config=tiny_config("gemma3_text", quantization_config=FP8).to_dict())
    assert quantization.quantization_of(config) == quantization.quantization_of(config.to_dict()) == FP8
    assert quantization.quantization_of(quantization.dequantizing(config)) == FP8 | {"dequantize": True}
    assert quantization.quantization_of(quantization.with_quantization(config, None)) is None


def test_package_of_method_is_named(monkeypatch):
    settings = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}}
    monkeypatch.setattr(quantization.importlib.util, "find_spec", lambda name: None)
    with raises(ModelError, quantization="compressed-tensors", package="compressed-tensors"):
        quantization.require_readable(tiny_config("llama", quantization_config=settings), model="a test")
    monkeypatch.setattr(quantization.importlib.util, "find_spec", lambda name: object())
    quantization.require_readable(tiny_config("llama", quantization_config=settings), model="a test")


def test_layers_in_several_forms_are_refused(monkeypatch):
    """transformers reads all of them by the settings of the first group, experts apart."""
    monkeypatch.setattr(quantization.importlib.util, "find_spec", lambda name: object())
    weights = {"num_bits": 4, "strategy": "group", "group_size": 32}
    other = weights | {"symmetric": False}
    groups = {
        "dense": {"targets": ["Linear"], "weights": weights},
        "other": {"targets": ["re:.*down"], "weights": other},
    }
    settings = {"quant_method": "compressed-tensors", "config_groups": groups}
    with pytest.raises(ModelError) as excinfo:
        quantization.require_readable(tiny_config("llama", quantization_config=settings), model="a test")
    assert excinfo.value.details["quantization"] == "compressed-tensors"
    groups["other"]["targets"] = ["re:.*experts.*"]
    quantization.require_readable(tiny_config("llama", quantization_config=settings), model="a test")


def test_each_method_has_a_dequantize_option():
    for method in quantization.DEQUANTIZED:
        assert "dequantize" in signature(AUTO_QUANTIZATION_CONFIG_MAPPING[method].__init__).parameters
