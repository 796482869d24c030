"""Configurations of decoders by the names of Optimum Neuron: calls make those of `optimum_neuron`.

NxDNeuronConfig(batch_size=1, sequence_length=512, tp_degree=2)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optimum.neuron._log import logger

import optimum_neuron
from optimum_neuron.errors import ConfigError
from optimum_neuron.exporters import translate
from optimum_neuron.hardware import resolve_instance, resolve_target
from optimum_neuron.options.peer_attributes import with_origin

_DEFAULTS = {"batch_size": 1, "sequence_length": 128, "torch_dtype": "bfloat16"}
_ABSENT = {"ep_degree": (1, None), "capacity_factor": (None,)}
"""Values that stand for the absence of a feature."""
_WITHOUT_EFFECT = (
    *("fused_qkv", "output_logits", "n_active_tokens", "max_context_length", "start_rank_id", "local_ranks_size"),
    *("glu_mlp", "image_seq_len"),
)


class _ConfigType(type):
    """The class of these classes: configurations of `optimum_neuron` are instances of them."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, vars(cls)["config_class"])

    def __call__(cls, **fields: Any) -> Any:
        """Return a configuration of `optimum_neuron`."""
        return _made(vars(cls)["config_class"], fields)


class NxDNeuronConfig(metaclass=_ConfigType):
    """Static shapes, arithmetic, and target of one compiled decoder."""

    config_class = optimum_neuron.NeuronConfig

    @classmethod
    def from_pretrained(cls, model_id: str | Path, **where: Any) -> Any:
        """Read the configuration of an exported model, or one that was saved alone."""
        return vars(cls)["config_class"].from_pretrained(model_id, **where)


class NxDVLMNeuronConfig(NxDNeuronConfig):
    """Static shapes, arithmetic, and target of one compiled vision encoder and decoder."""

    config_class = optimum_neuron.NeuronImageTextConfig


def _made(config_class: type, fields: dict[str, Any]) -> Any:
    """A configuration of fields by the names of Optimum Neuron.

    Raises:
        ConfigError: a field is unknown or out of range, or is of a feature that is not here.
    """
    fields = _DEFAULTS | {name: value for name, value in fields.items() if value is not None}
    if wrong := {name: fields[name] for name, known in _ABSENT.items() if fields.get(name, known[0]) not in known}:
        shown = ", ".join(f"{name}={value!r}" for name, value in wrong.items())
        raise ConfigError(f"{shown} is not supported.", hint=f"Remove {', '.join(wrong)}.", options=wrong)
    origin = fields.pop("checkpoint_id", None), fields.pop("checkpoint_revision", None)
    if ignored := [name for name in _WITHOUT_EFFECT if name in fields]:
        logger.info("%s change nothing: the compiler chooses layouts and lengths.", ", ".join(ignored))
    plain = {name: value for name, value in fields.items() if name not in (*_ABSENT, *_WITHOUT_EFFECT)}
    if (target := plain.pop("target", None)) is not None:
        plain["target"] = resolve_target(target).value.name
        plain["instance_type"] = resolve_instance(target).value.name
    if length := plain.pop("speculation_length", 0):
        plain |= {"speculation": True, "extend_length": length}
    if not plain.get("on_device_sampling"):
        plain.pop("max_topk", None)
    return with_origin(config_class(**translate(plain)), *origin)
