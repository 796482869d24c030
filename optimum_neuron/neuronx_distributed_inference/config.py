"""`NeuronConfig` of NxD Inference: every keyword with its default, and checks of those that contradict each other.

Unknown keywords are reported in a warning, as the vendor's class does. `options.py` has what a keyword does here.

>>> config = NeuronConfig(tp_degree=2, seq_len=256)
>>> config.max_context_length, config.world_size
(256, 2)
"""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from typing import Any

import torch

from ..base import env
from ..errors import ConfigError
from ..hardware import resolve_target
from .checks import check, check_values
from .keywords import DEFAULTS, DERIVED, LISTS, OF_EXPERTS, Keywords
from .parts import (
    ChunkedPrefillConfig,
    HybridShardingConfig,
    LoraServingConfig,
    OnDeviceSamplingConfig,
    RouterConfig,
    TensorCaptureConfig,
    to_torch_dtype,
)

logger = logging.getLogger(__name__)

LONG_CONTEXT = 32 * 1024
"""Tokens of a prompt from which NxD Inference takes a larger page of scratch memory."""
LONG_CONTEXT_SCRATCHPAD_PAGE_SIZE = 1024
"""Size of that page, in MiB."""
_PARTS: dict[str, Any] = {
    "on_device_sampling_config": OnDeviceSamplingConfig,
    "chunked_prefill_config": ChunkedPrefillConfig,
    "lora_config": LoraServingConfig,
    "tensor_capture_config": TensorCaptureConfig,
}
_DTYPES = ("rpl_reduce_dtype", "attention_dtype")
_OLD_LNC = "logical_neuron_cores"
_OF_SAVED = (
    "is_prefill_stage",
    "is_chunked_prefill",
    "enable_token_tree",
    "kv_cache_tiling",
    "enable_long_context_mode",
)
"""Attributes that are computed, and saved beside the keywords."""


class NeuronConfig(Keywords):
    """Options of a compiled model, as NxD Inference names them."""

    enable_fused_speculation: bool
    token_generation_batches: Any

    def __init__(self, **options: object) -> None:
        self.is_prefill_stage: bool | None = None
        given = {name: options.pop(name) for name in list(options) if name not in _OF_SAVED}
        check_values(given)
        for name, value in {**DEFAULTS, **{name: [] for name in LISTS}}.items():
            setattr(self, name, given.pop(name, copy.copy(value)))
        self._set_dtypes(given)
        self.world_size = given.pop("world_size", None) or self.tp_degree * self.pp_degree * self.ep_degree
        for name, other in DERIVED.items():
            setattr(self, name, given.pop(name, getattr(self, other)))
        self.logical_nc_config = _logical_cores(given)
        self.enable_long_context_mode = self.max_context_length >= LONG_CONTEXT
        for name, value in computed(self).items():
            if name != "world_size":
                setattr(self, name, given.pop(name, value))
        for name, kind in _PARTS.items():
            setattr(self, name, _part(name, getattr(self, name), kind))
        self._derive()
        if given:
            logger.warning("NeuronConfig init: Unexpected keyword arguments: %s", given)
        check(self)

    def _set_dtypes(self, given: dict[str, Any]) -> None:
        """Take the dtypes; that of the checkpoint replaces the default later."""
        is_named = "torch_dtype" in given
        self.overrides_torch_dtype = given.pop("overrides_torch_dtype", is_named)
        self.torch_dtype = to_torch_dtype(given.pop("torch_dtype", torch.bfloat16))
        for name in _DTYPES:
            if (value := getattr(self, name)) is not None:
                setattr(self, name, to_torch_dtype(value))

    def _derive(self) -> None:
        """Set what follows from other keywords."""
        self.is_chunked_prefill = self.chunked_prefill_config is not None
        self.enable_token_tree = self.token_tree_config is not None
        self.enable_fused_speculation = self.enable_fused_speculation or self.enable_eagle_speculation
        drafts = self.enable_fused_speculation and self.max_length > 128 and self.max_length % 128 == 0
        self.kv_cache_tiling = drafts and not self.disable_kv_cache_tiling
        for name in ("context_encoding_buckets", "token_generation_buckets"):
            if (value := getattr(self, name)) is not None:
                setattr(self, name, sorted(value))
        if self.token_generation_batches is not None:
            batches = self.token_generation_batches
            self.token_generation_batches = sorted(batches if isinstance(batches, list) else [batches])

    def __getattr__(self, name: str) -> Any:
        if name == _OLD_LNC:
            _warn_of_lnc()
            return self.logical_nc_config
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def is_mlp_quantized(self) -> bool:
        """Return whether activations are quantized too."""
        return bool(self.quantized_mlp_kernel_enabled or self.activation_quantization_type)


