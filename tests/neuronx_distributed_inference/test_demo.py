"""Arguments of `inference_demo`: those of NxD Inference, those without an effect, and wrong ones."""

import json
import logging

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.neuronx_distributed_inference import demo
from optimum_neuron.neuronx_distributed_inference.families import NeuronLlamaForCausalLM, NeuronMixtralForCausalLM
from tests.raising import raises

WORDS = ["--model-type", "llama", "--task-type", "causal-lm", "run", "--model-path", "m", "--compiled-model-path", "c"]
WORDS += ["--prompt", "one", "--prompt", "two"]


def config_of(*words, kind=NeuronLlamaForCausalLM):
    return demo.create_neuron_config(kind, demo.parse_args([*WORDS, *words]))[1]


def test_flags_become_keywords(tmp_path):
    tree = tmp_path / "tree.json"
    tree.write_text(json.dumps({"0": ["1"]}))
    words = "--start_rank_id 0 --local_ranks_size 2 --tp-degree 2 --seq-len 64 --no-attn-kernel-enabled --is-eagle3"
    config = config_of(*words.split(), "--token-tree-json", str(tree))
    assert (config.local_ranks_size, config.seq_len, config.attn_kernel_enabled) == (2, 64, False)
    assert config.token_tree_config == {"0": ["1"]} and config.is_eagle3
    experts = config_of("--moe-tp-degree", "2", "--router-act-fn", "sigmoid", kind=NeuronMixtralForCausalLM)
    assert (experts.moe_tp_degree, experts.router_config.act_fn) == (2, "sigmoid")
    lora = config_of("--enable-dynamic-multi-lora", "--max-loras", "3").lora_config
    assert (lora.max_loras, lora.dynamic_multi_lora) == (3, True)


def test_modules_of_the_model_and_of_its_draft_are_kept(tmp_path):
    file = tmp_path / "modules.json"
    file.write_text(json.dumps({name: {"modules_to_not_convert": [name]} for name in ("model", "draft_model")}))
    config = config_of("--modules-to-not-convert-file", str(file))
    assert (config.modules_to_not_convert, config.draft_model_modules_to_not_convert) == (["model"], ["draft_model"])
    for content in ("[]", "{", '{"model": 3}'):
        file.write_text(content)
        with raises(ConfigError, file=str(file)):
            config_of("--modules-to-not-convert-file", str(file))


def test_flags_without_effect_are_one_message(caplog, tmp_path):
    words = ["--hlo-debug", "--capture-indices", "auto", "--kv-quant-dtype", "float8_e4m3fn", "--no-kv-direct-cast"]
    args = demo.parse_args([*WORDS, *words, "--model-path", str(tmp_path)])
    with caplog.at_level(logging.INFO), pytest.raises(ValueError, match="model_type"):
        demo.run_inference(NeuronLlamaForCausalLM, args)
    (message,) = [one.message for one in caplog.records if "Without effect" in one.message]
    assert message.endswith("core: --hlo-debug, --capture-indices, --kv-quant-dtype, --kv-direct-cast.")


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-flag"],
        ["--kv-quant-dtype", "float8_e5m2"],
        ["--k-quant-method", "x"],
        ["--medusa-tree-json", "none"],
    ],
    ids=lambda words: words[0],
)
def test_wrong_flags_are_errors(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        demo.parse_args([*WORDS, *words])
    assert words[0] in capsys.readouterr().err
