"""Published checkpoints whose matrices are no multiples of their blocks: whole models, divided, fused, and experts."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from optimum_neuron import NeuronModelForCausalLM
from tests.exporters.test_published_experts import reference, write_settings
from tests.models.mixtures import DEEPSEEK, QWEN
from tests.tiny import SMALL, VOCABULARY, save_tiny

BLOCK = 32
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
TWO_CORES = {"tensor_parallel_size": 2, "instance_type": "trn1.32xlarge"}
SHARED = {"hidden_size": 64, "num_hidden_layers": 2, "tie_word_embeddings": False}
MODELS = {
    # Rows of 96, 48, and 80: two cores divide a block, and inputs of 80 have a last block of 16.
    "llama": ("llama", SHARED | {"head_dim": 24, "intermediate_size": 80}, {}),
    "llama on two cores": ("llama", SHARED | {"head_dim": 24, "intermediate_size": 80}, TWO_CORES),
    # Keys and values of 48 in one matrix, gate and up of 72 in another: blocks lie across their borders.
    "fused": ("phi3", SHARED | {"head_dim": 24, "intermediate_size": 72}, {}),
    "fused on two cores": ("phi3", SHARED | {"head_dim": 24, "intermediate_size": 72}, TWO_CORES),
    "experts": ("qwen3_moe", QWEN | SHARED | {"head_dim": 16, "moe_intermediate_size": 48}, {}),
    "experts on two cores": ("qwen3_moe", QWEN | SHARED | {"head_dim": 16, "moe_intermediate_size": 48}, TWO_CORES),
    "latent attention": ("deepseek_v3", DEEPSEEK | SHARED | {"kv_lora_rank": 32, "moe_intermediate_size": 48}, {}),
}


def quantized(weight):
    """Return float8 numbers, the scales of their blocks, and the weight that they stand for."""
    num_outputs, num_inputs = weight.shape
    grid = (-(-num_outputs // BLOCK), -(-num_inputs // BLOCK))
    padded = torch.zeros(grid[0] * BLOCK, grid[1] * BLOCK)
    padded[:num_outputs, :num_inputs] = weight
    blocks = padded.view(grid[0], BLOCK, grid[1], BLOCK)
    scale = blocks.abs().amax((1, 3), keepdim=True) / 448
    # A wrong block's scale has to show.
    scale = scale * torch.logspace(0, 0.6, scale.numel()).view(scale.shape)
    numbers = (blocks / scale).to(torch.float8_e4m3fn)
    plain = (numbers.float() * scale).view(padded.shape)[:num_outputs, :num_inputs].contiguous()
    return numbers.view(padded.shape)[:num_outputs, :num_inputs].contiguous(), scale[:, 0, :, 0].contiguous(), plain


def save_fp8(folder, kind, sizes):
    """Write a model whose projections are in blocks of fp8; return the tensors that it stands for."""
    tensors = load_file(save_tiny(folder, kind, **sizes) / "model.safetensors")
    plain, stored = dict(tensors), dict(tensors)
    names = [name for name in tensors if "proj" in name and name.endswith(".weight")]
    for one in names:
        stored[one], stored[f"{one}_scale_inv"], plain[one] = quantized(tensors[one])
    assert any(tensors[one].shape[0] % BLOCK for one in names)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    write_settings(folder, FP8)
    return plain


@pytest.mark.full(days=3)
@pytest.mark.parametrize("name", MODELS)
def test_blocks_need_not_divide(name, tmp_path):
    kind, sizes, options = MODELS[name]
    plain = save_fp8(tmp_path / "m", kind, sizes)
    original = reference(kind, sizes, plain, tmp_path / "plain")
    model = NeuronModelForCausalLM.from_pretrained(tmp_path / "m", export=True, **SMALL | options)
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, original(IDS).logits, atol=2e-4, rtol=2e-4)
    dtypes = {spec.dtype for spec in model.loaded.program.weights.values()}
    assert "float8_e4m3fn" in dtypes
    assert model.describe()["reference_weights"]["value"] == "transformers"
