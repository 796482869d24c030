"""Attributes that a script changed in an `InferenceConfig`, in the configuration of the checkpoint."""

from __future__ import annotations

import copy

from transformers import PretrainedConfig

from .config import to_dict

_NOT_OF_MODEL = ("dtype", "torch_dtype", "transformers_version", "architectures", "quantization_config")


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
