"""Export with quantized weights: every path, two cores, folders, other weights, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, QuantoConfig

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import main_export, translate
from optimum_neuron.weights import Scheme, dequantize
from tests.tiny import SMALL, VOCABULARY, save_tiny

WIDE = {"hidden_size": 64, "num_hidden_layers": 2, "tie_word_embeddings": True}
IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
TWO_CORES = {"tensor_parallel_size": 2}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("plain") / "llama", "llama", **WIDE)


@pytest.fixture(scope="module")
def export_result(checkpoint, tmp_path_factory):
    output = tmp_path_factory.mktemp("exported") / "int8"
    return main_export(checkpoint, output, quantization="int8", **SMALL).to_dict(), output


def expected_logits(folder, scheme="int8"):
    """Logits of transformers' model with the weights that a user's own code would round."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                parts = Scheme.parse("int8" if "embed" in name else scheme).quantize(weight)
                weight.copy_(dequantize(parts["values"], parts["scale"], parts.get("zero")))
        return model(IDS).logits


def test_nxd_inference_spells_dynamic_activations():
    dynamic = {"quantized": True, "activation_quantization_type": "dynamic"}
    assert translate(dynamic) == {"quantization": "int8-dynamic"}
    assert translate(dynamic | {"quantization_dtype": "f8e4m3"}) == {"quantization": "fp8-dynamic"}


def assert_close(model, logits):
    torch.testing.assert_close(model(IDS).logits, logits, atol=1e-4, rtol=1e-4)


def test_report_names_the_scheme_and_what_stays(export_result):
    data, output = export_result
    assert data["quantization"]["value"] == "int8" and "norms" in data["quantization"]["reason"]
    assert all(error["ok"] for error in data["validation"])
    stored = load_file(output / "model.safetensors")
    assert stored["model.layers.0.mlp.down_proj.weight:int8"].dtype == torch.int8
    assert stored["model.embed_tokens.weight:int8.scale"].dtype == torch.float32
    assert data["hbm_bytes"]["weights"] < 0.4 * sum(t.numel() * 4 for t in stored.values())


def test_exported_folder_takes_other_weights_without_compiling(checkpoint, export_result, tmp_path):
    model = NeuronModelForCausalLM.from_pretrained(export_result[1])
    assert_close(model, expected_logits(checkpoint))
    other = save_tiny(tmp_path / "tuned", "llama", seed=7, **WIDE)
    model.replace_weights(other)
    assert_close(model, expected_logits(other))


@pytest.mark.full(days=2)
@pytest.mark.parametrize(("scheme", "options"), [("int8-dynamic", {"family": "generic"}), ("int8-dynamic", TWO_CORES)])
def test_activations_are_rounded_as_in_the_reference(scheme, options, checkpoint, tmp_path):
    config = SMALL | {"instance_type": "trn1.32xlarge", "quantization": scheme} | options
    data = main_export(checkpoint, tmp_path / "out", **config).to_dict()
    assert data["quantization"]["value"] == scheme and "int8" in data["quantization"]["reason"]
    assert max(error["max_abs_error"] for error in data["validation"]) < 1e-4
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored["model.layers.0.mlp.down_proj.weight:int8-dynamic"].dtype == torch.int8
    model = NeuronModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (model(IDS).logits - expected_logits(checkpoint)).abs().max() > 1e-3, "activations are rounded too"


@pytest.mark.full(days=3)
@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("int8", TWO_CORES),
        ("int4", TWO_CORES),
        ("fp8", {"family": "generic"}),
        ("int4-g64-zp", {"family": "generic"}),
        ("fp8-g32", {"instance_type": "trn3"}),
    ],
)
def test_schemes_agree_with_dequantized_weights(scheme, options, checkpoint):
    config = SMALL | {"instance_type": "trn1.32xlarge"} | options
    model = NeuronModelForCausalLM.from_pretrained(
        checkpoint, export=True, quantization=scheme, disable_validation=True, **config
    )
    assert_close(model, expected_logits(checkpoint, scheme))


@pytest.mark.parametrize("options", [TWO_CORES, {"family": "generic"}], ids=["2 cores", "generic"])
def test_weights_with_inputs_first_are_rounded_by_outputs(options, tmp_path):
    folder = save_tiny(tmp_path / "gpt2", "gpt2", num_hidden_layers=1)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "wpe" not in name:
                outputs = 1 if "wte" in name else 0
                scale = weight.abs().amax(outputs, keepdim=True) / 127
                weight.copy_((weight / scale).round() * scale)
        expected = model(IDS).logits
    config = SMALL | {"instance_type": "trn1.32xlarge", "quantization": "int8"} | options
    compiled = NeuronModelForCausalLM.from_pretrained(folder, export=True, disable_validation=True, **config)
    assert_close(compiled, expected)
    rounded = {name.partition("@")[0] for name, spec in compiled.loaded.program.weights.items() if spec.dtype == "int8"}
    assert len(rounded) == 5, "four matrices and the head"
    compiled.close()


def test_modules_to_not_convert_stay(checkpoint):
    keep = ["lm_head", "embed_tokens", "model.layers.1", "up_proj"]
    options = {"quantization_config": QuantoConfig(weights="int8", modules_to_not_convert=keep[1:])}
    model = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, disable_validation=True, **SMALL, **options)
    dtypes = {name: spec.dtype for name, spec in model.loaded.program.weights.items() if name.endswith("weight")}
    assert dtypes["model.embed.weight"] == dtypes["model.layers.1.mlp.down.weight"] == "float32"
    assert dtypes["model.layers.0.mlp.gate_up.weight"] == "float32"  # up_proj is a part of it
    assert dtypes["model.layers.0.mlp.down.weight"] == "int8"
    described = json.dumps(model.describe()["quantization"])
    assert "modules_to_not_convert" in described


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"quantization": "int3"}, ConfigError),
        ({"quantization": "int8", "auto_cast": "all"}, ConfigError),
        ({"modules_to_not_convert": ["lm_head"]}, ConfigError),
        ({"quantization": "int8", "modules_to_not_convert": ["lm_heat"]}, ModelError),
        ({"quantization": "int4-g128"}, ModelError),
        ({"quantization_config": QuantoConfig(weights="int2")}, ConfigError),
        ({"quantized": True, "quantization_type": "per_tensor_symmetric"}, ConfigError),
        ({"quantized": True, "activation_quantization_type": "static"}, ConfigError),
        ({"quantization": "int8-g32-dynamic"}, ConfigError),
        ({"quantization": "mxfp4"}, ModelError),
        ({"quantization": "int8-g1024"}, ModelError),
    ],
)
def test_what_cannot_be_quantized_is_refused(options, error, checkpoint, tmp_path):
    keep = {} if "int4" not in options.get("quantization", "") else {"modules_to_not_convert": ["embed_tokens"]}
    with pytest.raises(error) as excinfo:
        main_export(checkpoint, tmp_path / "out", **SMALL, **keep, **options)
    assert {"option", "options"} & excinfo.value.details.keys()


@pytest.mark.full(days=2)
@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_code_that_reads_a_weight_itself_gets_it_dequantized(scheme, tmp_path):
    """Mamba multiplies by the weight of a layer that it does not call, and casts to the dtype of the head's."""
    folder = save_tiny(tmp_path, "mamba", hidden_size=64, num_hidden_layers=2, state_size=8)
    with NeuronModelForCausalLM.from_pretrained(folder, export=True, quantization=scheme, **SMALL) as model:
        assert all(error.ok for error in model.prepared.validation)
