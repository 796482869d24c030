"""Adapters of a compiled decoder: results are those of PEFT for each row, and loading compiles nothing."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ModelError, ShapeError, WeightsError
from optimum_neuron.options.configuration import NeuronConfig
from tests.footprint import footprint
from tests.raising import raises
from tests.tiny import SMALL, VOCABULARY, save_tiny

peft = pytest.importorskip("peft")

ROOM = SMALL | {"max_loras": 2, "max_lora_rank": 8}
TARGETS = ("q_proj", "v_proj", "o_proj", "gate_proj", "down_proj")
"""Parts of both fused projections, and both projections back."""
ADAPTERS = {
    "plain": {"r": 4, "lora_alpha": 6},
    "patterns": {
        "r": 3,
        "use_rslora": True,
        "target_modules": ["q_proj", "down_proj"],
        "rank_pattern": {"down_proj": 8},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 5},
        "layers_to_transform": [1, 2],
    },
}
IDS = torch.randint(3, VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(2))
MIXED = ["plain", "patterns", "__base__", "plain"]
TOKENS = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}


def save_adapter(base, folder, **options):
    """Write an adapter with weights that change every result."""
    torch.manual_seed(len(str(options)))
    settings = {"target_modules": list(TARGETS), "task_type": "CAUSAL_LM", **options}
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = peft.get_peft_model(model, peft.LoraConfig(**settings))
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    adapted.save_pretrained(folder)
    return folder


def with_peft(base, adapters):
    """The base model with adapters, as PEFT runs it."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    (first, folder), *others = adapters.items()
    adapted = peft.PeftModel.from_pretrained(model, folder, adapter_name=first)
    for name, folder in others:
        adapted.load_adapter(folder, adapter_name=name)
    return adapted.eval()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("base"), "llama")


@pytest.fixture(scope="module")
def folders(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return {name: save_adapter(base, folder / name, **options) for name, options in ADAPTERS.items()}


@pytest.fixture(scope="module")
def reference(base, folders):
    return with_peft(base, folders)


@pytest.fixture(scope="module")
def compiled(base):
    return NeuronModelForCausalLM.from_pretrained(base, export=True, lora_target_modules=TARGETS, **ROOM)


@pytest.fixture
def model(compiled, folders):
    """The model with both adapters; none is left behind."""
    for name, folder in folders.items():
        compiled.load_adapter(folder, adapter_name=name)
    yield compiled
    compiled.enable_adapters()
    compiled.delete_adapter(compiled.adapters.names)


def logits(model, **options):
    with torch.no_grad():
        return model(IDS, **options).logits


def test_each_adapter_and_a_mixed_batch_are_as_in_peft(model, reference):
    mixed = logits(model, adapter_names=MIXED)
    alone = {name: logits(model, adapter_names=[name] * 4) for name in set(MIXED)}
    assert torch.equal(mixed, torch.stack([alone[name][row] for row, name in enumerate(MIXED)]))
    torch.testing.assert_close(mixed, logits(reference, adapter_names=MIXED), atol=2e-5, rtol=1e-4)
    assert not torch.allclose(alone["plain"], alone["__base__"], atol=0.1)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}], ids=["greedy", "beams"])
def test_generate_with_an_adapter_for_each_prompt(model, reference, options):
    actual = model.generate(IDS, adapter_names=MIXED, **TOKENS, **options)
    with torch.no_grad():
        mask = torch.ones_like(IDS)
        expected = reference.generate(input_ids=IDS, attention_mask=mask, adapter_names=MIXED, **TOKENS, **options)
    assert actual.tolist() == expected.tolist()


def test_active_adapter(model, reference):
    plain, base = (logits(model, adapter_names=[name] * 4) for name in ("plain", "__base__"))
    assert model.active_adapters() == ["plain"] and torch.equal(logits(model), plain)
    model.set_adapter("patterns")
    reference.set_adapter("patterns")
    torch.testing.assert_close(logits(model), logits(reference), atol=2e-5, rtol=1e-4)
    model.disable_adapters()
    assert model.active_adapters() == [] and torch.equal(logits(model), base)
    model.enable_adapters()
    model.delete_adapter("patterns")
    assert model.active_adapters() == [] and torch.equal(logits(model), base)
    assert model.adapters.names == ["plain"] and torch.equal(logits(model, adapter_names=["plain"] * 4), plain)


