"""Quantized checkpoints: which scheme of ours has their numbers, and which methods are dequantized or refused.

`published_scheme` finds the scheme of a method whose layout (`layouts.py`) is read here, which the program is compiled
for. Others are dequantized by transformers while they are loaded, or refused by name. It knows the configuration only,
and reads no weight.

    require_readable(config, model="org/model")
    model = AutoModelForCausalLM.from_pretrained(folder, config=dequantizing(config))
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping
from typing import Any

from ..base.core import Choice
from ..base.foreign import plain_value
from ..base.transformers_types import PreTrainedConfig
from ..errors import ModelError
from ..weights import GGUF_SCHEMES, RUN, Layout, Scheme, parse_schemes
from .layouts import stored_layout, weight_groups

DEQUANTIZED = {"fp8": None, "mxfp8": None, "mxfp4": None, "compressed-tensors": "compressed_tensors", "gguf": "gguf"}
"""Methods that transformers dequantizes on a CPU (those whose configuration has `dequantize`), and the package that
each needs."""

READ_HERE = ("fp8", "mxfp4", "compressed-tensors", "gptq", "awq", "gguf")
"""Methods of which at least one layout is read by `weights/`."""

KEY = "quantization_config"
"""Field of a transformers configuration that says how its weights are quantized."""


def quantization_of(config: PreTrainedConfig) -> dict[str, Any] | None:
    """Return the quantization settings of a configuration; None where weights are plain.

    Args:
        config: a transformers configuration or the data of a `config.json`; a text model inside it counts too.
    """
    settings = settings_of(config)
    if settings is None or method_of(settings) != "compressed-tensors" or not settings.get("kv_cache_scheme"):
        return settings
    return settings if weight_groups(settings) else None


def settings_of(config: PreTrainedConfig) -> dict[str, Any] | None:
    """Return the quantization settings of a configuration, also where they are of keys and values only."""
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
        from optimum_neuron.sources.quantization import method_of

        assert method_of({"load_in_4bit": True}) == "bitsandbytes"
        ```
    """
    if quantization.get("load_in_4bit") or quantization.get("load_in_8bit"):
        return "bitsandbytes"
    method = quantization.get("quant_method") or "unknown"
    return str(plain_value(method)).lower()


def published_scheme(quantization: Mapping[str, Any]) -> Choice[str | None]:
    """Return the scheme that has the numbers of a quantized checkpoint, or None and the reason.

    Example:
        ```python
        from optimum_neuron.sources.quantization import published_scheme

        settings = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
        assert published_scheme(settings).value == "int4-g128-zp"
        ```
    """
    method = method_of(quantization)
    if method == "gguf":
        return _gguf_scheme(quantization)
    if method == "mxfp4":
        return Choice(value="mxfp4", reason="the numbers of mxfp4 as they are stored; activations stay in 16 bits")
    layout = stored_layout(method, quantization)
    if layout.value is None:
        return Choice(value=None, reason=layout.reason)
    is_float = method == "fp8"
    is_dynamic = False
    if method == "compressed-tensors":
        groups = weight_groups(quantization)
        is_float = groups[0]["weights"].get("type") == "float"
        is_dynamic = all(_is_dynamic(group.get("input_activations") or {}) for group in groups)
    return _scheme_of(layout.value, is_float=is_float, is_dynamic=is_dynamic)


def _gguf_scheme(settings: Mapping[str, Any]) -> Choice[str | None]:
    """The scheme of most matrices of a GGUF file, and that of its head; the others stay plain."""
    forms, architecture = settings["forms"], settings["architecture"]
    if not settings["is_read_here"]:
        return Choice(value=None, reason=f"transformers converts the tensors of the architecture {architecture}")
    form = next((form for form in forms if form in GGUF_SCHEMES), None)
    if form is None:
        listed = ", ".join(f"{form} ({number} matrices)" for form, number in forms.items())
        return Choice(value=None, reason=f"no scheme has the numbers of {listed}")
    scheme, head = GGUF_SCHEMES[form], GGUF_SCHEMES.get(settings["head"])
    name = scheme if head in (None, parse_schemes(scheme)[1].name) else f"{scheme}/{head}"
    return Choice(value=name, reason=f"the numbers of {form} as they are stored; activations stay in 16 bits")


def rounding_of(quantization: Mapping[str, Any]) -> str | None:
    """Say why numbers of a quantized checkpoint are rounded once more, or return None.

    Example:
        ```python
        from optimum_neuron.sources.quantization import rounding_of

        assert "desc_act" in rounding_of({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True})
        assert rounding_of({"quant_method": "gptq", "bits": 4, "group_size": 128}) is None
        ```
    """
    layout, order = layout_of(quantization), sorts_inputs(quantization)
    if layout is not None and layout.num_bits == 8 and not layout.is_symmetric:
        return "numbers of 8 bits have zero points, and a scheme of 8 bits has none"
    if order is None or layout is None or not layout.block[1]:
        return None
    return f"{order} sorts the inputs of a group by activation, and a scheme has groups of neighbors"


def sorts_inputs(quantization: Mapping[str, Any]) -> str | None:
    """Return the setting by which the inputs of a group are no neighbors, or None."""
    orders = [group["weights"].get("actorder") for group in weight_groups(quantization)]
    if any(order is True or str(order).lower() == "group" for order in orders):
        return 'actorder="group"'
    return "desc_act" if quantization.get("desc_act") else None


