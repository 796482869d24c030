"""What a quantized checkpoint wants its keys and values stored in: `kv_cache_scheme` of compressed-tensors.

Such checkpoints (llm-compressor's) have a scale for the keys of each layer and one for its values, found by
calibration. As in vLLM, they are used unless the user chooses another dtype. Other schemes are refused by name. Weights
are another matter (`quantization.py`).

    options |= published_cache(config, chosen=options.get("kv_cache_dtype"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from .quantization import method_of, settings_of

STATIC = "fp8-static"
"""The option for scales of a checkpoint."""

_NEEDED: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
"""Fields of the scheme that is supported; vLLM's Neuron plugin supports the same."""
_DEFAULTS: dict[str, Any] = {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": True, "dynamic": False}
"""compressed-tensors' values of fields that a scheme leaves out."""


def published_cache(config: Any, *, chosen: str | None = None) -> dict[str, str]:
    """Return the option `kv_cache_dtype` for the scheme of a checkpoint; nothing where it has none, or is overruled.

    Args:
        config: a transformers configuration.
        chosen: the user's `kv_cache_dtype`. "fp8" takes the scales of the checkpoint, as in vLLM.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.sources.kv_cache_scheme import published_cache

        scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
        config = LlamaConfig(quantization_config={"quant_method": "compressed-tensors", "kv_cache_scheme": scheme})
        assert published_cache(config) == {"kv_cache_dtype": "fp8-static"}
        ```
    """
    settings = settings_of(config) or {}
    scheme = settings.get("kv_cache_scheme")
    if not scheme or chosen in ("int8", STATIC):
        return {}
    stated = _DEFAULTS | {k: v for k, v in scheme.items() if v is not None} if isinstance(scheme, Mapping) else {}
    fields = {name: stated.get(name, scheme) for name, value in _NEEDED.items() if stated.get(name) != value}
    if not fields:
        return {"kv_cache_dtype": STATIC}
    if chosen == "fp8":
        return {}
    listed = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    message = f"The kv_cache_scheme of this {method_of(settings)} checkpoint is not supported: {listed}."
    hint = "Only fp8 with a scale for each tensor is. Pass kv_cache_dtype: int8 has scales for each token."
    raise ModelError(message, hint=hint, option="kv_cache_dtype", fields=fields)
