"""Adapters merged into their base model: results match plain PEFT, exported in one command; mistakes are errors."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ModelError, WeightsError
from optimum_neuron.exporters import main_export
from optimum_neuron.sources import merge_adapter, read_lora
from tests.exporters.test_published_experts import reference
from tests.exporters.test_published_shapes import MODELS, save_fp8
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, VOCABULARY

peft = pytest.importorskip("peft")

IDS = torch.randint(3, NUM_BYTE_TOKENS, (2, 9), generator=torch.Generator().manual_seed(2))
LORA = dict(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def save_adapter(checkpoint, folder, config, auto_class=AutoModelForCausalLM, **options):
    """Write an adapter with weights other than the initial ones; return the model with it."""
    torch.manual_seed(1)
    model = peft.get_peft_model(auto_class.from_pretrained(checkpoint, dtype=torch.float32, **options), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1 if "magnitude" in name else 0.3)
    model.save_pretrained(folder)
    return model.eval()


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


IA3 = dict(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM")


@pytest.mark.parametrize(
    "config",
    [peft.LoraConfig(**LORA), peft.LoraConfig(**LORA, use_dora=True), peft.IA3Config(**IA3)],
    ids=["LoRA", "DoRA", "IA3"],
)
def test_merged_model_matches_adapter_model(checkpoint, tmp_path, config):
    adapted = save_adapter(checkpoint, tmp_path / "adapter", config)
    merged = merge_adapter(checkpoint, tmp_path / "adapter", tmp_path / "merged")
    result = logits(AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval())
    plain = logits(AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval())
    assert torch.allclose(result, logits(adapted), atol=1e-4) and not torch.allclose(result, plain, atol=1e-2)
    assert not (merged / "adapter_config.json").exists()
    assert {path.name for path in checkpoint.glob("tokenizer*")} == {path.name for path in merged.glob("tokenizer*")}


def test_quantized_base_is_dequantized_before(tmp_path):
    """Keys and values have 48 rows, one block of 32 and a half: transformers would give each scale 24 rows."""
    kind, sizes, _ = MODELS["llama"]
    plain = save_fp8(tmp_path / "fp8", kind, sizes)
    reference(kind, sizes, plain, tmp_path / "plain")
    adapted = save_adapter(tmp_path / "plain", tmp_path / "adapter", peft.LoraConfig(**LORA))
    merged = merge_adapter(tmp_path / "fp8", tmp_path / "adapter", tmp_path / "merged")
    assert "quantization_config" not in json.loads((merged / "config.json").read_text())
    ids = IDS % VOCABULARY
    with torch.no_grad():
        result = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()(ids).logits
        torch.testing.assert_close(result, adapted(ids).logits, atol=1e-4, rtol=1e-4)


def test_export_with_adapter(checkpoint, tmp_path):
    adapted = save_adapter(checkpoint, tmp_path / "adapter", peft.LoraConfig(**LORA))
    report = main_export(checkpoint, tmp_path / "out", adapter=tmp_path / "adapter", **SHAPES)
    assert report.to_dict()["model"] == f"{checkpoint} with {tmp_path / 'adapter'}"
    model = NeuronModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.allclose(logits(model), logits(adapted), atol=1e-3)


def test_head_trained_with_adapter(checkpoint, tmp_path):
    config = peft.LoraConfig(**{**LORA, "task_type": "SEQ_CLS"})
    options = {"num_labels": 5, "pad_token_id": 0}
    adapted = save_adapter(checkpoint, tmp_path / "adapter", config, AutoModelForSequenceClassification, **options)
    merged = merge_adapter(checkpoint, tmp_path / "adapter", tmp_path / "merged")
    model = AutoModelForSequenceClassification.from_pretrained(merged, dtype=torch.float32, pad_token_id=0).eval()
    assert model.config.num_labels == 5
    assert torch.allclose(model(IDS[:1]).logits, adapted(IDS[:1]).logits, atol=1e-4)


def test_invalid_adapter_and_adapter_as_model(checkpoint, tmp_path):
    with raises(ModelError, adapter=str(checkpoint), is_model=True):
        merge_adapter(checkpoint, checkpoint, tmp_path / "merged")
    (tmp_path / "empty").mkdir()
    with raises(ModelError, adapter=str(tmp_path / "empty"), is_model=False):
        merge_adapter(checkpoint, tmp_path / "empty", tmp_path / "merged")
    save_adapter(checkpoint, tmp_path / "adapter", peft.LoraConfig(**LORA))
    with raises(ModelError, model=str(tmp_path / "adapter"), reason="adapter"):
        main_export(tmp_path / "adapter", tmp_path / "out")


def test_prompt_adapters_cannot_be_merged_and_output_is_not_overwritten(checkpoint, tmp_path):
    save_adapter(checkpoint, tmp_path / "adapter", peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"))
    with raises(ConfigError, method="PROMPT_TUNING"):
        merge_adapter(checkpoint, tmp_path / "adapter", tmp_path / "merged")
    with raises(ConfigError, output=str(tmp_path / "adapter")):
        merge_adapter(checkpoint, tmp_path / "adapter", tmp_path / "adapter")


@pytest.mark.parametrize("change", ["layers", "width", "names"])
def test_adapter_of_another_model(checkpoint, tmp_path, change):
    save_adapter(checkpoint, tmp_path / "adapter", peft.LoraConfig(**LORA))
    if change == "names":
        path = tmp_path / "adapter" / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "target_modules": ["query"]}))
        base = checkpoint
    else:
        base = tmp_path / "base"
        size = {"num_hidden_layers": 1} if change == "layers" else {"hidden_size": 64, "head_dim": 16}
        config = AutoModelForCausalLM.from_pretrained(checkpoint).config
        for name, value in size.items():
            setattr(config, name, value)
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: config.num_hidden_layers]
        AutoModelForCausalLM.from_config(config).save_pretrained(base)
    with raises(WeightsError, adapter=str(tmp_path / "adapter"), base_model=str(base)):
        merge_adapter(base, tmp_path / "adapter", tmp_path / "merged")


GROWN = {
    "resized": {},
    "head saved": {"modules_to_save": ["embed_tokens", "lm_head"]},
    "tokens": {"trainable_token_indices": {"embed_tokens": [1, NUM_BYTE_TOKENS + 1]}},
    "embeddings are targets": {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
}


def save_grown(checkpoint, folder, options):
    """Write an adapter that was trained after the vocabulary grew by 7 tokens; return the model with it."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    model.resize_token_embeddings(NUM_BYTE_TOKENS + 7, mean_resizing=False)
    adapted = peft.get_peft_model(model, peft.LoraConfig(**LORA | options))
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    adapted.save_pretrained(folder)
    return adapted.eval()