def computed(config: NeuronConfig) -> dict[str, Any]:
    """Return what follows from other keywords, unless it is passed."""
    return {
        "world_size": config.tp_degree * config.pp_degree * config.ep_degree,
        "buckets": [config.seq_len],
        "max_new_tokens": (config.seq_len - config.max_context_length) or None,
        "lm_head_pad": config.logical_nc_config > 1,
        "scratchpad_page_size": LONG_CONTEXT_SCRATCHPAD_PAGE_SIZE if config.enable_long_context_mode else None,
    }


class MultimodalVisionNeuronConfig(NeuronConfig):
    """Options of a model with images."""

    def __init__(self, **options: object) -> None:
        self.skip_vision = options.pop("skip_vision", False)
        super().__init__(**options)


class MoENeuronConfig(NeuronConfig):
    """Options of a model with experts."""

    capacity_factor: float | None
    hybrid_sharding_config: Any

    def __init__(self, **options: object) -> None:
        check_values(options)
        for name, value in OF_EXPERTS.items():
            setattr(self, name, options.pop(name, value))
        if self.capacity_factor is not None:
            self.capacity_factor = float(self.capacity_factor)
        self.hybrid_sharding_config = _part("hybrid_sharding_config", self.hybrid_sharding_config, HybridShardingConfig)
        left_out = options.pop("disable_normalize_top_k_affinities", False)
        self.normalize_top_k_affinities = options.pop("normalize_top_k_affinities", not left_out)
        self.blockwise_matmul_config = options.pop("blockwise_matmul_config", {})
        self.router_config = _router(options)
        super().__init__(**options)


def _part(name: str, value: object, kind: Any) -> Any:
    """Return a configuration inside another, which may be a mapping."""
    if isinstance(value, dict):
        return kind(**value)
    if value is not None and not isinstance(value, kind):
        message = f"{name}={value!r} is no {kind.__name__}."
        raise ConfigError(message, hint=f"Pass {kind.__name__}(...).", option=name, value=str(value))
    return value


def _router(options: dict[str, Any]) -> RouterConfig:
    """The router's configuration: as it is given, else of the keywords `router_act_fn` and `router_dtype`."""
    given = options.pop("router_config", None)
    named = {key: options.pop(f"router_{key}") for key in ("act_fn", "dtype") if f"router_{key}" in options}
    if isinstance(given, RouterConfig):
        return given
    return RouterConfig(**(named if given is None else given))


def get_platform_lnc() -> int:
    """Return the physical cores of a logical one on the simulated target."""
    return resolve_target().value.chip.default_lnc


def _warn_of_lnc() -> None:
    message = f"{_OLD_LNC!r} is deprecated: use 'logical_nc_config'."
    warnings.warn(message, DeprecationWarning, stacklevel=4)


def _logical_cores(given: dict[str, Any]) -> int:
    """Return the physical cores of a logical one: those of the environment, of a keyword, or of the target."""
    named = None
    if _OLD_LNC in given:
        _warn_of_lnc()
        named = int(given.pop(_OLD_LNC))
    named = int(given.pop("logical_nc_config", named) or 0) or named
    variable = env.logical_nc_config().get("NEURON_LOGICAL_NC_CONFIG")
    if variable is not None and named is not None and variable != named:
        message = f"NEURON_LOGICAL_NC_CONFIG={variable} does not match provided logical_nc_config={named}: it decides."
        warnings.warn(message, UserWarning, stacklevel=3)
    return next((number for number in (variable, named) if number is not None), get_platform_lnc())


def to_dict(obj: object) -> Any:
    """Return plain data: objects by their attributes, classes by module and name."""
    if isinstance(obj, dict):
        return {key: to_dict(one) for key, one in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [to_dict(one) for one in obj]
    if inspect.isclass(obj):
        return {"__module__": obj.__module__, "__name__": obj.__name__}
    if isinstance(obj, torch.dtype):
        return str(obj).removeprefix("torch.")
    return {key: to_dict(one) for key, one in vars(obj).items()} if hasattr(obj, "__dict__") else obj
