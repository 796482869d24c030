"""Files of a checkpoint besides its configuration and weights, and how they are copied."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

COPIED = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model"),
    *("chat_template*", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json"),
    "[0-9]_*/model.safetensors",
    "LICENSE*",
)
"""Files besides configuration and weights that an export copies."""


def copy_files(source: Path, target: Path, patterns: Iterable[str] = COPIED) -> None:
    """Copy the files of a folder that match, folders within it included."""
    for path in (path for pattern in patterns for path in source.glob(pattern) if path.is_file()):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
