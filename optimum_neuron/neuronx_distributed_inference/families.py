"""The classes of each family, from a table: `Neuron<Name>ForCausalLM` and `<Name>InferenceConfig`.

>>> NeuronLlamaForCausalLM.model_types
('llama',)
"""

from __future__ import annotations

from typing import Any

from .application import NeuronBaseForCausalLM
from .family_table import FAMILIES, Family
from .inference_config import InferenceConfig, MoEInferenceConfig

_REQUIRED = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
"""Attributes that the configuration of a model must have."""


def _required(config: InferenceConfig) -> list[str]:
    """Return attributes that must be there."""
    return list(_REQUIRED)


def _classes(family: Family) -> dict[str, type]:
    """The classes of a family by name."""
    base: type = MoEInferenceConfig if family.has_experts else InferenceConfig
    own = {"__module__": __name__, "__doc__": f"Configuration of {family.name}.", "get_required_attributes": _required}
    config = type(f"{family.name}InferenceConfig", (base,), own)
    parts = {"__module__": __name__, "__doc__": f"{family.name}, compiled.", "model_types": family.model_types}
    model = type(f"Neuron{family.name}ForCausalLM", (NeuronBaseForCausalLM,), {**parts, "config_class": config})
    return {config.__name__: config, model.__name__: model}


CLASSES: dict[str, dict[str, Any]] = {name: _classes(family) for name, family in FAMILIES.items()}
"""Classes of each family by name."""

globals().update({name: found for classes in CLASSES.values() for name, found in classes.items()})


def model_class(name: str) -> type[NeuronBaseForCausalLM]:
    """Return the model of a family."""
    return CLASSES[name][f"Neuron{FAMILIES[name].name}ForCausalLM"]
