"""vLLM's arguments as options of an export: three forms of the Neuron part, environment variables, flags."""

from __future__ import annotations

import argparse
import json
import logging

import pytest
from transformers import LlamaConfig

from optimum_neuron.errors import ConfigError, ModelError, WeightsError
from optimum_neuron.vllm_neuron import command, server
from optimum_neuron.vllm_neuron.adapters import AdapterCache, LoRARequest
from optimum_neuron.vllm_neuron.arg_parser import FlexibleArgumentParser
from optimum_neuron.vllm_neuron.engine_args import DEFAULTS, EngineArgs
from optimum_neuron.vllm_neuron.options import read_args
from optimum_neuron.vllm_neuron.utilities import get_adapter_absolute_path, get_lora_tokenizer
from tests import eagle
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer, write_config

CONFIG = {
    "context_encoding_buckets": [128, 256],
    "token_generation_buckets": [32, 128],
    "on_device_sampling_config": {"global_topk": 64},
    "quantized": True,
    "quantization_dtype": "f8e4m3",
    "quantization_type": "per_channel_symmetric",
    "skip_warmup": True,
    "async_mode": False,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options") / "tiny"
    save_tiny(folder, "llama", num_hidden_layers=1, max_position_embeddings=1024, num_attention_heads=8)
    return str(save_tokenizer(folder))


def options(checkpoint, **given):
    return read_args(EngineArgs(model=checkpoint, **given)).options


@pytest.mark.parametrize(
    "form",
    [
        {"override_neuron_config": CONFIG},
        {"additional_config": {"override_neuron_config": CONFIG}},
    ],
)
def test_keywords_of_nxd_inference_are_options(checkpoint, caplog, form):
    caplog.set_level(logging.INFO)
    found = options(checkpoint, max_num_seqs=4, max_model_len=256, **form)
    assert found["batch_size"] == 4 and found["sequence_length"] == 256 and found["continuous_batching"]
    assert found["prefill_buckets"] == (128, 256) and found["decode_buckets"] == (32, 128, 256)
    assert found["quantized"] and found["on_device_sampling_config"] == {"global_topk": 64}
    assert [record.args[0] for record in caplog.records if "Without effect" in record.msg] == ["skip_warmup"]
    chunks = {"enable_chunked_prefill": True, "max_num_batched_tokens": 192}
    assert options(checkpoint, **chunks, **form)["prefill_buckets"] == (128, 192)


def test_keywords_of_the_plugin_are_options_with_its_checks(checkpoint):
    config = {
        "num_batched_tokens_buckets": [128, 512],
        "num_seqs_buckets": [1, 4],
        "decode_context_length_buckets": [256],
        "kv_segment_size_buckets": [512],
    }
    sizes = {"max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 512}
    found = options(checkpoint, **sizes, additional_config={"neuron_config": config})
    assert found["prefill_buckets"] == (128, 512) and found["decode_buckets"] == (256, 512)
    wrong = {
        "num_seqs_buckets": [1, 2],
        "num_batched_tokens_buckets": [128],
        "decode_context_length_buckets": [100],
        "kv_segment_size_buckets": [700],
    }
    for name, value in wrong.items():
        with raises(ConfigError, option=name):
            options(checkpoint, **sizes, additional_config={"neuron_config": {**config, name: value}})
    with raises(ConfigError, options=["num_seq_buckets"]):
        options(checkpoint, additional_config={"neuron_config": {"num_seq_buckets": [1]}})


@pytest.mark.parametrize(
    ("given", "details"),
    [
        ({"additional_config": {"override_neuron_config": {"pa_num_blocks": 48}}}, {"option": "pa_num_blocks"}),
        ({"override_neuron_config": {"pa_num_blocks": 48}}, {"option": "pa_num_blocks"}),
        ({"override_neuron_config": {"skip_warmp": True}}, {"options": ["skip_warmp"]}),
        ({"override_neuron_config": {"skip_warmup": "yes"}}, {"option": "skip_warmup"}),
        ({"override_neuron_config": {"pp_degree": 0}}, {"option": "pp_degree"}),
        ({"override_neuron_config": {"context_encoding_buckets": "16"}}, {"option": "context_encoding_buckets"}),
        ({"override_neuron_config": {"kv_cache_quant": 3}}, {"option": "kv_cache_quant"}),
        ({"override_neuron_config": {"torch_dtype": "float17"}}, {"option": "torch_dtype"}),
        ({"override_neuron_config": {"on_device_sampling_config": True}}, {"option": "on_device_sampling_config"}),
        ({"additional_config": {"neuron_config": {"ep_degree": 0}}}, {"option": "ep_degree"}),
        (
            {"additional_config": {"neuron_config": {"tensor_capture": {"modules": ["lm_head"]}}}},
            {"option": "tensor_capture"},
        ),
        ({"override_neuron_config": {"tensor_capture_config": {"a": 1}}}, {"option": "tensor_capture_config"}),
        ({"additional_config": {"mm_language_model_only": True}}, {"option": "mm_language_model_only"}),
        ({"enable_prefix_caching": True}, {"option": "block_size"}),
        ({"enable_prefix_caching": "yes"}, {"option": "enable_prefix_caching"}),
        ({"block_size": 7}, {"option": "block_size", "value": 7}),
        ({"num_gpu_blocks_override": -1}, {"option": "num_gpu_blocks_override"}),
        ({"max_num_batched_tokens": "128"}, {"option": "max_num_batched_tokens"}),
        ({"enable_lora": True, "max_lora_rank": 0}, {"option": "max_lora_rank"}),
        ({"speculative_config": "ngram"}, {"option": "speculative_config"}),
        ({"served_model_name": 3}, {"option": "served_model_name"}),
        ({"override_neuron_config": {"tp_degree": 4}, "tensor_parallel_size": 2}, {}),
        ({"override_neuron_config": {"batch_size": 4}, "max_num_seqs": 2}, {}),
        ({"hf_overrides": {"hidden_size": 3}}, {"option": "hf_overrides", "names": ["hidden_size"]}),
        ({"additional_config": {"neuron_config": {"quantization": "mxfp4"}}}, {"option": "quantization"}),
        ({"additional_config": {"neuron_config": {"quantization": "mxfp5"}}}, {"option": "quantization"}),
        ({"override_neuron_config": [1]}, {"option": "override_neuron_config"}),
        ({"additional_config": {"neuron_cfg": {}}}, {"options": ["neuron_cfg"]}),
        ({"speculative_config": {"model": "a"}}, {"option": "num_speculative_tokens"}),
        ({"speculative_config": {"model": "a", "num_speculative_tokens": 0}}, {"value": 0}),
        ({"additional_config": {"neuron_config": {"num_seqs_buckets": 4}}}, {"option": "num_seqs_buckets"}),
        ({"enable_sleep_mode": True}, {"option": "enable_sleep_mode"}),
        ({"kv_cache_dtype": "fp8_e5m2"}, {}),
        ({"max_num_seqs": 0}, {"option": "max_num_seqs"}),
    ],
)
def test_contradictions_are_errors(checkpoint, given, details):
    with raises(ConfigError, **details):
        options(checkpoint, **given)


def test_sizes_cores_and_drafts(checkpoint, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("NEURON_TOKEN_GEN_BUCKETS", "128,512")
    given = {"tensor_parallel_size": 8, "num_gpu_blocks_override": 16, "block_size": 32, "enable_lora": True}
    spec = read_args(EngineArgs(model=checkpoint, **given, max_loras=2, swap_space=0, max_model_len=256))
    found = spec.options
    assert (found["instance_type"], found["tensor_parallel_size"]) == ("inf2.24xlarge", 8)
    assert (found["num_blocks"], found["block_size"], found["max_loras"]) == (17, 32, 2)
    assert found["decode_buckets"] == (128, 256) and spec.allow_block_sharing and not spec.draft
    assert [record.args[0] for record in caplog.records if "Without effect" in record.msg] == ["swap_space"]
    config = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    spec = read_args(EngineArgs(model=checkpoint, speculative_config=config, enable_prefix_caching=False))
    assert spec.draft == {"kind": "lookup", "model": None, "num_candidates": 3} and not spec.allow_block_sharing
    assert (spec.options["speculation"], spec.options["extend_length"]) == (True, 4)
    monkeypatch.setenv("VLLM_NEURON_FRAMEWORK", "tnx")
    with raises(ConfigError, variable="VLLM_NEURON_FRAMEWORK"):
        options(checkpoint)


def test_options_that_change_no_result_are_taken(checkpoint, caplog):
    caplog.set_level(logging.INFO)
    given = {"enable_expert_parallel": True, "enable_prompt_embeds": True, "optimization_level": 2}
    words = {"hf_overrides": {"quantization_config": {}, "hidden_size": 32}, "tokenizer_mode": "slow"}
    config = {"neuron_config": {"quantization": "bf16", "apply_prefill_dcp": True}}
    assert options(checkpoint, **given, **words, additional_config=config) == options(checkpoint)
    (keywords,) = [record.args[0] for record in caplog.records if "enable_expert_parallel" in record.getMessage()]
    assert set(keywords.split(", ")) == set(given)
    args = EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(["--limit-mm-per-prompt", "image=5"])
    assert args.limit_mm_per_prompt == "image=5"


def test_adapters_of_a_file_are_known_by_their_names(checkpoint, tmp_path):
    for name, rank in (("a", 4), ("b", 32)):
        write_config(tmp_path / name)
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({"r": rank, "target_modules": ["q_proj"]}))
    file = tmp_path / "adapters.json"
    paths = {"lora-ckpt-paths": {"one": "a"}, "lora-ckpt-paths-cpu": {"one": "a", "two": "b"}}
    file.write_text(json.dumps({"lora-ckpt-dir": str(tmp_path), **paths}))
    config = {"override_neuron_config": {"lora_ckpt_json": str(file)}}
    spec = read_args(EngineArgs(model=checkpoint, enable_lora=True, max_loras=1, max_cpu_loras=2, **config))
    assert spec.adapters == {"one": str(tmp_path / "a"), "two": str(tmp_path / "b")}
    assert (spec.options["max_loras"], spec.options["max_lora_rank"]) == (2, 32)
    AdapterCache(None, 2, folders=spec.adapters).check(LoRARequest("two", 2, " "))
    with raises(ConfigError, option="lora_path"):
        AdapterCache(None, 2, folders=spec.adapters).check(LoRARequest("three", 3, " "))
    with raises(ConfigError, option="enable_lora"):
        read_args(EngineArgs(model=checkpoint, **config))


def test_drafts_are_looked_at_before_a_compile(checkpoint, tmp_path):
    with pytest.raises(ModelError):
        options(checkpoint, speculative_config={"model": str(tmp_path / "no"), "num_speculative_tokens": 3})
    wider = save_tiny(tmp_path / "wider", "llama", num_hidden_layers=1, vocab_size=128)
    with raises(ConfigError, draft=128):
        options(checkpoint, speculative_config={"model": str(wider), "num_speculative_tokens": 3})
    with raises(WeightsError, missing="fc.weight"):
        options(checkpoint, speculative_config={"model": str(wider), "num_speculative_tokens": 3, "method": "eagle"})


def test_an_eagle_draft_reads_the_last_layer(checkpoint, tmp_path):
    config = LlamaConfig.from_pretrained(checkpoint)
    draft, tensors = eagle.first_draft(config)
    draft.is_eagle = True
    folder = eagle.saved(draft, tensors, tmp_path / "eagle")
    spec = read_args(EngineArgs(model=checkpoint, speculative_model=str(folder), num_speculative_tokens=3))
    assert spec.draft["kind"] == "eagle" and spec.options["extend_length"] == 4
    assert spec.options["hidden_state_layers"] == (config.num_hidden_layers,)


def test_tp_degree_chooses_an_instance_too(checkpoint):
    found = options(checkpoint, override_neuron_config={"tp_degree": 8})
    assert (found["instance_type"], found["tensor_parallel_size"]) == ("inf2.24xlarge", 8)


def test_flags_are_keywords(tmp_path):
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    plain = EngineArgs.from_cli_args(parser.parse_args([]))
    assert plain.given == {} and {name: getattr(plain, name) for name in DEFAULTS} == dict(DEFAULTS)
    words = ["--model", "a", "--max_model_len=4k", "-tp", "2", "--no-enable-prefix-caching", "--enforce-eager"]
    words += ["--override-neuron-config", json.dumps({"skip_warmup": True}), "--gpu-memory-utilization", "0.5"]
    args = EngineArgs.from_cli_args(parser.parse_args(words))
    assert (args.model, args.max_model_len, args.tensor_parallel_size) == ("a", 4000, 2)
    assert args.enable_prefix_caching is False and args.enforce_eager and args.gpu_memory_utilization == 0.5
    assert args.override_neuron_config == {"skip_warmup": True}
    file = tmp_path / "args.yaml"
    file.write_text("max-model-len: 64\nenforce_eager: true\n")
    args = EngineArgs.from_cli_args(parser.parse_args(["--config", str(file), "--max-model-len", "32"]))
    assert (args.max_model_len, args.enforce_eager) == (32, True)


def test_flags_of_the_server(checkpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    monkeypatch.setenv("NEURON_COMPILED_ARTIFACTS", str(tmp_path / "compiled"))
    parser = server._parser("vllm serve")
    parser.add_argument("model_tag", nargs="?")
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages }}")
    words = [checkpoint, "--port", "0", "--served-model-name", "tiny", "--api-key", "a", "--max-model-len", "64"]
    words += ["--enable-lora", "--lora-modules", "one=/a", '{"name": "two", "path": "/b"}', "-dp", "2"]
    spec, how, replicas = server.server_of(parser.parse_args([*words, "--chat-template", str(template)]))
    assert (spec.name, spec.adapters, spec.chat_template) == ("tiny", {"one": "/a", "two": "/b"}, "{{ messages }}")
    assert spec.artifacts == tmp_path / "compiled"
    assert (how.host, how.port, how.api_key, replicas) == ("0.0.0.0", 0, ("a", "secret"), 2)
    wrongs = {("--ssl-keyfile", "k"): "ssl_keyfile", ("--lora-modules", "a=b"): "enable_lora"}
    wrongs |= {("--lora-modules", text): "lora_modules" for text in ("a", "=b", '{"name": "a"}', '{"name": 1', "{}")}
    for wrong, option in wrongs.items():
        with raises(ConfigError, option=option):
            server.server_of(parser.parse_args([checkpoint, *wrong]))
    assert isinstance(parser, argparse.ArgumentParser)


def test_adapters_have_the_tokenizer_of_the_model_unless_they_have_their_own(tmp_path):
    adapter = LoRARequest("a", 1, str(tmp_path))
    assert get_lora_tokenizer(None) is None and get_lora_tokenizer(adapter) is None
    save_tokenizer(tmp_path)
    assert len(get_lora_tokenizer(adapter)) == NUM_BYTE_TOKENS
    assert get_adapter_absolute_path(str(tmp_path)) == str(tmp_path)


def test_commands(capsys):
    assert command.main(["bench", "serve"]) == 2
    assert "benchmark_serving.py" in capsys.readouterr().err
    assert command.main(["--version"]) == 0 and command.main(["serv"]) == 2 and command.main([]) == 2
    assert "serve" in capsys.readouterr().err
    assert command.main(["serve", "./no/such/folder"]) == 1
    assert "./no/such/folder" in capsys.readouterr().err
