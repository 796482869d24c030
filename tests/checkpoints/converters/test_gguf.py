from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from optimum_neuron.checkpoints import convert
from optimum_neuron.checkpoints.converters import gguf
from optimum_neuron.errors import ModelError
from optimum_neuron.weights import GgufFile
from tests.raising import raises


@pytest.fixture(scope="module")
def converted_folder(tiny_gguf, tmp_path_factory):
    destination = tmp_path_factory.mktemp("converted") / "tiny"
    before = dict(os.environ)
    convert("gguf", tiny_gguf.parent, destination)
    assert dict(os.environ) == before
    return destination


@pytest.mark.full(days=3)
def test_weights_are_those_that_transformers_reads_in_bfloat16_and_are_tied(converted_folder, tiny_gguf):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, GgufConfig

    weights = load_file(converted_folder / "model.safetensors")
    assert "lm_head.weight" not in weights
    dense = GgufConfig(dequantize=True)
    reference = AutoModelForCausalLM.from_pretrained(
        tiny_gguf.parent, gguf_file=tiny_gguf.name, dtype=torch.bfloat16, quantization_config=dense
    )
    expected = reference.state_dict()
    assert weights.keys() == expected.keys() - {"lm_head.weight"}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights.items())
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize("change", ["lacks a tensor", "has one more", "numbers are changed"])
def test_file_that_is_not_the_model_is_refused(tiny_gguf, tmp_path, monkeypatch, change):
    path = shutil.copy(tiny_gguf, tmp_path)
    if change == "numbers are changed":
        monkeypatch.setattr("optimum_neuron.weights.gguf_tensors._CHANGED", ("llama",))
        details = {"architecture": "llama"}
    elif change == "lacks a tensor":
        monkeypatch.setattr(
            GgufFile, "open", lambda path, real=GgufFile.open: without(real(path), "blk.0.ffn_up.weight")
        )
        details = {"missing": ["model.layers.0.mlp.up_proj.weight"]}
    else:
        Path(path).write_bytes(Path(path).read_bytes().replace(b"blk.0.ffn_up", b"blk.9.ffn_up"))
        details = {"tensors": ["blk.9.ffn_up.weight"]}
    with raises(ModelError, **details):
        gguf.convert(tmp_path, tmp_path / "out")


def without(file: GgufFile, name: str) -> GgufFile:
    del file.entries[name]
    return file


def test_config_has_model_fields_only(converted_folder):
    config = json.loads((converted_folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert (config["hidden_size"], config["num_hidden_layers"], config["num_key_value_heads"]) == (32, 1, 1)
    assert config["tie_word_embeddings"] is True
    assert not {"quantization_config", "_model_name_or_path", "_name_or_path"} & set(config)
    generation = json.loads((converted_folder / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"], generation["pad_token_id"]) == (1, 2, 2)


def test_tokenizer_has_merges_limit_and_chat_template(converted_folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted_folder)
    assert tokenizer.convert_ids_to_tokens(tokenizer("hello<|im_end|>").input_ids) == ["he", "ll", "o", "<|im_end|>"]
    assert tokenizer.model_max_length == 64
    assert tokenizer.apply_chat_template([{"role": "user", "content": "he"}], tokenize=False) == "he"
    saved = json.loads((converted_folder / "tokenizer_config.json").read_text())
    assert not {"is_local", "local_files_only"} & set(saved)


@pytest.mark.full(days=4)
def test_invalid_gguf_is_refused_with_reason(tmp_path, capfd):
    (tmp_path / "broken.gguf").write_bytes(b"not a gguf file at all")
    with raises(ModelError, converter="gguf", files="broken.gguf") as error:
        convert("gguf", tmp_path, tmp_path / "out")
    assert "GGUF magic" in error.value.details["output"]
    assert capfd.readouterr() == ("", "")


def test_rotary_positions_of_the_file_are_kept(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    from tests.sources.test_gguf_settings import CASES, IDS, save

    model_type, settings, tensors, options = CASES["linear"]
    expected = save(tmp_path, model_type, settings, tensors, **options)
    gguf.convert(tmp_path, tmp_path / "out")
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert read.config.rope_parameters["factor"] == 2.5
    torch.testing.assert_close(read(IDS).logits, expected, atol=0.2, rtol=0.05)