@pytest.mark.full(days=2)
def test_quantized_layers_take_adapters(base, folders, reference):
    model = NeuronModelForCausalLM.from_pretrained(base, export=True, quantization="int8", **ROOM)
    without = logits(model)
    for name, folder in folders.items():
        model.load_adapter(folder, adapter_name=name)
    assert torch.equal(logits(model, adapter_names=["__base__"] * 4), without)
    mixed, expected = logits(model, adapter_names=MIXED), logits(reference, adapter_names=MIXED)
    noise = (mixed - expected).square().mean() / expected.square().mean()
    assert -10 * noise.log10() > 25 and model.prepared.family == "llama"


@pytest.mark.full(days=4)
def test_thousand_adapters_in_turn_leave_nothing(compiled, folders):
    base = logits(compiled)
    used = compiled.loaded.claim.ledgers[0].used_by_category()
    for number in range(1010):
        if number == 10:
            before = footprint()
        compiled.load_adapter(folders["patterns"], adapter_name=f"user {number}")
        compiled.delete_adapter(f"user {number}")
    after = footprint()
    assert torch.equal(logits(compiled), base) and compiled.adapters.names == []
    assert compiled.loaded.claim.ledgers[0].used_by_category() == used
    assert after.num_tensors <= before.num_tensors and after.num_descriptors == before.num_descriptors
    assert after.resident_bytes - before.resident_bytes < 2**20


def test_replaced_weights_keep_the_adapters(model, base, folders, tmp_path):
    other = save_tiny(tmp_path, "llama", seed=7)
    try:
        model.replace_weights(other)
        expected = logits(with_peft(other, folders), adapter_names=MIXED)
        torch.testing.assert_close(logits(model, adapter_names=MIXED), expected, atol=2e-5, rtol=1e-4)
    finally:
        model.replace_weights(base)


def test_saved_model_has_room_and_no_adapters(model, folders, tmp_path):
    plain = logits(model, adapter_names=["plain"] * 4)
    model.save_pretrained(tmp_path / "saved")
    loaded = NeuronModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert loaded.adapters.names == [] and loaded.neuron_config.max_lora_rank == 8
    loaded.load_adapter(folders["plain"])
    assert loaded.active_adapters() == ["default"] and torch.equal(logits(loaded), plain)


CASES = {
    "joined weights": ("llama", {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 48}, TARGETS),
    "transposed weights, generic": ("gpt2", {"n_layer": 2}, ("c_attn", "c_proj")),
}


@pytest.mark.full(days=2)
@pytest.mark.parametrize("case", CASES)
def test_two_cores(case, tmp_path):
    model_type, overrides, targets = CASES[case]
    base = save_tiny(tmp_path / "base", model_type, num_hidden_layers=2, **overrides)
    options = {"target_modules": list(targets), "fan_in_fan_out": model_type == "gpt2"}
    adapter = save_adapter(base, tmp_path / "adapter", r=4, **options)
    cores = {"tensor_parallel_size": 2, "instance_type": "trn1.32xlarge"}
    family = "generic" if "generic" in case else None
    model = NeuronModelForCausalLM.from_pretrained(base, export=True, family=family, **ROOM, **cores)
    model.load_adapter(adapter, "plain")
    names = ["__base__", "plain"] * 2
    expected = logits(with_peft(base, {"plain": adapter}), adapter_names=names)
    torch.testing.assert_close(logits(model, adapter_names=names), expected, atol=5e-5, rtol=1e-4)


