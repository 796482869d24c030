"""Decoders that several cores share: tokens of transformers, memory of every core, and refusals before minutes pass."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM, check_model
from optimum_neuron.compiler import divided_prompts
from optimum_neuron.errors import ArtifactError, ConfigError, ModelError, WeightsError
from optimum_neuron.exporters import inspect_export
from optimum_neuron.hardware import resolve_instance
from optimum_neuron.runtime import ledger
from optimum_neuron.upstream.cache_argument import CACHE
from tests.models.mixtures import GPT_OSS, MIXTURES
from tests.raising import raises
from tests.tiny import SHAPES, SMALL, save_tiny

INSTANCE = "trn1.32xlarge"
PROMPT = torch.tensor([[5, 6, 7, 8, 9], [0, 0, 3, 4, 5]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A folder for each architecture; nine heads share three key heads, which no power of two divides."""
    made = {}

    def make(model_type, **overrides):
        key = (model_type, str(overrides))
        if key not in made:
            folder = tmp_path_factory.mktemp("checkpoint")
            made[key] = save_tiny(folder, model_type, **overrides)
        return made[key]

    return make


ODD = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8, "intermediate_size": 100}

CASES = {
    "family": ("llama", ODD | {"tie_word_embeddings": True}, "llama"),
    "generic": ("llama", ODD | {"attention_bias": True, "mlp_bias": True}, "generic"),
    "sliding window": ("mistral", {"sliding_window": 4}, None),
}
"""Compiled; `tests/models/test_families.py` and `tests/models/generic/test_plans.py` have the logits of all."""


def compiled(folder, degree, **options):
    return NeuronModelForCausalLM.from_pretrained(
        folder, export=True, instance_type=INSTANCE, tensor_parallel_size=degree, **SMALL | options
    )


DEGREES = [
    (name, degree) for name in CASES for degree in ((2, 8) if CASES[name][1].get("num_attention_heads") else (2,))
]
"""Nine heads on two and on eight cores; the other models have four."""


@pytest.mark.full(days=5)
@pytest.mark.parametrize(("name", "degree"), DEGREES)
def test_tokens_are_those_of_transformers(checkpoints, name, degree):
    model_type, overrides, family = CASES[name]
    folder = checkpoints(model_type, **overrides)
    shapes = SHAPES if name == "family" and degree == 8 else SMALL  # every graph once
    model = compiled(folder, degree, family=family, **shapes)
    original = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    actual = model.generate(PROMPT, attention_mask=MASK, **options)
    assert actual.tolist() == original.generate(PROMPT, attention_mask=MASK, **options).tolist()
    assert len(model.prepared.loaded.claim.core_ids) == degree


def test_norms_of_single_heads_are_refused(checkpoints):
    with raises(ModelError, styles=["a norm for each head"]):
        compiled(checkpoints("stablelm", **ODD, qk_layernorm=True), 2)


SHARDED = {
    "latent attention": next(iter(MIXTURES["deepseek_v3"].values())),
    "temperature": next(iter(MIXTURES["llama4_text"].values())),
    "whole experts": ("mixtral", {"num_local_experts": 3, "intermediate_size": 40}),
    "heads of zeros": ("gpt_oss", GPT_OSS | {"num_attention_heads": 9, "num_key_value_heads": 3}),
}
"""Mixtures of experts, compiled; `tests/models/test_families.py` has the logits of all.

`whole experts` has too narrow ones to divide, and one of zeros on the last core.
"""


@pytest.mark.full(days=4)
@pytest.mark.parametrize(("model_type", "overrides"), SHARDED.values(), ids=SHARDED)
def test_two_cores_share_experts(checkpoints, model_type, overrides):
    # transformers counts padding when it tunes llama4's temperature, which this scale hides.
    overrides = overrides | ({"floor_scale": 8192} if model_type == "llama4_text" else {})
    folder = checkpoints(model_type, **overrides)
    original = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    actual = compiled(folder, 2).generate(PROMPT, attention_mask=MASK, **options)
    assert actual.tolist() == original.generate(PROMPT, attention_mask=MASK, **options).tolist()


