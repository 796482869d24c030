"""Mixtures published with quantized experts run on their own numbers: mxfp4, and a matrix for each expert."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import WeightsError
from optimum_neuron.weights import Checkpoint, PublishedExperts, QuantizedSource
from tests.exporters.test_published import SETTINGS, save_published, store
from tests.models.mixtures import GPT_OSS, QWEN
from tests.tiny import SMALL, VOCABULARY, save_tiny, tiny_config

IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
WIDE = {"hidden_size": 64, "num_hidden_layers": 2, "moe_intermediate_size": 64, "tie_word_embeddings": False}
LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
"""Values of fp4 e2m1 (OCP Microscaling Formats 1.0, table 5)."""


def write_settings(folder, settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))


def save_gpt_oss(folder):
    """Write gpt-oss with random fp4 experts; return the tensors that it stands for."""
    options = GPT_OSS | WIDE | {"layer_types": ["sliding_attention", "full_attention"]}
    tensors = load_file(save_tiny(folder, "gpt_oss", **options) / "model.safetensors")
    plain, stored, generator = dict(tensors), dict(tensors), torch.Generator().manual_seed(0)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        num_experts, num_inputs, num_outputs = stored.pop(name).shape
        codes = torch.randint(16, (num_experts, num_outputs, num_inputs // 32, 32), generator=generator)
        exponents = torch.randint(118, 122, codes.shape[:3], generator=generator)
        weight = LEVELS[codes] * 2.0 ** (exponents[..., None] - 127)
        plain[name] = weight.flatten(2).transpose(1, 2).contiguous()
        stored[f"{name}_blocks"] = (codes[..., ::2] | (codes[..., 1::2] << 4)).to(torch.uint8)
        stored[f"{name}_scales"] = exponents.to(torch.uint8)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    write_settings(folder, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})
    return plain, options


def save_qwen(folder, method):
    """Write Qwen3 MoE with a quantized matrix for each expert; return the tensors that it stands for."""
    options = QWEN | WIDE | {"head_dim": 16}
    tensors = load_file(save_tiny(folder, "qwen3_moe", **options) / "model.safetensors")
    plain, stored, generator = dict(tensors), dict(tensors), torch.Generator().manual_seed(0)
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        parts, plain[name] = store(method, stored.pop(name), generator)
        stored |= {f"{name.removesuffix('weight')}{part}": tensor.contiguous() for part, tensor in parts.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    write_settings(folder, SETTINGS[method])
    return plain, options


def reference(kind, options, plain, folder):
    """Return transformers' model with plain tensors, as it loads them from a file."""
    folder.mkdir()
    tiny_config(kind, **options).save_pretrained(folder)
    save_file(plain, folder / "model.safetensors", metadata={"format": "pt"})
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.full(days=4)
@pytest.mark.parametrize("method", ["mxfp4", "fp8", "gptq", "int-quantized"])
def test_numbers_of_experts_are_kept(method, tmp_path):
    kind = "gpt_oss" if method == "mxfp4" else "qwen3_moe"
    plain, options = save_gpt_oss(tmp_path / "m") if method == "mxfp4" else save_qwen(tmp_path / "m", method)
    original = reference(kind, options, plain, tmp_path / "plain")
    model = NeuronModelForCausalLM.from_pretrained(
        tmp_path / "m", export=True, **SMALL, disable_validation=method != "mxfp4"
    )
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, original(IDS).logits, atol=2e-4, rtol=2e-4)
    weights = model.loaded.program.weights
    experts = {spec.dtype for name, spec in weights.items() if name.endswith("experts.gate_up_proj")}
    assert experts == {{"mxfp4": "uint8", "fp8": "float8_e4m3fn", "gptq": "uint8", "int-quantized": "int8"}[method]}
    assert (
        f"in the layout of {SETTINGS[method]['quant_method'] if method in SETTINGS else method}"
        in (model.describe()["stored_as"]["reason"])
    )


def test_mxfp4_numbers_are_views_of_the_file(tmp_path):
    save_gpt_oss(tmp_path / "m")
    checkpoint = Checkpoint.open(tmp_path / "m")
    name = "model.layers.1.mlp.experts.down_proj"
    source = QuantizedSource(PublishedExperts(checkpoint), [f"{name}:mxfp4-t", f"{name}:mxfp4-t.scale"])
    for part, stored in (("", "_blocks"), (".scale", "_scales")):
        tensor, is_copied = source.join([f"{name}:mxfp4-t{part}"])
        assert tensor.data_ptr() == checkpoint.join([name + stored])[0].data_ptr() and not is_copied
        assert source.specs[f"{name}:mxfp4-t{part}"].shape == tuple(tensor.shape)


def test_missing_and_wrong_parts_are_named_at_once(tmp_path):
    save_gpt_oss(tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    stored = load_file(path)
    del stored["model.layers.0.mlp.experts.gate_up_proj_scales"]
    name = "model.layers.1.mlp.experts.down_proj_scales"
    stored[name] = stored[name][..., :1].clone()
    save_file(stored, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError) as failure:
        NeuronModelForCausalLM.from_pretrained(tmp_path / "m", export=True, **SMALL)
    assert len(failure.value.details["problems"]) == 2


def test_wrong_matrices_are_named_at_once(tmp_path):
    save_published(tmp_path / "m", "awq")
    path = tmp_path / "m" / "model.safetensors"
    stored = load_file(path)
    del stored["model.layers.0.mlp.up_proj.scales"]
    for name in ("model.layers.1.mlp.up_proj.scales", "model.layers.1.mlp.up_proj.qzeros"):
        stored[name] = torch.cat([stored[name], stored[name][:1]])
    save_file(stored, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError) as failure:
        NeuronModelForCausalLM.from_pretrained(tmp_path / "m", export=True, **SMALL)
    first, second = failure.value.details["problems"]
    assert "up_proj lacks scales" in first and "scales of shape [3, 64]" in second
