"""Read a LoRA adapter that PEFT saved, for a compiled model that has room for it. PEFT is not needed.

adapter = read_lora("out/checkpoint-50")
down, up = adapter.matrices["model.layers.0.self_attn.q_proj"]
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, WeightsError
from ..weights import Checkpoint, MappedFile
from .adapters import read_description
from .source import find_folder

if TYPE_CHECKING:
    import torch

WEIGHTS_FILE = "adapter_model.safetensors"
"""Name of an adapter's tensors in its folder (PEFT)."""

_PREFIX = "base_model.model."
_TENSOR = re.compile(r"(?P<module>.+)\.lora_(?P<kind>[AB])\.weight")
_RANK = _ALPHA = 8
"""Defaults of PEFT's `LoraConfig`."""


def _is_off(value: object) -> bool:
    return not value or value == "none"


_INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")
"""Initial weights of LoRA that leave the base model as it is."""

_PLAIN: Mapping[str, Callable[[Any], bool]] = {
    "use_dora": _is_off,
    "bias": _is_off,
    "lora_bias": _is_off,
    "modules_to_save": _is_off,
    "trainable_token_indices": _is_off,
    "target_parameters": _is_off,
    "layer_replication": _is_off,
    "alora_invocation_tokens": _is_off,
    "use_qalora": _is_off,
    "use_bdlora": _is_off,
    "arrow_config": _is_off,
    "kasa_config": _is_off,
    "monteclora_config": _is_off,
    "init_lora_weights": _INITIAL.__contains__,
}
"""Option of PEFT's `LoraConfig` to whether a value leaves an adapter two matrices for each module."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lora:
    """A LoRA adapter."""

    folder: Path
    base_model: str | None
    """Name or path of the model that it was trained on, as its configuration says."""
    matrices: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    """Module to its matrices [R, I] and [O, R]; the second one has the scale."""

    @property
    def rank(self) -> int:
        """Largest rank of its modules."""
        return max(len(down) for down, _ in self.matrices.values())


def read_lora(name: str | Path, **where: Any) -> Lora:
    """Read an adapter.

    Args:
        name: folder or Hub model ID.
        **where: fields of `SourceOptions`.
    """
    folder = find_folder(name, **where)
    description = read_description(folder)
    _refuse_options(folder, description)
    path = folder / WEIGHTS_FILE
    checkpoint = Checkpoint([MappedFile.open(path)], str(path))
    names: dict[str, dict[str, str]] = {}
    others = []
    for tensor in checkpoint.specs:
        if match := _TENSOR.fullmatch(tensor.removeprefix(_PREFIX)):
            names.setdefault(match["module"], {})[match["kind"]] = tensor
        else:
            others.append(tensor)
    others += [f"{module} has only lora_{next(iter(pair))}" for module, pair in names.items() if len(pair) == 1]
    if others or not names:
        listed = f"tensors that are not LoRA's: {', '.join(others[:4])}" if others else "no tensors"
        message = f"The adapter {path} has {listed}. Compiled models load pairs of LoRA matrices only."
        hint = "Merge it into the base model with merge_adapter, and export that."
        raise WeightsError(message, hint=hint, adapter=str(folder), tensors=others)
    matrices = {}
    for module, pair in names.items():
        down, up = (checkpoint.join([pair[kind]])[0].float() for kind in "AB")
        rank = _of_module(description, "rank_pattern", module, folder) or description.get("r", _RANK)
        if down.dim() != 2 or up.dim() != 2 or not len(down) == up.shape[1] == rank:
            shapes = f"{list(down.shape)} and {list(up.shape)}"
            message = f"The matrices of {module} in {path} have shapes {shapes}, but its rank is {rank}."
            raise WeightsError(message, hint="Download the adapter again.", adapter=str(folder), module=module)
        alpha = _of_module(description, "alpha_pattern", module, folder)
        matrices[module] = down, up * _scale(description, alpha, rank)
    return Lora(folder=folder, base_model=description.get("base_model_name_or_path"), matrices=matrices)


def _refuse_options(folder: Path, description: Mapping[str, Any]) -> None:
    method = description.get("peft_type")
    if method != "LORA":
        message = f"The adapter {folder} is a {method} adapter; compiled models load LoRA adapters only."
        hint = "Merge it into the base model with merge_adapter, and export that."
        raise ConfigError(message, hint=hint, adapter=str(folder), method=method)
    options = {name: description[name] for name, is_plain in _PLAIN.items() if not is_plain(description.get(name))}
    if options:
        listed = ", ".join(f"{name}={value!r}" for name, value in options.items())
        message = f"The adapter {folder} has options that compiled models do not support: {listed}."
        hint = "Merge it into the base model with merge_adapter, and export that."
        raise ConfigError(message, hint=hint, adapter=str(folder), options=options)


def _of_module(description: Mapping[str, Any], option: str, module: str, folder: Path) -> Any:
    """Return the value of the first pattern that a module has; None if it has none."""
    for pattern, value in (description.get(option) or {}).items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except (re.error, OverflowError, RecursionError) as error:
            message = (
                f"The adapter {folder} has the {option} {pattern!r:.100}, which is no regular expression: {error}."
            )
            hint = "Correct adapter_config.json, or download the adapter again."
            raise ConfigError(message, hint=hint, adapter=str(folder), option=option, value=pattern) from error
    return None


def _scale(description: Mapping[str, Any], alpha: float | None, rank: int) -> float:
    """Factor on the product of a module's matrices."""
    alpha = description.get("lora_alpha", _ALPHA) if alpha is None else alpha
    return float(alpha / (math.sqrt(rank) if description.get("use_rslora") else rank))