@pytest.mark.full(days=2)
@pytest.mark.parametrize("model_type", ["lfm2", "qwen3_next"])
def test_two_cores_share_states_without_slots(checkpoints, model_type):
    folder = checkpoints(model_type)
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    original = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    actual = compiled(folder, 2, **SMALL).generate(PROMPT, attention_mask=MASK, **options)
    assert actual.tolist() == original.generate(PROMPT, attention_mask=MASK, **options).tolist()


@pytest.mark.full(days=2)
def test_prompts_are_divided_along_the_sequence(checkpoints):
    folder = checkpoints("llama", **ODD)
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    model = compiled(folder, 2, sequence_parallel=True, prefill_buckets=(16, 33))
    original = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    actual = model.generate(PROMPT, attention_mask=MASK, **options)
    assert actual.tolist() == original.generate(PROMPT, attention_mask=MASK, **options).tolist()
    assert divided_prompts(model.prepared.program) == ("prefill_16", "score_16")
    assert model.describe()["num_cores"]["reason"].endswith("sequence_parallel: prefill_16, score_16")


@pytest.mark.parametrize("options", [{"tensor_parallel_size": 1}, {"prefill_buckets": (15, 33)}, {"family": "generic"}])
def test_nothing_to_divide_along_the_sequence(checkpoints, options):
    options = {"tensor_parallel_size": 2, "sequence_parallel": True, "instance_type": INSTANCE} | SHAPES | options
    with raises(ConfigError, option="sequence_parallel"):
        NeuronModelForCausalLM.from_pretrained(checkpoints("llama", **ODD), export=True, **options)


