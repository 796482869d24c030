"""Quantized checkpoints of NxD Inference: weights of 8 bits, each with a `scale` beside it, in a folder or one file.

`write` makes one. `readable` yields a folder with the same numbers in the form of compressed-tensors, and the program
has them as they are stored.

    with readable(neuron_config, "Llama-3.1-8B") as source:
        NeuronModelForCausalLM.from_pretrained(source, export=True)
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..base.foreign import plain_value
from ..errors import ConfigError, invalid_choice
from ..files.atomic import WorkFolder
from ..files.plain_json import read_object
from ..neuronx_distributed import quantization
from ..sources import CONFIGURATION_FILES, COPIED, copy_files, find_folder, quantization_of
from ..weights import Checkpoint, MappedFile
from ..xla import serialization
from .config import NeuronConfig
from .state_dicts import Tensors, load_state_dict, prune_state_dict, save_state_dict_safetensors

_DTYPES = {"int8": torch.int8, "f8e4m3": torch.float8_e4m3fn}
_SCALE, _PUBLISHED_SCALE, _WEIGHT, _MODEL = ".scale", ".weight_scale", ".weight", "model."


def stored(neuron: NeuronConfig, model_path: str | Path) -> Path | None:
    """Return the quantized checkpoint that a configuration names, if it is there, or `model_path` if it is one."""
    if neuron.quantized:
        path = Path(neuron.quantized_checkpoints_path).expanduser()
        has_weights = path.is_file() or any(path.glob("*.safetensors")) or any(path.glob("*.bin"))
        return path if has_weights else None
    files = sorted(Path(model_path).expanduser().glob("*.safetensors"))
    names = Checkpoint([MappedFile.open(file) for file in files], str(model_path)).specs if files else {}
    has_scales = any(name.endswith(_SCALE) and name.removesuffix(_SCALE) + _WEIGHT in names for name in names)
    return Path(model_path).expanduser() if has_scales else None


def write(model: torch.nn.Module, neuron: NeuronConfig) -> None:
    """Quantize the linear layers of a model, in place, and write `quantized_checkpoints_path`.

    Args:
        model: the model.
        neuron: names the path: a folder that exists, or a file; the dtype, the type, and modules that stay as they are.
    """
    path, dtype = Path(neuron.quantized_checkpoints_path).expanduser(), _DTYPES[neuron.quantization_dtype]
    kinds = ("per_tensor_symmetric", "per_channel_symmetric")
    kind = str(plain_value(neuron.quantization_type))
    if kind not in kinds:
        raise invalid_choice("quantization_type", kind, kinds)
    if kind == kinds[0]:
        model = quantization.quantize_pytorch_model_per_tensor_symmetric(model, True, dtype)
    else:
        skipped = neuron.modules_to_not_convert
        model = quantization.quantize_pytorch_model_per_channel_symmetric(model, True, dtype, skipped)
    tensors = prune_state_dict(model.state_dict())
    if path.is_dir():
        save_state_dict_safetensors(tensors, path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    serialization.write_file(tensors, path)


@contextlib.contextmanager
def readable(neuron: NeuronConfig, model_path: str | Path) -> Iterator[str | Path]:
    """Yield the checkpoint to compile: the quantized one that is stored, else `model_path`.

    Args:
        neuron: the configuration.
        model_path: folder of the checkpoint, with its `config.json`.

    Raises:
        ConfigError: the stored numbers are not of `quantization_dtype`, or there are none.
    """
    path = stored(neuron, model_path)
    if path is None:
        yield model_path
        return
    if (path / "config.json").is_file() and quantization_of(read_object(path / "config.json")):
        yield path
        return
    work, folder = WorkFolder(), find_folder(model_path)
    tensors = load_state_dict(path) if path.is_dir() else serialization.read_file(path)
    copy_files(folder, work.path, (*COPIED, *CONFIGURATION_FILES))
    tensors = {_renamed(name): one for name, one in _whole(tensors, folder).items()}
    config = read_object(folder / "config.json") | {"quantization_config": _settings(tensors, neuron, path)}
    save_state_dict_safetensors({name: _column(name, one) for name, one in tensors.items()}, work.path)
    (work.path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    yield work.path


def _whole(tensors: Tensors, folder: Path) -> Tensors:
    """The tensors under whole names: files that upstream writes have those of the inner model, without a head."""
    if any(name.startswith(_MODEL) for name in tensors):
        return tensors
    named = {f"{_MODEL}{name}": tensor for name, tensor in tensors.items()}
    return {name: one for name, one in load_state_dict(folder).items() if name not in named} | named


def _renamed(name: str) -> str:
    return name.removesuffix(_SCALE) + _PUBLISHED_SCALE if name.endswith(_SCALE) else name


def _column(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Scales have an axis at least."""
    return tensor.reshape(1) if name.endswith(_PUBLISHED_SCALE) and tensor.ndim == 0 else tensor


def _settings(tensors: Tensors, neuron: NeuronConfig, path: Path) -> dict[str, Any]:
    """The `quantization_config` of the stored numbers."""
    scales = {name: one for name, one in tensors.items() if name.endswith(_PUBLISHED_SCALE)}
    weights = [tensors[name.removesuffix(_PUBLISHED_SCALE) + _WEIGHT] for name in scales]
    dtypes = sorted({str(weight.dtype) for weight in weights})
    expected = _DTYPES[neuron.quantization_dtype] if neuron.quantized or not weights else weights[0].dtype
    if dtypes != [str(expected)]:
        raise ConfigError(
            f"quantization_dtype={neuron.quantization_dtype!r}, but the quantized weights of {path} are "
            f"{', '.join(dtypes) or 'none'}.",
            hint="Pass the dtype of the checkpoint, or the folder that save_quantized_state_dict wrote.",
            option="quantization_dtype",
            value=neuron.quantization_dtype,
            stored=dtypes,
        )
    is_channel = any(scale.numel() > 1 for scale in scales.values())
    kind = "float" if expected.is_floating_point else "int"
    form = {"num_bits": 8, "type": kind, "strategy": "channel" if is_channel else "tensor"}
    group = {"targets": ["Linear"], "weights": {**form, "symmetric": True, "dynamic": False}}
    return {"quant_method": "compressed-tensors", "format": f"{kind}-quantized", "config_groups": {"group_0": group}}
