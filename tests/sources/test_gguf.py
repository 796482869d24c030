"""GGUF files run on their own numbers; they are written here with the package gguf."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ModelError, ValidationError, WeightsError
from optimum_neuron.sources import load_source, merge_adapter, quantization
from optimum_neuron.weights import GgufSource
from tests.tiny import SMALL, VOCABULARY, save_tiny

gguf = pytest.importorskip("gguf")

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
IDS = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
MODULES = {
    **{"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"},
    **{"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"},
    **{"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"},
}
"""Names in transformers and in llama.cpp."""
TOP = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
KEYS = {
    "context_length": 64,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "block_count": 2,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "rope.dimension_count": 16,
    "vocab_size": VOCABULARY,
}


def name_in_file(name):
    """Return the name that llama.cpp has for a tensor of transformers."""
    parts = name.removeprefix("model.").split(".")
    return f"blk.{parts[1]}.{MODULES[parts[-2]]}.{parts[-1]}" if "layers" in parts else f"{TOP[parts[0]]}.{parts[-1]}"


def by_halves(weight, num_heads):
    """Reorder rows as convert_hf_to_gguf.py of llama.cpp does."""
    return weight.reshape(num_heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def save_gguf(folder, form, head=None, architecture="llama"):
    """Write a tiny Llama or Qwen2 whose matrices have a form, and the head another; return the file's name."""
    tensors = load_file(save_tiny(folder / architecture, architecture, **SIZES) / "model.safetensors")
    path = folder / f"{architecture}-{form}-{head}.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in KEYS.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*(chr(33 + index) for index in range(VOCABULARY - 1)), "ab"])
    writer.add_token_merges(["a b"])
    for name, tensor in tensors.items():
        weight, stored = tensor.numpy(), name_in_file(name)
        if architecture == "llama" and (".attn_q." in stored or ".attn_k." in stored):
            weight = by_halves(weight, 4 if ".attn_q." in stored else 2)
        own = head or form if stored.startswith("output.") else form
        if weight.ndim == 1 or own == "F32":
            writer.add_tensor(stored, weight)
            continue
        kind = gguf.GGMLQuantizationType[own]
        writer.add_tensor(stored, gguf.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.name


@pytest.mark.full(days=4)
@pytest.mark.parametrize(
    ("form", "head", "architecture", "scheme"),
    [
        ("Q8_0", None, "llama", "int8-g32"),
        ("Q4_0", "Q8_0", "llama", "int4-g32/int8-g32"),
        ("Q4_0", "F32", "qwen2", "int4-g32"),
        ("Q4_1", "Q5_0", "llama", None),
    ],
)
def test_stored_numbers_are_those_of_transformers(form, head, architecture, scheme, tmp_path):
    name = save_gguf(tmp_path, form, head, architecture)
    original = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=name, dtype=torch.float32)
    model = NeuronModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=name, export=True, **SMALL, disable_validation=head != "Q8_0"
    )
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, original(IDS).logits, atol=1e-4, rtol=1e-4)
    dtypes = {name: spec.dtype for name, spec in model.loaded.program.weights.items()}
    facts = model.describe()
    assert "mapped from the GGUF file" in facts["stored_as"]["reason"]
    if scheme is None:
        assert "no scheme has the numbers of q4_1" in facts["stored_as"]["reason"] and "quantization" not in facts
        return
    layers, _, of_head = scheme.partition("/")
    assert facts["quantization"]["value"] == layers
    assert dtypes["model.layers.0.mlp.down.weight"] == ("uint8" if "4" in layers else "int8")
    assert dtypes["model.head.weight"] == ("float32" if head == "F32" else "int8")


def test_a_scale_that_is_read_wrongly_fails_validation(tmp_path, monkeypatch):
    name = save_gguf(tmp_path, "Q8_0")
    stored = GgufSource._stored

    def wrong(self, name):
        parts = stored(self, name)
        return parts | {"scale": 1.1 * parts["scale"]}

    monkeypatch.setattr(GgufSource, "_stored", wrong)
    with pytest.raises(ValidationError) as failure:
        NeuronModelForCausalLM.from_pretrained(tmp_path, gguf_file=name, export=True, **SMALL)
    assert failure.value.details["reader"] == "gguf"


def test_exported_folder_needs_no_gguf_file(tmp_path):
    name = save_gguf(tmp_path, "Q8_0")
    model = NeuronModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=name, export=True, **SMALL, disable_validation=True
    )
    model.save_pretrained(tmp_path / "exported")
    expected = model(IDS).logits
    (tmp_path / name).unlink()
    assert torch.equal(NeuronModelForCausalLM.from_pretrained(tmp_path / "exported")(IDS).logits, expected)
    assert not list((tmp_path / "exported").glob("*.gguf"))


def test_a_changed_file_is_read_again(tmp_path):
    name = save_gguf(tmp_path, "Q8_0")
    first = load_source(tmp_path, gguf_file=name)
    assert first.has_weights and load_source(tmp_path, gguf_file=name).folder == first.folder
    (tmp_path / name).write_bytes((tmp_path / save_gguf(tmp_path, "Q4_0")).read_bytes())
    changed = load_source(tmp_path, gguf_file=name)
    assert changed.folder != first.folder
    assert quantization.published_scheme(quantization.quantization_of(changed.config)).value == "int4-g32/int4-g32"


def test_a_path_to_the_file_is_a_model(tmp_path):
    name = save_gguf(tmp_path, "Q8_0")
    path = tmp_path / name
    assert load_source(path).folder == load_source(str(path)).folder == load_source(tmp_path, gguf_file=name).folder
    with pytest.raises(ConfigError):
        merge_adapter(path, tmp_path, tmp_path / "merged")


def test_no_adapter_is_merged(tmp_path):
    with pytest.raises(ConfigError) as failure:
        merge_adapter(tmp_path, tmp_path / "adapter", tmp_path / "merged", gguf_file="a.gguf")
    assert failure.value.details["option"] == "gguf_file"


def test_wrong_files_are_named(tmp_path):
    name = save_gguf(tmp_path, "Q8_0")
    with pytest.raises(ModelError) as caught:
        load_source(tmp_path, gguf_file="other.gguf")
    assert caught.value.details["files"] == [name]
    whole = (tmp_path / name).read_bytes()
    broken = {"cut": whole[:-9000], "header": whole[:300], "magic": b"GGML" + whole[4:], "empty": b""}
    for kind, content in broken.items():
        (tmp_path / f"{kind}.gguf").write_bytes(content)
        with pytest.raises(WeightsError) as failure:
            load_source(tmp_path, gguf_file=f"{kind}.gguf")
        assert failure.value.details["path"].endswith(f"{kind}.gguf")
        if kind == "cut":
            assert len(failure.value.details["tensors"]) > 1


SETTINGS = {
    "block_count": (0, 10**7),
    "attention.head_count": (2**31,),
    "embedding_length": (0, 2**30),
    "rope.dimension_count": (0,),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in SETTINGS.items() for value in values])
def test_settings_out_of_range_are_named(key, value, tmp_path, monkeypatch):
    monkeypatch.setitem(KEYS, key, value)
    name = save_gguf(tmp_path, "F32")
    with pytest.raises(ModelError) as error:
        load_source(tmp_path, gguf_file=name)
    assert (error.value.details["key"], error.value.details["value"]) == (key, value)