@pytest.mark.full(days=4)
@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`")
@pytest.mark.parametrize("kind", GROWN)
def test_adapter_of_a_larger_vocabulary(kind, checkpoint, tmp_path):
    """PEFT's own merge is the reference; new tokens have their own logits."""
    ids = torch.tensor([[5, NUM_BYTE_TOKENS + 1, 6]])
    adapted = save_grown(checkpoint, tmp_path / "adapter", GROWN[kind])
    with torch.no_grad():
        expected = adapted.merge_and_unload()(ids).logits
    merged = merge_adapter(checkpoint, tmp_path / "adapter", tmp_path / "merged")
    with NeuronModelForCausalLM.from_pretrained(merged, export=True, **SHAPES) as model:
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`")
def test_adapter_that_lacks_new_rows_of_the_head(checkpoint, tmp_path):
    """PEFT does not save them, so nobody has them."""
    save_grown(checkpoint, tmp_path / "adapter", {"target_modules": ["q_proj", "embed_tokens"]})
    with raises(WeightsError, adapter=str(tmp_path / "adapter")):
        merge_adapter(checkpoint, tmp_path / "adapter", tmp_path / "merged")


WRONG_FIELDS = {
    "r": (0, -1, 1.5, "x", None, [], {}, 10**9, True),
    "lora_alpha": ("x", None, [], float("nan"), 1e300),
    "target_modules": (5, [5], {}, True),
    "rank_pattern": ([], {"q_proj": 0}, {"q_proj": "x"}),
    "alpha_pattern": ("x", {"q_proj": None}),
    "peft_type": (5, [], {}),
    "modules_to_save": (5, {}),
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in WRONG_FIELDS.items() for v in values], ids=str)
def test_fields_of_other_types(key, value, tmp_path):
    data = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], key: value}
    (tmp_path / "adapter_config.json").write_text(json.dumps(data))
    with pytest.raises(ModelError) as error:
        read_lora(tmp_path)
    details = error.value.details
    assert details["key"].partition(".")[0] == key and details["file"].endswith("adapter_config.json")
