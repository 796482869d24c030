"""Configurations of NxD Inference: defaults, files, buckets, sampling parameters, and what each keyword does."""

import logging

import pytest
import torch
from transformers import LlamaConfig, TemperatureLogitsWarper, TopKLogitsWarper
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optimum_neuron.errors import ArtifactError, ConfigError, ModelError, ShapeError
from optimum_neuron.models import families
from optimum_neuron.neuronx_distributed_inference import (
    InferenceConfig,
    LoraServingConfig,
    MoENeuronConfig,
    NeuronConfig,
    OnDeviceSamplingConfig,
    load_pretrained_config,
)
from optimum_neuron.neuronx_distributed_inference.autobucketing import (
    generate_buckets,
    generate_buckets_for_cte,
    generate_buckets_for_tkg,
)
from optimum_neuron.neuronx_distributed_inference.family_table import FAMILIES
from optimum_neuron.neuronx_distributed_inference.keywords import NAMES, OF_EXPERTS
from optimum_neuron.neuronx_distributed_inference.options import EFFECTIVE, REFUSED, export_options, without_effect
from optimum_neuron.neuronx_distributed_inference.sampling import (
    Sampler,
    prepare_sampling_params,
    validate_sampling_params,
)
from tests.raising import raises

LLAMA = LlamaConfig(vocab_size=96, hidden_size=32, num_attention_heads=4, num_hidden_layers=1, dtype="float16")


def test_a_saved_configuration_is_the_same(tmp_path):
    neuron_config = MoENeuronConfig(
        tp_degree=2, seq_len=256, lora_config=LoraServingConfig(max_loras=2), router_config={"act_fn": "sigmoid"}
    )
    kind = type("Config", (InferenceConfig,), {"get_neuron_config_cls": classmethod(lambda cls: MoENeuronConfig)})
    config = kind(neuron_config, load_config=load_pretrained_config(hf_config=LLAMA), pad_token_id=7)
    assert neuron_config.torch_dtype == torch.float16 and config.pad_token_id == 7
    config.save(tmp_path)
    loaded = kind.load(tmp_path)
    assert loaded.to_json_string() == config.to_json_string()
    assert loaded.neuron_config.lora_config.max_loras == 2 and loaded.neuron_config.world_size == 2


def test_unknown_keywords_are_warnings(caplog):
    with caplog.at_level(logging.WARNING):
        NeuronConfig(batchsize=2)
    assert "Unexpected keyword arguments: {'batchsize': 2}" in caplog.text


def test_configurations_that_cannot_be_read_are_refused(tmp_path):
    with raises(ModelError):
        InferenceConfig(NeuronConfig(), load_config=load_pretrained_config(tmp_path / "none"))
    with raises(ConfigError, option="neuron_config"):
        InferenceConfig(None, load_config=load_pretrained_config(hf_config=LLAMA))
    for text in ("[1]", "{"):
        (tmp_path / "neuron_config.json").write_text(text)
        with raises(ArtifactError):
            InferenceConfig.load(tmp_path)


def test_adapters_that_cannot_be_read_are_refused(tmp_path):
    with raises(ModelError, reason="missing"):
        LoraServingConfig(lora_ckpt_paths={"one": str(tmp_path / "none")})
    with raises(ModelError, adapter=str(tmp_path)):
        LoraServingConfig(lora_ckpt_paths=[f"one : {tmp_path}"])
    file = tmp_path / "adapters.json"
    with raises(ModelError, file=str(file)):
        LoraServingConfig(lora_ckpt_json=str(file))
    file.write_text('{"paths": {}}')
    with raises(ConfigError, option="lora_ckpt_json"):
        LoraServingConfig(lora_ckpt_json=str(file))