def _scheme_of(layout: Layout, *, is_float: bool, is_dynamic: bool) -> Choice[str | None]:
    kind = "fp8" if is_float else f"int{layout.num_bits}"
    size = layout.block[1]
    if size % RUN:
        return Choice(value=None, reason=f"groups of {size} inputs are no multiple of {RUN}")
    has_zeros = kind == "int4" and not layout.is_symmetric
    is_dynamic = is_dynamic and kind == "int8" and not size
    size = size or (RUN if kind == "int4" else 0)
    scheme = Scheme(kind=kind, group_size=size, has_zeros=has_zeros, is_dynamic=is_dynamic)
    inputs = "each token's activations in 8 bits too" if is_dynamic else "activations stay in 16 bits"
    return Choice(value=scheme.name, reason=f"the numbers of {layout.method} as they are stored; {inputs}")


def _is_dynamic(activations: Mapping[str, Any]) -> bool:
    """Return whether activations are integers of 8 bits with a scale for each token, found while the model runs."""
    return (
        (activations.get("num_bits"), activations.get("type", "int")) == (8, "int")
        and activations.get("dynamic") is True
        and activations.get("strategy", "token") == "token"
        and activations.get("symmetric", True)
    )


def layout_of(quantization: Mapping[str, Any]) -> Layout | None:
    """Return the layout of a checkpoint whose tensors `weights/published.py` reads, or None."""
    return stored_layout(method_of(quantization), quantization).value


def require_readable(config: PreTrainedConfig, *, model: str) -> None:
    """Reject a checkpoint whose weights cannot be dequantized here.

    Args:
        config: as for `quantization_of`.
        model: name of the checkpoint, for the message.
    """
    quantization = quantization_of(config)
    if quantization is None:
        return
    method = method_of(quantization)
    if layout_of(quantization) is not None or published_scheme(quantization).value is not None:
        return
    package = DEQUANTIZED.get(method)
    message = f"The weights of {model} are quantized with {method}, "
    if method not in DEQUANTIZED:
        readable = ", ".join(sorted({*DEQUANTIZED, *READ_HERE}))
        message += f"but only {readable} can be read."
        if method in READ_HERE:
            message = f"{message[:-1]}, and {published_scheme(quantization).reason}."
        hint = "Pass the checkpoint that it was quantized from."
    elif package is not None and importlib.util.find_spec(package) is None:
        message += f"and the package {method}, which dequantizes them, is not installed."
        hint = f"Run `pip install {method}`, or pass an unquantized checkpoint."
        raise ModelError(message, hint=hint, quantization=method, package=method)
    elif method == "compressed-tensors" and _has_several_forms(quantization):
        message += "and transformers would read all layers that are no experts by the settings of one group of them."
        hint = "Pass the checkpoint that it was quantized from."
    else:
        return
    raise ModelError(message, hint=hint, quantization=method)


def _has_several_forms(quantization: Mapping[str, Any]) -> bool:
    """Return whether groups of layers other than experts have different weights.

    transformers dequantizes them by the first such group (5.24, `get_dense_scheme`).
    """
    groups = weight_groups(quantization)
    targets = [[str(target) for target in group.get("targets") or ()] for group in groups]
    dense = [
        group["weights"]
        for group, names in zip(groups, targets, strict=True)
        if not any(name.startswith("re:") and "experts" in name for name in names)
    ]
    return any(weights != dense[0] for weights in dense)


def require_plain(config: PreTrainedConfig, *, model: str) -> None:
    """Reject a model in memory whose weights are quantized."""
    quantization = quantization_of(config)
    if quantization is not None:
        message = f"The weights of {model} in memory are quantized with {method_of(quantization)}."
        hint = "Call its dequantize(), or pass the checkpoint that it was quantized from."
        raise ModelError(message, hint=hint, quantization=method_of(quantization))


def dequantizing(config: PreTrainedConfig) -> Any:
    """Return a copy of a transformers configuration that makes transformers dequantize the weights that it loads."""
    quantization = quantization_of(config)
    return with_quantization(config, quantization and quantization | {"dequantize": True})


def with_quantization(config: PreTrainedConfig, quantization: dict[str, Any] | None) -> Any:
    """Return a copy of a transformers configuration with the given `quantization` settings, or with none."""
    config = copy.deepcopy(config)
    for owner in (config, config.get_text_config(decoder=True)):
        if hasattr(owner, KEY):
            delattr(owner, KEY)
    if quantization is not None:
        setattr(config, KEY, quantization)
    return config


STATIC = "fp8-static"
"""The option for scales of a checkpoint."""

_NEEDED: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
"""Fields of the scheme that is supported; vLLM's Neuron plugin supports the same."""
_DEFAULTS: dict[str, Any] = {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": True, "dynamic": False}
"""compressed-tensors' values of fields that a scheme leaves out."""


def published_cache(config: PreTrainedConfig, *, chosen: str | None = None) -> dict[str, str]:
    """Return the option `kv_cache_dtype` for the scheme of a checkpoint; nothing where it has none, or is overruled.

    Args:
        config: a transformers configuration.
        chosen: the user's `kv_cache_dtype`. "fp8" takes the scales of the checkpoint, as in vLLM.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.sources.quantization import published_cache

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
