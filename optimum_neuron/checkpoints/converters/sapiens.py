"""Sapiens: RoBERTa of fairseq, a masked language model of antibodies, one checkpoint for each kind of chain.

A checkpoint is a pickle of fairseq; of it nothing but tensors, plain values and `argparse.Namespace` is read
(`weights_only`), so no code runs and fairseq is not needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from .common import save, save_word_tokenizer

_RESIDUE = "[A-Z]"
"""One token: the letter of an amino acid."""
_FIRST, _LAST = ("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",)
"""Tokens that fairseq puts before and after those of dict.txt (fairseq.data.Dictionary, tasks.masked_lm)."""
_POSITION_OFFSET = 2
"""fairseq and transformers count positions from the padding token's id + 1; both tables have these rows too."""

_ENCODER, _HEAD = "decoder.sentence_encoder.", "decoder.lm_head."
_EMBEDDINGS = {
    "word_embeddings.weight": "embed_tokens.weight",
    "position_embeddings.weight": "embed_positions.weight",
    "LayerNorm.weight": "emb_layer_norm.weight",
    "LayerNorm.bias": "emb_layer_norm.bias",
}
_LAYER = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
"""Module of transformers to module of fairseq, in each layer."""
_LM_HEAD = {
    "dense.weight": "dense.weight",
    "dense.bias": "dense.bias",
    "layer_norm.weight": "layer_norm.weight",
    "layer_norm.bias": "layer_norm.bias",
    "decoder.weight": "weight",
    "bias": "bias",
}


def convert(source: Path, destination: Path) -> None:
    """Write the checkpoint and a tokenizer of residues, from one checkpoint (.pt) and dict.txt."""
    import torch
    from transformers import RobertaConfig, RobertaForMaskedLM

    (path,) = source.glob("*.pt")
    with torch.serialization.safe_globals([argparse.Namespace]):
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    options, tensors = checkpoint["args"], checkpoint["model"]
    residues = [line.split()[0] for line in (source / "dict.txt").read_text("utf-8").splitlines()]
    words = [*_FIRST, *residues, *_LAST]
    config = RobertaConfig(
        vocab_size=len(words),
        hidden_size=options.encoder_embed_dim,
        num_hidden_layers=options.encoder_layers,
        num_attention_heads=options.encoder_attention_heads,
        intermediate_size=options.encoder_ffn_embed_dim,
        hidden_act=options.activation_fn,
        max_position_embeddings=options.max_positions + _POSITION_OFFSET,
        type_vocab_size=1,
        layer_norm_eps=1e-5,  # torch's default, which fairseq leaves
        bos_token_id=words.index("<s>"),
        pad_token_id=words.index("<pad>"),
        eos_token_id=words.index("</s>"),
    )
    state = {ours: tensors[theirs] for ours, theirs in _names(config.num_hidden_layers)}
    # transformers adds the embedding of a token's type, which fairseq's RoBERTa has not.
    state["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, config.hidden_size)
    save(RobertaForMaskedLM(config), state, destination)
    save_word_tokenizer(
        words,
        _RESIDUE,
        destination,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=options.max_positions,
    )


def _names(num_layers: int) -> Iterator[tuple[str, str]]:
    """Each tensor of transformers' model and its name in the checkpoint."""
    for ours, theirs in _EMBEDDINGS.items():
        yield f"roberta.embeddings.{ours}", f"{_ENCODER}{theirs}"
    for layer in range(num_layers):
        for ours, theirs in _LAYER.items():
            for kind in ("weight", "bias"):
                yield f"roberta.encoder.layer.{layer}.{ours}.{kind}", f"{_ENCODER}layers.{layer}.{theirs}.{kind}"
    for ours, theirs in _LM_HEAD.items():
        yield f"lm_head.{ours}", f"{_HEAD}{theirs}"