def test_every_keyword_has_an_effect_or_is_listed(caplog):
    names = {*NAMES, *OF_EXPERTS}
    assert names >= EFFECTIVE | set(REFUSED) and EFFECTIVE.isdisjoint(REFUSED)
    config = NeuronConfig(fused_qkv=True, qkv_kernel_enabled=True, logical_nc_config=2, tp_degree=2)
    assert without_effect(config) == ["fused_qkv", "qkv_kernel_enabled"]
    with caplog.at_level(logging.INFO):
        options = export_options(InferenceConfig(config))
    assert "Without effect on a simulated core: fused_qkv, qkv_kernel_enabled." in caplog.text
    assert options["tensor_parallel_size"] == 2 and options["prefill_buckets"] == (128,)
    for name in sorted(REFUSED):
        config = NeuronConfig()
        setattr(config, name, object())
        with raises(ConfigError, option=name):
            without_effect(config)


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"cast_type": "all"}, "cast_type"),
        ({"attention_dtype": "float32"}, "attention_dtype"),
        ({"context_encoding_buckets": [256]}, "context_encoding_buckets"),
        ({"token_generation_buckets": [256]}, "token_generation_buckets"),
        ({"tp_degree": 2, "cp_degree": 3}, "cp_degree"),
        ({"tp_degree": 0}, "tp_degree"),
        ({"tp_degree": 2, "attention_dp_degree": 2, "batch_size": 2}, "attention_dp_degree"),
        ({"quantized": True}, "quantized_checkpoints_path"),
        ({"torch_dtype": "float64"}, "torch_dtype"),
        ({"chunked_prefill_config": {"max_num_seqs": 2}}, "is_block_kv_layout"),
        ({"tp_degree": "2"}, "tp_degree"),
        ({"batch_size": True}, "batch_size"),
        ({"seq_len": "48"}, "seq_len"),
        ({"max_context_length": 0}, "max_context_length"),
        ({"tkg_batch_size": "x"}, "tkg_batch_size"),
        ({"ctx_batch_size": -1}, "ctx_batch_size"),
        ({"speculation_length": -1}, "speculation_length"),
        ({"speculation_length": 128}, "speculation_length"),
        ({"windowed_context_encoding_size": 0}, "windowed_context_encoding_size"),
        ({"windowed_context_encoding_size": 129}, "windowed_context_encoding_size"),
        ({"context_encoding_buckets": []}, "context_encoding_buckets"),
        ({"context_encoding_buckets": ["8"]}, "context_encoding_buckets"),
        ({"token_generation_buckets": [[2, 64, 3]]}, "token_generation_buckets"),
        ({"token_generation_buckets": 64}, "token_generation_buckets"),
        ({"padding_side": "up"}, "padding_side"),
        ({"logical_nc_config": 3}, "logical_nc_config"),
        ({"quantization_type": "per_token"}, "quantization_type"),
        ({"tp_degree": 2, "world_size": 3}, "world_size"),
        ({"on_device_sampling_config": 3}, "on_device_sampling_config"),
        ({"on_device_sampling_config": {"top_k": 300}}, "top-k"),
        ({"on_device_sampling_config": {"dynamic": "yes"}}, "dynamic"),
        ({"lora_config": {"max_loras": 0}}, "max_loras"),
        ({"lora_config": {"lora_ckpt_paths": "adapter"}}, "lora_ckpt_paths"),
        ({"lora_config": {"eviction_policy": "fifo"}}, "eviction_policy"),
        ({"max_new_tokens": 129}, "max_new_tokens"),
        ({"fused_qkv": "yes"}, "fused_qkv"),
        ({"attn_kernel_enabled": 2}, "attn_kernel_enabled"),
        ({"modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
        ({"cc_pipeline_tiling_factor": 0}, "cc_pipeline_tiling_factor"),
        ({"token_generation_batches": []}, "token_generation_batches"),
        ({"token_generation_batches": ["2"]}, "token_generation_batches"),
        ({"rpl_reduce_dtype": 32}, "torch_dtype"),
        ({"ep_dispatch_cc_option": "AR"}, "ep_dispatch_cc_option"),
        ({"on_device_sampling_config": {"top_p": 1.5}}, "top-p"),
    ],
    ids=str,
)
def test_contradictions_are_refused(wrong, option):
    with raises(ConfigError, option=option):
        NeuronConfig(**wrong)


