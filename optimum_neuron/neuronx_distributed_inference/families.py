"""The classes of each family, from a table: `Neuron<Name>ForCausalLM`, `<Name>InferenceConfig`, `<Name>NeuronConfig`.

`Neuron<Name>Model`, the vendor's network, only says which class a draft is for: it can be named, and not called.

>>> NeuronLlamaForCausalLM.model_types
('llama',)
"""

from __future__ import annotations

from typing import Any

from ..base.doors import absent
from .application import NeuronBaseForCausalLM
from .family_table import FAMILIES, Family
from .inference_config import InferenceConfig, MoEInferenceConfig

NO_NETWORK = "Write the model for transformers: NeuronModelForCausalLM compiles it."
"""What authors of networks can do."""
_REQUIRED = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
"""Attributes that the configuration of a model must have."""


def _required(config: InferenceConfig) -> list[str]:
    """Return attributes that must be there."""
    return list(_REQUIRED)


def _classes(family: Family) -> dict[str, type]:
    """The classes of a family by name."""
    base: type[InferenceConfig] = MoEInferenceConfig if family.has_experts else InferenceConfig
    own = {"__module__": __name__, "__doc__": f"Configuration of {family.name}.", "get_required_attributes": _required}
    config = type(f"{family.name}InferenceConfig", (base,), own)
    network = absent(__name__, f"Neuron{family.name}Model", NO_NETWORK)
    parts: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"{family.name}, compiled.",
        "model_types": family.model_types,
    }
    parts |= {"config_class": config, "_model_cls": network}
    model = type(f"Neuron{family.name}ForCausalLM", (NeuronBaseForCausalLM,), parts)
    options = {f"{family.name}NeuronConfig": base.get_neuron_config_cls()}
    return {config.__name__: config, model.__name__: model, network.__name__: network, **options}


CLASSES: dict[str, dict[str, Any]] = {name: _classes(family) for name, family in FAMILIES.items()}
"""Classes of each family by name."""

globals().update({name: found for classes in CLASSES.values() for name, found in classes.items()})


def model_class(name: str) -> type[NeuronBaseForCausalLM]:
    """Return the model of a family."""
    return CLASSES[name][f"Neuron{FAMILIES[name].name}ForCausalLM"]
