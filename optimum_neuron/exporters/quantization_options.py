"""Other spellings of `quantization`: configuration objects of transformers, and keywords of NxD Inference.

>>> from transformers import QuantoConfig
>>> translate_quantization({"quantization_config": QuantoConfig(weights="int8")})
{'quantization': 'int8'}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..weights import SCHEME_NAMES

QUANTIZATION_OPTIONS = (
    *("quantization_config", "quantized", "quantization_dtype", "quantization_type"),
    *("activation_quantization_type", "kv_cache_quant", "kv_quant_config"),
)
"""Keywords that `translate_quantization` knows."""

_QUANTO = {"int8": "int8", "float8": "fp8", "int4": "int4-g128"}
"""Weights of `QuantoConfig`; its groups have 128 inputs."""
_TORCHAO = {
    "Int8WeightOnlyConfig": "int8",
    "Int8DynamicActivationInt8WeightConfig": "int8-dynamic",
    "Float8WeightOnlyConfig": "fp8",
    "Int4WeightOnlyConfig": "int4",
}
"""Classes of torchao that need no calibration."""
_NXDI_DTYPES = {"int8": "int8", "f8e4m3": "fp8"}
_NXDI_TYPES = {"per_channel_symmetric": "", "blockwise_symmetric": "-g128"}
_NXDI_ACTIVATIONS = {"None": "", "dynamic": "-dynamic"}

CACHE_DTYPES = {"fp8_e4m3": "fp8", "int8_per_token_head": "int8"}
"""vLLM's values of `kv_cache_dtype` that have another name here."""


_NXDI_CACHE_DTYPES = ("float8_e4m3fn", "f8e4m3")
_NXDI_CACHE_FIELDS = ("quant_dtype", "direct_cast", "k_quant_method", "v_quant_method")


def cache_dtype_of(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return which keyword of NxD Inference among `options` quantizes the cache, and `kv_cache_dtype` for it.

    `kv_quant_config` is a `KVQuantizationConfig` or a mapping. It casts to fp8, or divides by scales of the checkpoint.

    >>> cache_dtype_of({"kv_quant_config": {"quant_dtype": "float8_e4m3fn", "direct_cast": True}})
    ('kv_quant_config', 'fp8')
    """
    config = options.get("kv_quant_config")
    if config is None:
        return ("kv_cache_quant", "fp8") if options.get("kv_cache_quant") else None
    given = config if isinstance(config, Mapping) else vars(config)
    fields = {name: getattr(value, "value", value) for name, value in given.items() if value is not None}
    is_cast = bool(fields.get("direct_cast"))
    methods = {name: fields.get(name, "per_tensor_symmetric") for name in _NXDI_CACHE_FIELDS[2:]}
    wrong = {name: value for name, value in fields.items() if name not in _NXDI_CACHE_FIELDS}
    if (dtype := str(fields.get("quant_dtype")).removeprefix("torch.")) not in _NXDI_CACHE_DTYPES:
        wrong["quant_dtype"] = dtype
    if not is_cast:
        wrong |= {name: value for name, value in methods.items() if value != "per_tensor_symmetric"}
    if wrong:
        listed = ", ".join(f"{name}={value!r}" for name, value in wrong.items())
        message = f"kv_quant_config with {listed} is not supported."
        hint = "Pass quant_dtype=torch.float8_e4m3fn with direct_cast=True, or with per_tensor_symmetric and the "
        hint += "scales of the checkpoint."
        raise ConfigError(message, hint=hint, option="kv_quant_config", fields=wrong)
    return "kv_quant_config", "fp8" if is_cast else "fp8-static"


def translate_quantization(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `quantization` and `modules_to_not_convert` for the keywords of other libraries among `options`."""
    config = options.get("quantization_config")
    if config is not None:
        return _of_transformers(config)
    if options.get("quantized"):
        return {"quantization": _of_nxdi(options)}
    details = [name for name in QUANTIZATION_OPTIONS[2:5] if name in options]
    if details:
        hint = "Pass quantized=True too, or quantization alone."
        raise ConfigError(f"{', '.join(details)} has no effect without quantized=True.", hint=hint, options=details)
    return {}


def _of_transformers(config: Any) -> dict[str, Any]:
    name = type(config).__name__
    scheme = None
    if name == "QuantoConfig" and config.activations is None:
        scheme = _QUANTO.get(config.weights)
    elif name == "TorchAoConfig":
        quantizer = config.quant_type
        scheme = _TORCHAO.get(type(quantizer).__name__)
        if scheme == "int4":
            scheme = f"int4-g{quantizer.group_size}"
    if scheme is None:
        message = f"quantization_config={name} is not supported: nothing is calibrated."
        hint = 'Pass QuantoConfig(weights="int8") or a weight-only TorchAoConfig, or quantization="int8".'
        raise ConfigError(message, hint=hint, option="quantization_config", type=name, choices=list(SCHEME_NAMES))
    skipped = config.modules_to_not_convert
    return {"quantization": scheme} | ({"modules_to_not_convert": tuple(skipped)} if skipped else {})


def _of_nxdi(options: Mapping[str, Any]) -> str:
    dtype = str(options.get("quantization_dtype") or "int8")
    kind = str(options.get("quantization_type") or "per_channel_symmetric")
    activations = str(options.get("activation_quantization_type"))
    size, inputs = _NXDI_TYPES.get(kind), _NXDI_ACTIVATIONS.get(activations)
    if dtype not in _NXDI_DTYPES or size is None or inputs is None or (size and (dtype == "int8" or inputs)):
        message = f"quantization_dtype={dtype!r} with quantization_type={kind!r} and "
        message += f"activation_quantization_type={activations!r} is not supported."
        hint = "Pass int8 or f8e4m3 with per_channel_symmetric, where activations may be dynamic, or f8e4m3 with "
        hint += "blockwise_symmetric."
        raise ConfigError(message, hint=hint, option="quantization_type", value=kind)
    return _NXDI_DTYPES[dtype] + size + inputs
