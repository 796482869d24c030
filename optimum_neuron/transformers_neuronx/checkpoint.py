"""Checkpoints with one file for each tensor, as `save_pretrained_split` writes them, and files of PyTorch.

config.json
pytorch_model.bin/key_to_filename.json      {tensor: file}
pytorch_model.bin/p0.model.embed_tokens...  one tensor each, read without executing code
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ..errors import WeightsError
from ..files.plain_json import read_object
from ..sources import find_folder

FOLDER, INDEX = "pytorch_model.bin", "key_to_filename.json"


def save_pretrained_split(model: PreTrainedModel, save_directory: str | Path) -> None:
    """Write a model with one file for each tensor.

    Args:
        model: a transformers model.
        save_directory: the folder; it is made if needed.
    """
    folder = Path(save_directory)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    names = {}
    for number, (key, tensor) in enumerate(model.state_dict().items()):
        names[key] = f"p{number}.{re.sub(r'[^A-Za-z0-9_.-]', '_', key)}"
        torch.save(tensor.detach().contiguous().clone(), folder / FOLDER / names[key])
    (folder / FOLDER / INDEX).write_text(json.dumps(names, indent=2, sort_keys=True), encoding="utf-8")


def has_safetensors(checkpoint: str | Path) -> bool:
    """Return whether the weights are what an export maps: safetensors, or a GGUF file."""
    folder = find_folder(checkpoint)
    return not (folder / FOLDER).exists() or any(folder.glob("*.safetensors"))


def read_module(checkpoint: str | Path, config: PretrainedConfig) -> PreTrainedModel:
    """Return the transformers model of a checkpoint with files of PyTorch."""
    folder = find_folder(checkpoint)
    if (folder / FOLDER).is_dir():
        module = AutoModelForCausalLM.from_config(config)
        missing, unknown = module.load_state_dict(_tensors(folder / FOLDER), strict=False)
        tied = set(getattr(module, "all_tied_weights_keys", None) or ())
        if missing := sorted(set(missing) - tied):
            raise WeightsError(
                f"{folder / FOLDER} lacks {len(missing)} tensors of the model, such as {missing[0]}.",
                hint="Write the checkpoint again with save_pretrained_split.",
                folder=str(folder),
                missing=missing,
            )
        module.tie_weights()
        return module.eval()
    return AutoModelForCausalLM.from_pretrained(folder, config=config, weights_only=True).eval()


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder of single ones."""
    names = read_object(folder / INDEX)
    tensors: dict[str, torch.Tensor] = {}
    for key, name in names.items():
        path = folder / Path(str(name)).name
        if not path.is_file() or path.name != name:
            raise WeightsError(
                f"{folder / INDEX} names {name!r} for {key}, and there is no such file.",
                hint="Copy the whole folder, or write the checkpoint again with save_pretrained_split.",
                folder=str(folder),
                tensor=key,
                file=str(name),
            )
        tensors[key] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return tensors


def random_split(config_path: str | Path, save_directory: str | Path) -> None:
    """Write a split checkpoint with random weights for a configuration file."""
    config: Any = AutoConfig.from_pretrained(config_path)
    save_pretrained_split(AutoModelForCausalLM.from_config(config), save_directory)
