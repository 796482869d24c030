"""Rotary positions of a GGUF file as `rope_parameters` of a transformers configuration.

linear, yarn     settings under `rope.scaling`
rope_freqs       a tensor of divisors of frequencies (Llama 3.1 and later), for positions of any length
rope_factors     two such tensors, for short and long prompts (Phi-3)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..errors import ModelError
from .gguf import GgufName, GgufSource
from .gguf_file import GgufFile

GGUF_HINT = "Pass the checkpoint in safetensors that the file was made from."
"""What to do with a file that is not supported."""

_FREQUENCIES = "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
FACTORS = (_FREQUENCIES, _LONG, _SHORT)
"""Tensors that are part of the configuration."""

_THETA, _LOCAL_THETA = 10_000.0, 10_000.0
_SCALING = "rope.scaling."
_DEFAULTS: dict[str, Any] = {
    "yarn_ext_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_log_multiplier": 0.0,
    "alpha": 0.0,
}
"""Settings of scaling that are supported with these values only."""
_READ = ("type", "factor", "attn_factor", "original_context_length", "yarn_beta_fast", "yarn_beta_slow", "finetuned")
_PLACES = ("dimension_count", "freq_base", "freq_base_swa", "scale_linear")


def unsupported_setting(file: GgufFile, name: str, value: object) -> ModelError:
    """Return the error for a setting that would be ignored."""
    architecture = str(file.settings.get("general.architecture"))
    key = f"{architecture}.{name}"
    message = f"The setting {key}={value!r} of {file.name} is not supported, and results would differ without it."
    return ModelError(message, hint=GGUF_HINT, path=file.name, architecture=architecture, key=key, value=value)


def read_rotary_settings(
    config: PreTrainedConfig, settings: Mapping[str, Any], file: GgufFile, *, has_positions: bool
) -> None:
    """Set `config.rope_parameters`."""
    _check_names(settings, file, has_positions=has_positions)
    if not has_positions:
        return
    width = facts_of(config).head_dim or config.hidden_size // config.num_attention_heads
    rotated = settings.get("rope.dimension_count", width)
    own = {"rope_theta": float(settings.get("rope.freq_base", _THETA)), **_scaling(config, settings, file, rotated)}
    if "partial_rotary_factor" in type(config)().rope_parameters:  # other classes do not heed it
        own["partial_rotary_factor"] = rotated / width
    elif rotated != width:
        raise unsupported_setting(file, "rope.dimension_count", rotated)
    local = float(settings.get("rope.freq_base_swa", _LOCAL_THETA))
    if set(config.rope_parameters) == {"full_attention", "sliding_attention"}:
        plain = {"rope_type": "default", "rope_theta": local}
        config.rope_parameters = {"full_attention": own, "sliding_attention": plain}
        return
    if settings.get("rope.freq_base_swa", own["rope_theta"]) != own["rope_theta"]:
        raise unsupported_setting(file, "rope.freq_base_swa", local)
    config.rope_parameters = own


def _check_names(settings: Mapping[str, Any], file: GgufFile, *, has_positions: bool) -> None:
    for name, value in settings.items():
        if not name.startswith("rope."):
            continue
        scaling = name.removeprefix(_SCALING)
        is_read = name.removeprefix("rope.") in _PLACES or scaling in _READ
        if not (has_positions and is_read) and value != _DEFAULTS.get(scaling, name):
            raise unsupported_setting(file, name, value)
    for name in FACTORS:
        if name in file.entries and not has_positions:
            raise unsupported_setting(file, "rope", name)


def _scaling(config: PreTrainedConfig, settings: Mapping[str, Any], file: GgufFile, rotated: int) -> dict[str, Any]:
    kind = settings.get("rope.scaling.type", "linear")
    factor = float(settings.get("rope.scaling.factor", settings.get("rope.scale_linear", 1.0)) or 1.0)
    factor = 1.0 if kind in ("none", "longrope") else factor
    attention = float(settings.get("rope.scaling.attn_factor", 1.0))
    original = settings.get("rope.scaling.original_context_length") or config.max_position_embeddings
    divisors = {name: _numbers(file, name) for name in FACTORS if name in file.entries}
    if kind not in ("none", "linear", "yarn", "longrope") or (divisors and kind == "yarn" and factor != 1.0):
        raise unsupported_setting(file, "rope.scaling.type", kind)
    if kind == "yarn" and factor != 1.0:
        return _yarn(settings, factor, attention, original)
    if not divisors and attention == 1.0:
        return {"rope_type": "default"} if factor == 1.0 else {"rope_type": "linear", "factor": factor}
    if kind == "longrope" and not divisors:
        raise unsupported_setting(file, "rope.scaling.type", kind)
    own = divisors.get(_FREQUENCIES)
    plain = [1.0] * (rotated // 2)
    short, long = own or divisors.get(_SHORT, plain), own or divisors.get(_LONG, plain)
    if {len(short), len(long)} != {rotated // 2}:
        raise unsupported_setting(file, "rope.dimension_count", rotated)
    if hasattr(type(config)(), "original_max_position_embeddings"):
        config.original_max_position_embeddings = original
    return {
        "rope_type": "longrope",
        "short_factor": [number * factor for number in short],
        "long_factor": [number * factor for number in long],
        "original_max_position_embeddings": original,
        "attention_factor": attention,
    }


def _yarn(settings: Mapping[str, Any], factor: float, attention: float, original: int) -> dict[str, Any]:
    import math

    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "attention_factor": attention * (1.0 + 0.1 * math.log(factor)),
        "beta_fast": float(settings.get("rope.scaling.yarn_beta_fast", 32.0)),
        "beta_slow": float(settings.get("rope.scaling.yarn_beta_slow", 1.0)),
    }


def _numbers(file: GgufFile, name: str) -> list[float]:
    tensor, _ = GgufSource(file, {name: GgufName(name=name)}).join([name])
    return [float(number) for number in tensor.float().flatten()]