def test_families_have_the_names_of_transformers():
    own = {one for family in families().values() for one in family.MODEL_TYPES}
    rows = {model_type: family.name for family in FAMILIES.values() for model_type in family.model_types}
    assert own <= rows.keys()
    for model_type, name in rows.items():
        assert MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type] in (f"{name}ForCausalLM", f"{name}LMHeadModel")


def test_buckets():
    assert generate_buckets(128, 513) == [128, 256, 513] and generate_buckets(64, 64) == [64]
    config = InferenceConfig(NeuronConfig(seq_len=512, max_context_length=256, enable_bucketing=True, batch_size=4))
    assert generate_buckets_for_cte(config) == [128, 256] and generate_buckets_for_tkg(config) == [128, 256, 512]
    config.neuron_config.token_generation_batches = [2]
    assert generate_buckets_for_tkg(config)[:4] == [[4, 128], [4, 256], [4, 512], [2, 128]]
    assert export_options(config)["decode_buckets"] == (128, 256, 512)
    config.neuron_config.windowed_context_encoding_size = 192
    assert export_options(config)["prefill_buckets"] == (128, 192)


def test_probabilities_are_those_of_transformers():
    config = NeuronConfig(on_device_sampling_config=OnDeviceSamplingConfig(do_sample=True, global_topk=0))
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)) * 3
    params = prepare_sampling_params(2, top_k=[7, 3], temperature=[0.5, 2.0])
    tokens, probabilities = Sampler(config)(logits, params, return_values=True)
    for row, (top_k, _, temperature) in enumerate(params.tolist()):
        scores = TemperatureLogitsWarper(temperature)(None, logits[row : row + 1])
        expected = TopKLogitsWarper(int(top_k))(None, scores).softmax(-1)[0]
        torch.testing.assert_close(torch.zeros(50).scatter(0, tokens[row], probabilities[row]), expected)
    half = prepare_sampling_params(2, top_k=7, top_p=0.5)
    _, kept = Sampler(config)(logits, half, return_values=True)
    cumulated = logits.topk(7).values.softmax(-1).cumsum(-1)
    assert torch.equal((kept > 0).sum(-1), (cumulated <= 0.5).sum(-1).clamp(min=1))


def test_draws_have_their_probabilities():
    config = NeuronConfig(on_device_sampling_config=OnDeviceSamplingConfig(do_sample=True, global_topk=4))
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log().expand(4000, -1)
    torch.manual_seed(0)
    tokens = Sampler(config)(logits, prepare_sampling_params(4000, top_k=4))
    expected = 4000 * torch.tensor([0.5, 0.25, 0.15, 0.1])
    # Chi-squared with 3 degrees of freedom: 17 is at a probability of 0.0007.
    assert float(((tokens.bincount(minlength=4) - expected) ** 2 / expected).sum()) < 17


def test_wrong_sampling_parameters_are_refused():
    config = OnDeviceSamplingConfig(global_topk=10)
    with raises(ShapeError, num_rows=2):
        prepare_sampling_params(2, top_k=[1, 2, 3])
    with raises(ConfigError, option="batch_size"):
        prepare_sampling_params(0)
    with raises(ConfigError, option="top_k"):
        prepare_sampling_params(2, top_k="many")
    for row, option in (
        ([11, 1, 1], "top-k"),
        ([1.5, 1, 1], "top-k"),
        ([1, 0, 1], "top-p"),
        ([1, 1, -1], "temperature"),
    ):
        with raises(ConfigError, option=option):
            validate_sampling_params(torch.tensor([row], dtype=torch.float32), config)
    with raises(ConfigError, options=["topk"]):
        OnDeviceSamplingConfig(topk=3)
