"""Weights of checkpoint folders: read, written, without layers. It knows names of tensors, and no models.

    create_n_layer_checkpoint(2, "Llama-3.1-8B", "Llama-3.1-8B-2-layers")

The first layers of a large checkpoint are a small one, with which a script can be tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file

from ..errors import ConfigError
from ..sources import CONFIGURATION_FILES, COPIED, copy_files
from ..weights import weight_files

Tensors = dict[str, torch.Tensor]
_PICKLED = "pytorch_model.bin"
_LAYERS = ("layers",)
_NUMBERS_OF_LAYERS = ("num_hidden_layers",)


def load_state_dict(state_dict_dir: str | Path) -> Tensors:
    """Read the tensors of a checkpoint folder by name, in one or several files of safetensors, or `pytorch_model.bin`.

    Args:
        state_dict_dir: the folder.

    Raises:
        WeightsError: it has no weights, or a file is missing.
    """
    folder = Path(state_dict_dir)
    pickled = folder / _PICKLED
    if pickled.is_file() and not any(folder.glob("*.safetensors")):
        tensors: Tensors = torch.load(pickled, map_location="cpu", weights_only=True)
        return tensors
    return {name: tensor for file in weight_files(folder) for name, tensor in load_file(file).items()}


def save_state_dict_safetensors(state_dict: Tensors, state_dict_dir: str | Path, max_shard_size: str = "10GB") -> None:
    """Write tensors into a folder as Hugging Face does.

    Args:
        state_dict: tensors by name.
        state_dict_dir: the folder, which is made.
        max_shard_size: largest size of a file, such as "5GB".
    """
    Path(state_dict_dir).mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(
        state_dict,
        save_directory=state_dict_dir,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_shard_size,
    )


def prune_state_dict(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are not None."""
    return {name: value for name, value in state_dict.items() if value is not None}


def create_n_layer_checkpoint(
    n: int,
    src_dir: str | Path,
    tgt_dir: str | Path,
    layer_prefix: Sequence[str] = _LAYERS,
    layer_config_keys: Sequence[str] = _NUMBERS_OF_LAYERS,
) -> Tensors:
    """Write a checkpoint with the first layers of another, and return its tensors.

    Args:
        n: number of layers.
        src_dir: folder of the checkpoint.
        tgt_dir: folder of the new one, with copies of the tokenizer and configurations.
        layer_prefix: parts of names that come before the number of a layer.
        layer_config_keys: fields of `config.json` with the number of layers; lists such as `layer_types` stay.

    Raises:
        WeightsError: `src_dir` has no weights.
        ConfigError: no number is behind a prefix.
    """
    source, target = Path(src_dir), Path(tgt_dir)
    tensors = load_state_dict(source)
    kept = {name: tensor for name, tensor in tensors.items() if find_layer_idx(name, layer_prefix) < n}
    copy_files(source, target, (*COPIED, *CONFIGURATION_FILES))
    save_state_dict_safetensors(kept, target)
    load_config_and_update_layer_num(target / "config.json", n, layer_config_keys)
    return kept


def find_layer_idx(key: str, layer_prefix: Sequence[str] = _LAYERS) -> int:
    """Return the layer of a tensor, -1 if it is in none.

    >>> find_layer_idx("model.layers.12.mlp.up_proj.weight")
    12
    """
    parts = key.split(".")
    place = next((place for place, part in enumerate(parts) if part in layer_prefix), None)
    if place is None:
        return -1
    number = "".join(parts[place + 1 : place + 2])
    if not number.isdecimal():
        message = f"Unable to fetch layer index from {key!r}: no number is behind {parts[place]!r}."
        raise ConfigError(message, hint="Pass another layer_prefix.", option="layer_prefix", name=key)
    return int(number)


def find_and_update_key(d: dict[str, Any], target_key: str, new_value: object) -> bool:
    """Set a key in a mapping, and in the mappings and lists inside it, and return whether it was there."""
    is_there = target_key in d
    if is_there:
        d[target_key] = new_value
    for key, value in d.items():
        if key != target_key:
            parts = value if isinstance(value, list) else [value]
            is_there |= any([find_and_update_key(one, target_key, new_value) for one in parts if isinstance(one, dict)])
    return is_there


def load_config_and_update_layer_num(
    config_path: str | Path, num_layers: int, layer_config_keys: Sequence[str] | None = None
) -> str:
    """Write a number of layers into a configuration file, and return its path.

    Args:
        config_path: the file.
        num_layers: the number.
        layer_config_keys: fields, wherever they are; None: `num_hidden_layers`.
    """
    content = json.loads(Path(config_path).read_text(encoding="utf-8"))
    for key in layer_config_keys or _NUMBERS_OF_LAYERS:
        find_and_update_key(content, key, num_layers)
    Path(config_path).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return str(config_path)
