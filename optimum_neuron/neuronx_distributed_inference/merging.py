"""Attributes that a script changed in an `InferenceConfig`, in the configuration of the checkpoint."""

from __future__ import annotations

import copy
import json

from transformers import PretrainedConfig

from .config import to_dict

_NOT_OF_MODEL = ("dtype", "torch_dtype", "transformers_version", "architectures", "quantization_config")

_NOT_OF_COMPILE = ("_name_or_path", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings")
"""Attributes that artifacts do not depend on, or that the weights decide."""


def merged(config: PretrainedConfig, given: object) -> PretrainedConfig:
    """Return a checkpoint's configuration with the attributes of another that differ."""
    config = copy.deepcopy(config)
    for name, value in config.to_dict().items():
        if name in _NOT_OF_MODEL or not hasattr(given, name):
            continue
        part, own = getattr(config, name, None), getattr(given, name)
        if isinstance(part, PretrainedConfig):
            setattr(config, name, merged(part, own))
        elif to_dict(own) != to_dict(value):
            setattr(config, name, own)
    return config


def differences(config: PretrainedConfig, given: object) -> list[str]:
    """Return the attributes that `merged` would change, with both values; those of generation do not count."""
    before, after = config.to_dict(), merged(config, given).to_dict()
    names = [name for name in before if name not in _NOT_OF_COMPILE and _text(before[name]) != _text(after[name])]
    return [f"{name} {before[name]!r}, not {after[name]!r}" for name in names]


def _text(value: object) -> str:
    """The JSON text of a value, in which all keys are strings."""
    return json.dumps(to_dict(value), default=str, sort_keys=True)
