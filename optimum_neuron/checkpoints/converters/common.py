"""Shared parts of converters: weights that must match exactly, word tokenizers, and rows of data sets.

It knows no package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.transformers_types import PreTrainedModel
from ...errors import ModelError
from ..folder import DATA

if TYPE_CHECKING:
    import torch


def save(model: PreTrainedModel, tensors: Mapping[str, torch.Tensor], destination: Path) -> None:
    """Load every parameter and buffer of a model, one for each tied group, and save the model."""
    expected = model.state_dict()
    problems = [f"{name} is unknown" for name in tensors if name not in expected]
    problems += [
        f"{name} has {tuple(tensor.shape)}, the model {tuple(expected[name].shape)}"
        for name, tensor in tensors.items()
        if name in expected and tensor.shape != expected[name].shape
    ]
    pointers = {expected[name].data_ptr() for name in tensors if name in expected}
    problems += [f"{name} is missing" for name, tensor in expected.items() if tensor.data_ptr() not in pointers]
    if problems:
        message = f"The weights do not fit {type(model).__name__}: {'; '.join(problems)}."
        raise ModelError(message, hint="Correct the converter.", problems=problems)
    model.load_state_dict(tensors, strict=False)
    model.save_pretrained(destination)


def save_word_tokenizer(words: Iterable[str], pattern: str, destination: Path, **special: Any) -> None:
    """Write a tokenizer that cuts a text with a pattern and looks each piece up.

    Args:
        words: The vocabulary in the order of its ids, special tokens included.
        pattern: Regular expression of one piece; text between pieces is an unknown word.
        **special: `cls_token`, `sep_token`, `unk_token`, ... and `model_max_length`, as transformers names them.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {word: index for index, word in enumerate(words)}
    begin, end = special["cls_token"], special["sep_token"]
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.post_processor = processors.BertProcessing((end, ids[end]), (begin, ids[begin]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(destination)


def save_rows(rows: Iterable[Mapping[str, Any]], destination: Path) -> None:
    """Write the rows of a data set, one JSON object a line, into a folder that is made where it is not there."""
    destination.mkdir(exist_ok=True)
    with (destination / DATA).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