def test_refused_names_and_numbers(model, folders, tmp_path, base):
    with raises(ConfigError, option="adapter_name", value="plan"):
        model.generate(IDS, adapter_names=["plan"] * 4, **TOKENS)
    with raises(ShapeError, num_rows=4):
        model(IDS, adapter_names=["plain"])
    with raises(ConfigError, option="adapter_name", value="plan"):
        model.set_adapter("plan")
    with raises(ConfigError, option="adapter_name", value=["plain", "patterns"]):
        model.set_adapter(["plain", "patterns"])
    with raises(ConfigError, option="adapter_name", value="plan"):
        model.delete_adapter(["plain", "plan"])
    with raises(ConfigError, option="adapter_name", value="__base__"):
        model.delete_adapter("__base__")
    with raises(ConfigError, option="adapter_name", value="plain"):
        model.load_adapter(folders["plain"], adapter_name="plain")
    with raises(ConfigError, option="max_loras", value=2, names=["plain", "patterns"]):
        model.load_adapter(folders["plain"], adapter_name="third")
    assert model.adapters.names == ["plain", "patterns"]


REFUSED = {
    "rank": ({"r": 9}, ConfigError, {"option": "max_lora_rank", "value": 8}),
    "modules": ({"target_modules": ["k_proj"]}, WeightsError, {"compiled": sorted(TARGETS)}),
    "DoRA": ({"use_dora": True}, ConfigError, {"options": {"use_dora": True}}),
    "bias": ({"bias": "all"}, ConfigError, {"options": {"bias": "all"}}),
    "head": ({"modules_to_save": ["lm_head"]}, ConfigError, {"options": {"modules_to_save": ["lm_head"]}}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_adapters(compiled, base, tmp_path, case):
    options, error, details = REFUSED[case]
    with raises(error, **details):
        compiled.load_adapter(save_adapter(base, tmp_path, **{"r": 4, **options}))
    assert compiled.adapters.names == []


def test_adapters_of_other_models_and_broken_ones(compiled, folders, tmp_path):
    other = save_tiny(tmp_path / "other", "llama", hidden_size=64)
    adapter = save_adapter(other, tmp_path / "adapter", r=4)
    with raises(WeightsError, problems=["head_dim=16, compiled with 8", "hidden_size=64, compiled with 32"]):
        compiled.load_adapter(adapter)
    kept = (other / "config.json").read_text()
    for text in ("{", json.dumps(json.loads(kept) | {"rope_parameters": 3})):
        (other / "config.json").write_text(text)
        with raises(WeightsError):
            compiled.load_adapter(adapter)
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "elsewhere"}))
    with raises(WeightsError, adapter=str(adapter)) as error:
        compiled.load_adapter(adapter)
    assert error.value.details["problems"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"peft_type": "IA3"}))
    with raises(ConfigError, method="IA3"):
        compiled.load_adapter(adapter)
    with raises(ModelError, adapter=str(other), is_model=True):
        compiled.load_adapter(other)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "adapter_config.json").write_text((folders["plain"] / "adapter_config.json").read_text())
    tensors = load_file(folders["plain"] / "adapter_model.safetensors")
    name = next(name for name in tensors if "lora_B" in name)
    for change in ({name: None}, {name: tensors[name][:, :2].contiguous()}, {"base_model.model.x": torch.ones(1)}):
        changed = {key: value for key, value in (tensors | change).items() if value is not None}
        save_file(changed, broken / "adapter_model.safetensors")
        with raises(WeightsError, adapter=str(broken)):
            compiled.load_adapter(broken)
    assert compiled.adapters.names == []


def test_refused_options(base):
    for options, option in (
        ({"max_lora_rank": 8}, "max_lora_rank"),
        ({"lora_target_modules": ["q_proj"]}, "lora_target_modules"),
        ({"max_loras": 0}, "max_loras"),
        ({"max_loras": 1, "lora_target_modules": "q_proj"}, "lora_target_modules"),
    ):
        with raises(ConfigError, option=option):
            NeuronConfig(**options)
    with raises(ConfigError, option="lora_target_modules", value=["q_prj"]):
        NeuronModelForCausalLM.from_pretrained(base, export=True, lora_target_modules=["q_prj"], **ROOM)
    assert NeuronConfig(max_loras=1).resolve(max_position_embeddings=64).max_lora_rank == 16
