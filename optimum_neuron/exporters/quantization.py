"""Quantized checkpoints: which scheme of ours has their numbers, and which methods are dequantized or refused.

`published_scheme` finds the scheme of a method whose layout `weights/published.py` reads; the program is compiled for
it. Others are dequantized by transformers while they are loaded, or refused by name. It knows the configuration only,
and reads no weight.

    require_readable(config, model="org/model")
    model = AutoModelForCausalLM.from_pretrained(folder, config=dequantizing(config))
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping
from typing import Any

from ..core import Choice
from ..errors import ModelError
from ..weights import GGUF_SCHEMES, RUN, Scheme, parse_schemes

DEQUANTIZED = {"fp8": None, "mxfp8": None, "mxfp4": None, "compressed-tensors": "compressed_tensors", "gguf": "gguf"}
"""Methods that transformers dequantizes on a CPU (those whose configuration has `dequantize`), and the package that
each needs."""

READ_HERE = ("fp8", "mxfp4", "compressed-tensors", "gptq", "awq", "gguf")
"""Methods whose tensors `weights/published.py` or `weights/gguf.py` reads, if `published_scheme` finds a scheme."""

KEY = "quantization_config"
"""Field of a transformers configuration that says how its weights are quantized."""


def quantization_of(config: Any) -> dict[str, Any] | None:
    """Return the quantization settings of a configuration; None where weights are plain.

    Args:
        config: a transformers configuration or the data of a `config.json`; a text model inside it counts too.
    """
    settings = settings_of(config)
    if settings is None or method_of(settings) != "compressed-tensors" or not settings.get("kv_cache_scheme"):
        return settings
    groups = (settings.get("config_groups") or {}).values()
    return settings if any(group.get("weights") for group in groups) else None


def settings_of(config: Any) -> dict[str, Any] | None:
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
        from optimum_neuron.exporters.quantization import method_of

        assert method_of({"load_in_4bit": True}) == "bitsandbytes"
        ```
    """
    if quantization.get("load_in_4bit") or quantization.get("load_in_8bit"):
        return "bitsandbytes"
    method = quantization.get("quant_method") or "unknown"
    return str(getattr(method, "value", method))


def published_scheme(quantization: Mapping[str, Any]) -> Choice[str | None]:
    """Return the scheme that has the numbers of a quantized checkpoint, or None and the reason.

    Example:
        ```python
        from optimum_neuron.exporters.quantization import published_scheme

        settings = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
        assert published_scheme(settings).value == "int4-g128-zp"
        ```
    """
    method = method_of(quantization)
    if method not in READ_HERE:
        return Choice(value=None, reason=f"{method} has a layout that is not read here")
    settings = dict(quantization)
    if method == "gguf":
        return _gguf_scheme(settings)
    if method == "mxfp4":
        return Choice(value="mxfp4", reason="the numbers of mxfp4 as they are stored; activations stay in 16 bits")
    if method == "fp8":
        settings |= {"bits": 8, "is_float": True, "group_size": (settings.get("weight_block_size") or (0, 0))[1]}
    elif method == "awq":
        if settings.get("version", "gemm") != "gemm":
            return Choice(value=None, reason=f"AWQ in the layout {settings['version']!r} is not read here")
        settings["sym"] = not settings.get("zero_point", True)
    elif method == "compressed-tensors":
        groups = list((settings.get("config_groups") or {}).values())
        weights = groups[0].get("weights") if len(groups) == 1 else None
        if weights is None:
            return Choice(value=None, reason="compressed-tensors with several groups of layers, or none")
        blocks = weights.get("block_structure") or (0, 0)
        settings = {
            "bits": weights.get("num_bits"),
            "is_float": weights.get("type") == "float",
            "group_size": blocks[1] if weights.get("strategy") == "block" else weights.get("group_size"),
            "sym": weights.get("symmetric", True),
            "is_dynamic": _is_dynamic(groups[0].get("input_activations") or {}),
        }
    return _scheme_of(settings, method)


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
        from optimum_neuron.exporters.quantization import rounding_of

        assert "desc_act" in rounding_of({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True})
        assert rounding_of({"quant_method": "gptq", "bits": 4, "group_size": 128}) is None
        ```
    """
    groups = (quantization.get("config_groups") or {}).values()
    orders = [(group.get("weights") or {}).get("actorder") for group in groups]
    if quantization.get("desc_act") and int(quantization.get("group_size") or 0) > 0:
        name = "desc_act"
    elif any(str(order).lower() == "group" for order in orders):
        name = 'actorder="group"'
    else:
        return None
    return f"{name} sorts the inputs of a group by activation, and a scheme has groups of neighbors"


def _scheme_of(settings: Mapping[str, Any], method: str) -> Choice[str | None]:
    kinds = {(8, True): "fp8", (8, False): "int8", (4, False): "int4"}
    kind = kinds.get((settings.get("bits") or 0, bool(settings.get("is_float"))))
    size = max(int(settings.get("group_size") or 0), 0)
    if kind is None:
        return Choice(value=None, reason=f"{method} with {settings.get('bits')} bits is not read here")
    if size % RUN:
        return Choice(value=None, reason=f"groups of {size} inputs are no multiple of {RUN}")
    has_zeros = kind == "int4" and not settings.get("sym", True)
    size = size or (RUN if kind == "int4" else 0)
    is_dynamic = kind == "int8" and not size and bool(settings.get("is_dynamic"))
    scheme = Scheme(kind=kind, group_size=size, has_zeros=has_zeros, is_dynamic=is_dynamic)
    inputs = "each token's activations in 8 bits too" if is_dynamic else "activations stay in 16 bits"
    return Choice(value=scheme.name, reason=f"the numbers of {method} as they are stored; {inputs}")


def _is_dynamic(activations: Mapping[str, Any]) -> bool:
    """Return whether activations are integers of 8 bits with a scale for each token, found while the model runs."""
    return (
        (activations.get("num_bits"), activations.get("type", "int")) == (8, "int")
        and activations.get("dynamic") is True
        and activations.get("strategy", "token") == "token"
        and activations.get("symmetric", True)
    )


def layout_of(quantization: Mapping[str, Any]) -> str | None:
    """Return the layout of a quantized checkpoint in `weights/published.py`, or None if transformers reads it."""
    method = method_of(quantization)
    if published_scheme(quantization).value is None:
        return None
    return "gptq_v2" if method == "gptq" and quantization.get("checkpoint_format") == "gptq_v2" else method


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
    if layout_of(quantization) is not None:
        return
    method = method_of(quantization)
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
