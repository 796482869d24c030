"""Quantized checkpoints: supported methods, and how transformers dequantizes them to plain floating-point weights.

A program is compiled for floating-point weights, so a quantized checkpoint is dequantized while it is loaded, or
refused by the name of its method. It knows the configuration only, and reads no weight.

    require_readable(config, model="org/model")
    model = AutoModelForCausalLM.from_pretrained(folder, config=dequantizing(config))
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping
from typing import Any

from ..errors import ModelError

DEQUANTIZED = {"fp8": None, "mxfp8": None, "mxfp4": None, "compressed-tensors": "compressed_tensors"}
"""Methods that transformers dequantizes on a CPU (those whose configuration has `dequantize`), and the package that
each needs."""

KEY = "quantization_config"
"""Field of a transformers configuration that says how its weights are quantized."""


def quantization_of(config: Any) -> dict[str, Any] | None:
    """Return the quantization settings of a configuration; None where they are plain.

    Args:
        config: a transformers configuration or the data of a `config.json`; a text model inside it counts too.
    """
    is_data = isinstance(config, Mapping)
    text = config.get("text_config") if is_data else config.get_text_config(decoder=True)
    for owner in (config, text):
        settings = owner.get(KEY) if isinstance(owner, Mapping) else getattr(owner, KEY, None)
        if settings:
            return dict(settings) if isinstance(settings, Mapping) else settings.to_dict()
    return None


def method_of(quantization: Mapping[str, Any]) -> str:
    """The name of a method, as transformers spells it.

    Example:
        ```python
        from optimum_neuron.exporters.quantization import method_of

        assert method_of({"load_in_4bit": True}) == "bitsandbytes"
        ```
    """
    if quantization.get("load_in_4bit") or quantization.get("load_in_8bit"):
        return "bitsandbytes"
    method = quantization.get("quant_method") or "unknown"
    return str(getattr(method, "value", method))


def require_readable(config: Any, *, model: str) -> None:
    """Reject a checkpoint whose weights cannot be dequantized here.

    Args:
        config: as for `quantization_of`.
        model: name of the checkpoint, for the message.

    Raises:
        ModelError: the method is not one of `DEQUANTIZED`, or its package is not installed; `details["quantization"]`
            names it.
    """
    quantization = quantization_of(config)
    if quantization is None:
        return
    method = method_of(quantization)
    package = DEQUANTIZED.get(method)
    message = f"The weights of {model} are quantized with {method}, "
    if method not in DEQUANTIZED:
        message += f"but transformers dequantizes {', '.join(DEQUANTIZED)} only."
        hint = "Pass the checkpoint that it was quantized from."
    elif package is not None and importlib.util.find_spec(package) is None:
        message += f"and the package {method}, which dequantizes them, is not installed."
        hint = f"Run `pip install {method}`, or pass an unquantized checkpoint."
    else:
        return
    raise ModelError(message, hint=hint, quantization=method)


def require_plain(config: Any, *, model: str) -> None:
    """Reject a model in memory whose weights are quantized.

    Raises:
        ModelError: they are; `details["quantization"]` names the method.
    """
    quantization = quantization_of(config)
    if quantization is not None:
        message = f"The weights of {model} in memory are quantized with {method_of(quantization)}."
        hint = "Call its dequantize(), or pass the checkpoint that it was quantized from."
        raise ModelError(message, hint=hint, quantization=method_of(quantization))


def dequantizing(config: Any) -> Any:
    """Return a copy of a transformers configuration that makes transformers dequantize the weights that it loads."""
    quantization = quantization_of(config)
    return with_quantization(config, quantization and quantization | {"dequantize": True})


def with_quantization(config: Any, quantization: dict[str, Any] | None) -> Any:
    """Return a copy of a transformers configuration with the given `quantization` settings, or with none."""
    config = copy.deepcopy(config)
    for owner in (config, config.get_text_config(decoder=True)):
        if hasattr(owner, KEY):
            delattr(owner, KEY)
    if quantization is not None:
        setattr(config, KEY, quantization)
    return config
