"""RXNMapper's ALBERT, a masked language model of chemical reactions written as SMILES.

The package carries a configuration, a vocabulary and a pickled state dict, of which nothing but tensors is read
(`weights_only`). Its tokenizer is code; the same cuts are made by one pattern here.
"""

from __future__ import annotations

import json
from pathlib import Path

from .common import save, save_word_tokenizer

SMILES = r"\[[^\]]+\]|Br|Cl|>>|%[0-9]{2}|[BCNOSPFIbcnosp0-9().=#+\\/:~@?>*$-]"
"""One token of SMILES: an atom in brackets, an atom of the organic subset, a bond, a branch or the number of a ring
(Schwaller et al., "Molecular Transformer", ACS Cent. Sci. 2019, section 3)."""
_CONFIG = (
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "embedding_size",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "inner_group_num",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_groups",
    "num_hidden_layers",
    "pad_token_id",
    "type_vocab_size",
    "vocab_size",
)
"""Fields taken from the configuration; the rest is for training or text generation."""
_UNUSED = "albert.pooler."
"""Tensors that a masked language model has no use for."""


def convert(source: Path, destination: Path) -> None:
    """Write the checkpoint and a fast tokenizer, from config.json, pytorch_model.bin and vocab.txt."""
    import torch
    from transformers import AlbertConfig, AlbertForMaskedLM

    written = json.loads((source / "config.json").read_text("utf-8"))
    words = (source / "vocab.txt").read_text("utf-8").splitlines()
    begin, end = words.index("[CLS]"), words.index("[SEP]")
    config = AlbertConfig(**{key: written[key] for key in _CONFIG}, bos_token_id=begin, eos_token_id=end)
    tensors = torch.load(source / "pytorch_model.bin", map_location="cpu", weights_only=True)
    save(AlbertForMaskedLM(config), {k: v for k, v in tensors.items() if not k.startswith(_UNUSED)}, destination)
    save_word_tokenizer(
        words,
        SMILES,
        destination,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
        model_max_length=config.max_position_embeddings,
    )