def test_beams_reorder_the_state_of_every_core(checkpoints):
    folder = checkpoints("llama", **ODD)
    options = {"num_beams": 3, "max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    model, original = compiled(folder, 2), AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    assert model.generate(PROMPT[:1], **options).tolist() == original.generate(PROMPT[:1], **options).tolist()
    cache = model(PROMPT[:1], attention_mask=MASK[:1], use_cache=True)[CACHE]
    assert len(cache) == original.config.num_hidden_layers


def test_every_core_has_its_part_in_its_own_memory(checkpoints):
    folder = checkpoints("llama", **ODD)
    one, two = compiled(folder, 1), compiled(folder, 2)
    weights = [model.prepared.need.weights for model in (one, two)]
    assert weights[1] < 0.7 * weights[0]
    instance = resolve_instance(INSTANCE).value
    for core in two.prepared.loaded.claim.core_ids:
        owners = ledger(instance, core).used_by_owner()
        assert owners[str(folder)]["weights"] == weights[1]
    two.close()
    assert str(folder) not in ledger(instance, two.prepared.loaded.claim.core_ids[-1]).used_by_owner()


def test_an_exported_folder_keeps_its_degree_and_unsharded_files(checkpoints, tmp_path):
    folder = checkpoints("llama", **ODD)
    model = compiled(folder, 2)
    model.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    again = NeuronModelForCausalLM.from_pretrained(tmp_path, instance_type=INSTANCE)
    assert again.prepared.config.tensor_parallel_size == 2
    assert torch.equal(again.generate(PROMPT, max_new_tokens=4), model.generate(PROMPT, max_new_tokens=4))
    with raises(ConfigError, folder=str(tmp_path)):
        NeuronModelForCausalLM.from_pretrained(tmp_path, tensor_parallel_size=4)
    told = inspect_export(tmp_path)["num_cores"]
    assert told == model.describe()["num_cores"] and told["value"] == 2 and "part" in told["reason"]
    file = tmp_path / "neuron_config.json"
    file.write_text(file.read_text().replace('"tensor_parallel_size": 2', '"tensor_parallel_size": 8'))
    with pytest.raises(ArtifactError) as caught:
        NeuronModelForCausalLM.from_pretrained(tmp_path, instance_type=INSTANCE)
    assert len(caught.value.details["problems"]) == 1


@pytest.mark.full(days=2)
def test_a_check_counts_the_memory_of_every_core(checkpoints):
    folder = checkpoints("llama", **ODD)
    shapes = {name: value for name, value in SMALL.items() if name != "optlevel"}
    report = check_model(folder, instance_type=INSTANCE, tensor_parallel_size=2, **shapes)
    model = compiled(folder, 2)
    assert report.to_dict()["num_cores"] == model.describe()["num_cores"]
    assert report.memory.need == model.prepared.need
    one = check_model(folder, instance_type=INSTANCE, **shapes).num_cores
    assert (one.value, one.reason.partition(":")[0]) == (1, "default")


def test_a_checkpoint_of_several_dtypes_and_files(checkpoints, tmp_path):
    folder = checkpoints("llama", **ODD, tie_word_embeddings=True)
    shutil.copy(folder / "config.json", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor.half() if "mlp" in name else tensor for name, tensor in tensors.items()}
    tensors |= {name: tensors[name].bfloat16() for name in tensors if "q_proj" in name}
    tensors |= {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4), "mtp.fc.weight": torch.ones(3, 3)}
    assert "lm_head.weight" not in tensors
    # Query, key, and value of a layer are in different files.
    files = {name: f"part-{number % 5}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in files if files[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    original = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="float32")
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    actual = compiled(tmp_path, 2, **SMALL).generate(PROMPT, attention_mask=MASK, **options)
    assert actual.tolist() == original.generate(PROMPT, attention_mask=MASK, **options).tolist()


XGLM = {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64}
"""Transformers has no plan for it."""


@pytest.mark.full(days=2)
@pytest.mark.parametrize("family", ["llama", "generic"])
def test_a_tensor_that_a_core_needs_a_part_of_is_missing(checkpoints, tmp_path, family):
    folder = shutil.copytree(checkpoints("llama", **ODD), tmp_path / "broken")
    tensors, missing = load_file(folder / "model.safetensors"), "model.layers.1.self_attn.v_proj.weight"
    del tensors[missing]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError) as caught:
        compiled(folder, 2, family=family)
    assert any(missing in problem for problem in caught.value.details["problems"])


def test_a_file_of_the_checkpoint_is_missing(checkpoints, tmp_path):
    # An architecture that cannot be divided: its own error would come first if anything was built before.
    original = AutoModelForCausalLM.from_pretrained(checkpoints("xglm", **XGLM))
    original.save_pretrained(tmp_path, max_shard_size="10KB")
    lost = sorted(tmp_path.glob("*.safetensors"))[1]
    lost.unlink()
    with raises(WeightsError, missing=[lost.name]):
        compiled(tmp_path, 2)


def test_num_cores_is_the_older_name(checkpoints):
    folder = checkpoints("llama", **ODD)
    model = NeuronModelForCausalLM.from_pretrained(folder, export=True, instance_type=INSTANCE, num_cores=2, **SMALL)
    assert model.prepared.config.tensor_parallel_size == 2
    with raises(ConfigError, options=["num_cores", "tensor_parallel_size"]):
        compiled(folder, 2, num_cores=8)


def test_degrees_that_the_instance_or_the_heads_forbid_are_refused(checkpoints):
    folder = checkpoints("llama", **ODD)
    with raises(ConfigError, num_cores=3):
        compiled(folder, 3)
    with raises(ConfigError, option="tensor_parallel_size", num_heads=9):
        compiled(folder, 16)


def test_an_architecture_without_a_plan_is_refused(checkpoints):
    with raises(ModelError, model_type="xglm"):
        compiled(checkpoints("xglm", **XGLM), 2)
