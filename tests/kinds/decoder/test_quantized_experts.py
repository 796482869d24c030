"""Experts with quantized weights: families, the generic path, two cores, and gpt-oss in mxfp4 as it is published."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.weights import Scheme, dequantize
from tests.models.mixtures import DEEPSEEK, GPT_OSS, QWEN
from tests.tiny import SMALL, VOCABULARY, save_tiny

IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
WIDE = {"hidden_size": 64, "num_hidden_layers": 2, "moe_intermediate_size": 64, "tie_word_embeddings": False}
MODELS = {
    "mixtral": {},
    "qwen3_moe": QWEN,
    "gpt_oss": GPT_OSS | {"layer_types": ["sliding_attention", "full_attention"]},
    "gpt_oss, wide": GPT_OSS | {"layer_types": ["sliding_attention", "full_attention"], "intermediate_size": 96},
    "deepseek_v3": DEEPSEEK,
}
"""Three groups of the width of "gpt_oss, wide" are two for one core, and one and padding for the other."""
TRANSPOSED = ("gpt_oss", "gpt_oss, wide")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("mixtures")
    return {kind: save_tiny(root / kind, kind.partition(",")[0], **MODELS[kind] | WIDE) for kind in MODELS}


def rounded(weight, scheme, *, is_transposed):
    """Return a weight as it is after quantizing, one expert after the other."""
    each = []
    for matrix in weight:
        parts = scheme.quantize(matrix.t() if is_transposed else matrix)
        plain = dequantize(parts["values"], parts["scale"], parts.get("zero"))
        each.append(plain.t() if is_transposed else plain)
    return torch.stack(each)


def expected_logits(folder, kind, scheme):
    """Logits of transformers' model whose experts, and nothing else, are rounded."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".experts." in name and weight.dim() == 3:
                weight.copy_(rounded(weight, Scheme.parse(scheme), is_transposed=kind in TRANSPOSED))
        return model(IDS).logits


@pytest.mark.full(days=4)
@pytest.mark.parametrize(
    ("kind", "scheme", "options"),
    [
        ("mixtral", "int8", {}),
        ("qwen3_moe", "int4", {"tensor_parallel_size": 2}),
        ("gpt_oss", "mxfp4", {}),
        ("gpt_oss", "mxfp4", {"family": "generic"}),
        ("gpt_oss, wide", "int4-g32-zp", {"tensor_parallel_size": 2}),
        ("deepseek_v3", "fp8-g32", {"tensor_parallel_size": 2}),
        ("mixtral", "int8-g32", {"family": "generic", "tensor_parallel_size": 2}),
    ],
)
def test_experts_agree_with_dequantized_weights(kind, scheme, options, checkpoints):
    plain = ["self_attn", "lm_head", "shared_experts", "layers.0.mlp.gate_proj"]
    plain += ["layers.0.mlp.up_proj", "layers.0.mlp.down_proj"]
    model = NeuronModelForCausalLM.from_pretrained(
        checkpoints[kind],
        export=True,
        quantization=scheme,
        modules_to_not_convert=plain if kind == "deepseek_v3" else plain[:2],
        disable_validation=True,
        **SMALL | {"instance_type": "trn1.32xlarge"} | options,
    )
    weights = {name.partition("@")[0]: spec for name, spec in model.loaded.program.weights.items()}
    dtypes = {spec.dtype for name, spec in weights.items() if name.endswith("experts.down_proj")}
    assert dtypes == {Scheme.parse(scheme).specs(32, 32)["values"].dtype}
    expected = expected_logits(checkpoints[kind], kind, scheme)
    torch.testing.assert_close(model(IDS).logits, expected, atol=2e-4, rtol=2e-4)
    # One token for each row: experts are picked by token.
    step = model(IDS[:, :1]).logits
    torch.testing.assert_close(step[:, -1], expected[:, 0], atol=2e-4, rtol=2e-4)
