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
        tensors, own = _tensors(folder / FOLDER), module.state_dict()
        if wrong := [key for key, tensor in tensors.items() if key in own and tensor.shape != own[key].shape]:
            shapes = f"{list(tensors[wrong[0]].shape)}, not {list(own[wrong[0]].shape)}"
            raise WeightsError(
                f"{wrong[0]} in {folder / FOLDER} has the shape {shapes} of config.json.",
                hint="Use files of one checkpoint.",
                folder=str(folder),
                tensors=wrong,
            )
        missing, unknown = module.load_state_dict(tensors, strict=False)
        tied = set(module.all_tied_weights_keys)
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
    if not (folder / INDEX).is_file():
        raise WeightsError(
            f"{folder} has no {INDEX}, which names the file of each tensor.",
            hint="Copy the whole folder, or write the checkpoint again with save_pretrained_split.",
            folder=str(folder),
            file=INDEX,
        )
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
        tensors[key] = _tensor(path)
    return tensors


def _tensor(path: Path) -> torch.Tensor:
    """Read the tensor of a file, without executing code."""
    try:
        value = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # noqa: BLE001  # of pickle, of zip files, of the memory map
        reason = str(error).splitlines()[0]
        raise WeightsError(
            f"{path} is not the file of a tensor ({type(error).__name__}: {reason}).",
            hint="Copy the file again, or write the checkpoint again with save_pretrained_split.",
            file=path.name,
        ) from error
    if not isinstance(value, torch.Tensor):
        message = f"{path} has a {type(value).__name__}, not a tensor."
        raise WeightsError(message, hint="Use files that save_pretrained_split wrote.", file=path.name)
    return value


def random_split(config_path: str | Path, save_directory: str | Path) -> None:
    """Write a split checkpoint with random weights for a configuration file."""
    config: Any = AutoConfig.from_pretrained(config_path)
    save_pretrained_split(AutoModelForCausalLM.from_config(config), save_directory)
