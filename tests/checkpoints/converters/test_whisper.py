"""The converter of Whisper gives the tensors of transformers' model back, out of a file as CTranslate2 writes it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSpeechSeq2Seq, AutoTokenizer, WhisperConfig, WhisperForConditionalGeneration

from optimum_neuron.checkpoints.converters import whisper
from optimum_neuron.checkpoints.converters.ctranslate2 import VERSION, read_variables
from optimum_neuron.errors import ModelError
from tests.encoders import randomize
from tests.raising import raises

_DTYPES = {torch.float32: 0, torch.int8: 1, torch.float16: 4}
SPECIAL = ["endoftext", "startoftranscript", "en", "translate", "transcribe", "startofprev", "notimestamps"]


def text(name: str) -> bytes:
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


def write_variables(path: Path, variables: dict[str, torch.Tensor], *, version: int = VERSION) -> None:
    """As CTranslate2's own writer lays a file out, with one alias."""
    parts = [struct.pack("<I", version), text("WhisperSpec"), struct.pack("<I", 3), struct.pack("<I", len(variables))]
    for name, tensor in variables.items():
        data = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        sizes = struct.pack(f"<B{tensor.ndim}I", tensor.ndim, *tensor.shape)
        parts += [text(name), sizes, struct.pack("<BI", _DTYPES[tensor.dtype], len(data)), data]
    parts += [struct.pack("<I", 1), text("decoder/projection/weight"), text("decoder/embeddings/weight")]
    path.write_bytes(b"".join(parts))


def of_attention(tensors: dict[str, torch.Tensor], module: Any, name: str, *, joined: str) -> None:
    """Projections in the order in which CTranslate2 numbers them; the `joined` ones are one."""
    zero = torch.zeros(module.k_proj.weight.shape[0])
    groups = [joined, "out"] if joined == "qkv" else ["q", joined, "out"]
    for number, group in enumerate(groups):
        linears = [getattr(module, f"{part}_proj") for part in ([group] if group == "out" else group)]
        tensors[f"{name}/linear_{number}/weight"] = torch.cat([linear.weight for linear in linears])
        tensors[f"{name}/linear_{number}/bias"] = torch.cat(
            [zero if linear.bias is None else linear.bias for linear in linears]
        )


def variables_of(model: WhisperForConditionalGeneration) -> dict[str, torch.Tensor]:
    results: dict[str, torch.Tensor] = {}

    def norm(module: Any, name: str) -> None:
        results[f"{name}/gamma"], results[f"{name}/beta"] = module.weight, module.bias

    for side in ("encoder", "decoder"):
        part = getattr(model.model, side)
        results[f"{side}/num_heads"] = torch.tensor(4, dtype=torch.int8)
        results[f"{side}/position_encodings/encodings"] = part.embed_positions.weight
        norm(part.layer_norm, f"{side}/layer_norm")
        for index, layer in enumerate(part.layers):
            name = f"{side}/layer_{index}"
            of_attention(results, layer.self_attn, f"{name}/self_attention", joined="qkv")
            norm(layer.self_attn_layer_norm, f"{name}/self_attention/layer_norm")
            if side == "decoder":
                of_attention(results, layer.encoder_attn, f"{name}/attention", joined="kv")
                norm(layer.encoder_attn_layer_norm, f"{name}/attention/layer_norm")
            norm(layer.final_layer_norm, f"{name}/ffn/layer_norm")
            for number, linear in enumerate((layer.fc1, layer.fc2)):
                results[f"{name}/ffn/linear_{number}/weight"] = linear.weight
                results[f"{name}/ffn/linear_{number}/bias"] = linear.bias
    for number in (1, 2):
        conv = getattr(model.model.encoder, f"conv{number}")
        results[f"encoder/conv{number}/weight"], results[f"encoder/conv{number}/bias"] = conv.weight, conv.bias
    results["decoder/embeddings/weight"] = model.model.decoder.embed_tokens.weight
    return {name: t.detach() if t.ndim == 0 else t.detach().half() for name, t in results.items()}


@pytest.fixture
def model():
    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 48))}
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    positions = {"max_source_positions": 20, "max_target_positions": 16, "num_mel_bins": 8}
    special = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1}
    model = WhisperForConditionalGeneration(
        WhisperConfig(vocab_size=24, d_model=32, **sizes, **heads, **positions, **special)
    )
    return randomize(model).half().float()


@pytest.fixture
def source(model, tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    write_variables(folder / "model.bin", variables_of(model))
    stated = {"suppress_ids": [9], "suppress_ids_begin": [10], "alignment_heads": [[0, 1]], "lang_ids": [2]}
    (folder / "config.json").write_text(json.dumps(stated))
    options = {"normalized": False, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    added = [{"id": i, "content": f"<|{name}|>", **options} for i, name in enumerate(SPECIAL)]
    vocabulary = {f"<|{name}|>": i for i, name in enumerate(SPECIAL)} | {"a": 7, "b": 8}
    bpe = {"type": "BPE", "vocab": vocabulary, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added, "model": bpe}))
    return folder


def test_every_tensor_is_mapped(model, source, tmp_path):
    whisper.convert(source, tmp_path / "made")
    converted_model, loading_info = AutoModelForSpeechSeq2Seq.from_pretrained(
        tmp_path / "made", output_loading_info=True
    )
    assert {kind: keys for kind, keys in loading_info.items() if keys} == {}
    expected = model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in converted_model.state_dict().items())
    features, ids = torch.randn(1, 8, 40), torch.tensor([[1, 6, 7]])
    with torch.no_grad():
        assert torch.equal(
            converted_model(features, decoder_input_ids=ids).logits, model(features, decoder_input_ids=ids).logits
        )


def test_generation_config_has_special_tokens(source, tmp_path):
    whisper.convert(source, tmp_path / "made")
    result = json.loads((tmp_path / "made" / "generation_config.json").read_text())
    assert (result["decoder_start_token_id"], result["eos_token_id"], result["no_timestamps_token_id"]) == (1, 0, 6)
    assert (result["suppress_tokens"], result["begin_suppress_tokens"], result["alignment_heads"]) == (
        [9],
        [10],
        [[0, 1]],
    )
    assert result["is_multilingual"] is False and "lang_to_id" not in result
    assert AutoTokenizer.from_pretrained(tmp_path / "made").convert_tokens_to_ids("<|notimestamps|>") == 6


def test_keys_with_bias_are_refused(model, source, tmp_path):
    variables = variables_of(model)
    variables["encoder/layer_0/self_attention/linear_0/bias"][40] = 1.0
    write_variables(source / "model.bin", variables)
    with raises(ModelError, tensor="encoder/layer_0/self_attention/linear_0"):
        whisper.convert(source, tmp_path / "made")


def test_alias_shares_tensor_and_dtype(model, source):
    result = read_variables(source / "model.bin")
    assert result["decoder/projection/weight"] is result["decoder/embeddings/weight"]
    assert (result["encoder/num_heads"].dtype, result["encoder/conv1/weight"].dtype) == (torch.int8, torch.float16)


@pytest.mark.parametrize("damage", ["another version", "cut", "no model"])
def test_unreadable_file_is_refused(model, source, damage):
    path = source / "model.bin"
    if damage == "another version":
        write_variables(path, variables_of(model), version=5)
    else:
        path.write_bytes(path.read_bytes()[:5000] if damage == "cut" else b"\x06")
    with raises(ModelError, file="model.bin") as error:
        read_variables(path)
    assert damage != "another version" or error.value.details["error"] == "binary version 5"
