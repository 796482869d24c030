"""Checkpoints published with quantized weights run on their own numbers; they are written here in each layout."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.kinds import cached_logits
from optimum_neuron.simulator import estimate
from optimum_neuron.sources import quantization
from optimum_neuron.upstream.cache_argument import CACHE
from optimum_neuron.weights import READERS
from tests.tiny import SMALL, VOCABULARY, save_tiny, tiny_config

GROUP = 32
WIDE = {"hidden_size": 64, "num_hidden_layers": 2}
IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
PACKED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": False}


def compressed(weights, activations=None):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights, "input_activations": activations}},
        "ignore": ["lm_head"],
    }


def compressed_groups(*weights):
    groups = {f"group_{number}": {"weights": one} for number, one in enumerate(weights)}
    return compressed(weights[0]) | {"config_groups": groups}


TOKENS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}


SETTINGS = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [GROUP, GROUP]},
    "float-quantized": compressed({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}),
    "int-quantized": compressed(INT8),
    "pack-quantized": compressed(PACKED),
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False},
    "gptq, reordered": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
}


def packed(numbers, bits=4, order=range(8)):
    """Pack the columns of a matrix of small numbers into int32, by arithmetic on int64."""
    columns = numbers.long().unflatten(1, (-1, 32 // bits))
    word = sum(columns[..., column] << (bits * place) for place, column in enumerate(order))
    return torch.where(word >= 2**31, word - 2**32, word).to(torch.int32)


def store(method, weight, generator):
    """Return the tensors of a module in a layout, and the weight that they stand for."""
    num_outputs, num_inputs = weight.shape
    if method == "fp8":
        blocks = weight.view(num_outputs // GROUP, GROUP, -1, GROUP)
        scale = blocks.abs().amax((1, 3), keepdim=True) / 448
        numbers = (blocks / scale).to(torch.float8_e4m3fn)
        parts = {"weight": numbers.view(weight.shape), "weight_scale_inv": scale[:, 0, :, 0].contiguous()}
        return parts, (numbers.float() * scale).view(weight.shape)
    if method in ("float-quantized", "int-quantized"):
        limit = 448 if method == "float-quantized" else 127
        scale = (weight.abs().amax(1, keepdim=True) / limit).bfloat16()
        numbers = weight / scale.float()
        numbers = numbers.to(torch.float8_e4m3fn) if limit == 448 else numbers.round().clamp(-127, 127).to(torch.int8)
        return {"weight": numbers, "weight_scale": scale}, numbers.float() * scale.float()
    numbers = torch.randint(16, weight.shape, generator=generator)
    num_groups = num_inputs // GROUP
    scale = (torch.rand(num_outputs, num_groups, generator=generator) / 40 + 0.01).half()
    zero = torch.randint(5, 12, scale.shape, generator=generator)
    groups = torch.arange(num_inputs) // GROUP
    if method == "gptq, reordered":
        zero.fill_(8)
        groups = groups[torch.randperm(num_inputs, generator=generator)]
    plain = (numbers - zero[:, groups]) * scale.float()[:, groups]
    if method == "pack-quantized":
        shape = torch.tensor(weight.shape)
        parts = {"weight_packed": packed(numbers), "weight_scale": scale, "weight_shape": shape}
        return parts | {"weight_zero_point": packed(zero.t()).t()}, plain
    if method == "awq":
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        return {
            "qweight": packed(numbers.t(), order=order),
            "qzeros": packed(zero.t(), order=order),
            "scales": scale.t().contiguous(),
        }, plain
    return {
        "qweight": packed(numbers).t().contiguous(),
        "qzeros": packed(zero.t() - 1),
        "scales": scale.t().contiguous(),
        "g_idx": groups.to(torch.int32),
    }, plain


def save_published(folder, method):
    """Write a Llama whose projections are quantized; return the tensors that it stands for."""
    generator = torch.Generator().manual_seed(0)
    tensors = load_file(save_tiny(folder, "llama", **WIDE) / "model.safetensors")
    plain, stored = dict(tensors), dict(tensors)
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        parts, plain[name] = store(method, stored.pop(name), generator)
        stored |= {f"{name.removesuffix('weight')}{part}": tensor.contiguous() for part, tensor in parts.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": SETTINGS[method]}))
    return plain


@pytest.mark.full(days=4)
@pytest.mark.parametrize("method", SETTINGS)
def test_published_numbers_are_kept(method, tmp_path):
    plain = save_published(tmp_path / "model", method)
    original = AutoModelForCausalLM.from_config(tiny_config("llama", **WIDE)).eval()
    original.load_state_dict(plain)
    model = NeuronModelForCausalLM.from_pretrained(
        tmp_path / "model", export=True, **SMALL, disable_validation=method != "gptq"
    )
    with torch.no_grad():
        expected = original(IDS).logits
    actual = model(IDS).logits
    if method == "gptq, reordered":  # groups that are no neighbors are rounded to groups that are
        assert (actual.argmax(-1) == expected.argmax(-1)).float().mean() > 0.7
        assert "rounded once more, because desc_act" in model.describe()["stored_as"]["reason"]
    else:
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    scheme = quantization.published_scheme(SETTINGS[method]).value
    assert model.describe()["quantization"]["value"] == scheme
    dtypes = {name: spec.dtype for name, spec in model.loaded.program.weights.items()}
    assert dtypes["model.head.weight"] == "float32" and dtypes["model.layers.0.mlp.down.weight"] != "float32"
    if method == "awq":
        options = {name: value for name, value in SMALL.items() if name not in ("optlevel", "torch_dtype")}
        estimated, exported = estimate(tmp_path / "model", dtype="fp32", **options), model.estimate()
        assert estimated.memory == exported.memory and estimated.quantities == exported.quantities


@pytest.mark.full(days=2)
@pytest.mark.parametrize("chosen", [{}, {"kv_cache_dtype": "int8"}], ids=len)
def test_weights_and_cache_may_both_be_published_in_8_bits(chosen, tmp_path):
    """As llm-compressor writes FP8 with a `kv_cache_scheme`: numbers of the weights, and scales of keys and values."""
    folder = tmp_path / "model"
    plain = save_published(folder, "float-quantized")
    scales = {f"model.layers.{layer}.self_attn.{kind}_scale": 0.02 for layer in range(2) for kind in "kv"}
    tensors = load_file(folder / "model.safetensors")
    tensors |= {name: torch.tensor([scale]).bfloat16() for name, scale in scales.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    cache = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
    data = json.loads((folder / "config.json").read_text())
    data["quantization_config"]["kv_cache_scheme"] = cache
    (folder / "config.json").write_text(json.dumps(data))

    model = NeuronModelForCausalLM.from_pretrained(folder, export=True, **SMALL | chosen)
    report = model.describe()
    stored = "int8" if chosen else "fp8-static"
    assert (report["quantization"]["value"], report["kv_cache"]["value"]) == ("fp8", stored)
    dtypes = {name: spec.dtype for name, spec in model.loaded.program.weights.items()}
    assert dtypes["model.layers.0.mlp.down.weight"] == "float8_e4m3fn"
    states = {name.partition(".")[0]: spec.dtype for name, spec in model.loaded.program.states.items()}
    assert states["key_cache"] == ("int8" if chosen else "float8_e4m3fn")

    original = AutoModelForCausalLM.from_config(tiny_config("llama", **WIDE)).eval()
    original.load_state_dict(plain)
    dtype = torch.int8 if chosen else torch.float8_e4m3fn
    layers = {} if chosen else {layer: [torch.tensor([0.02]).bfloat16().float()] * 2 for layer in range(2)}
    with torch.no_grad():
        expected = cached_logits(original, IDS[:1], dtype, num_exact=6, scales=layers)
    outputs = model(IDS[:1, :6])
    logits = [outputs.logits]
    for column in range(6, 9):
        outputs = model(IDS[:1, column : column + 1], **{CACHE: outputs[CACHE]})
        logits.append(outputs.logits)
    torch.testing.assert_close(torch.cat(logits, 1), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("settings", "scheme"),
    [
        (SETTINGS["awq"] | {"group_size": 128}, "int4-g128-zp"),
        (SETTINGS["gptq"] | {"group_size": -1, "sym": True}, "int4-g32"),
        (SETTINGS["gptq"] | {"bits": 3}, None),
        (SETTINGS["awq"] | {"version": "gemv"}, None),
        (SETTINGS["awq"] | {"version": "GEMM"}, "int4-g32-zp"),
        (SETTINGS["awq"] | {"quant_method": "AWQ", "version": "GEMM_FAST"}, None),
        (SETTINGS["awq"] | {"quant_method": "AWQ"}, "int4-g32-zp"),
        (SETTINGS["awq"] | {"backend": "llm-awq"}, None),
        (SETTINGS["gptq"] | {"checkpoint_format": "marlin"}, None),
        (SETTINGS["gptq"] | {"format": "GPTQ_V2"}, "int4-g32-zp"),
        (SETTINGS["gptq"] | {"pack_dtype": "int64"}, None),
        (compressed(PACKED) | {"sparsity_config": {"format": "sparse-24-bitmask"}}, None),
        (compressed(PACKED) | {"format": "marlin-24"}, None),
        (compressed(PACKED) | {"transform_config": {"config_groups": {"R1": {"type": "hadamard"}}}}, None),
        (compressed({"symmetric": True, "group_size": 32}), "int8-g32"),
        (compressed_groups(PACKED, PACKED), "int4-g32-zp"),
        (compressed_groups(PACKED, PACKED | {"symmetric": True}), None),
        (compressed_groups(PACKED, None), "int4-g32-zp"),
        (SETTINGS["awq"] | {"zero_point": False}, "int4-g32-zp"),
        (compressed(INT8 | {"strategy": "tensor_group"}), None),
        (SETTINGS["fp8"] | {"expert_dtype": "fp4"}, None),
        ({"quant_method": "fp8"}, "fp8-g128"),
        (compressed(PACKED | {"num_bits": 8, "symmetric": True}), "int8-g32"),
        (compressed(INT8, TOKENS), "int8-dynamic"),
        (compressed(INT8, TOKENS | {"dynamic": False, "strategy": "tensor"}), "int8"),
        (compressed(INT8, TOKENS | {"symmetric": False}), "int8"),
        (SETTINGS["fp8"] | {"weight_block_size": None}, "fp8"),
        (SETTINGS["fp8"] | {"weight_block_size": [16, 16]}, None),
        ({"quant_method": "bitsandbytes"}, None),
    ],
)
def test_scheme_follows_settings(settings, scheme):
    choice = quantization.published_scheme(settings)
    assert choice.value == scheme and choice.reason


def test_every_layout_has_settings():
    methods = {settings["quant_method"] for settings in SETTINGS.values()}
    assert methods == set(READERS)
