"""Configurations inside NxD Inference's `NeuronConfig`: sampling on the device, adapters, drafts, experts."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError, invalid_choice
from ..files.plain_json import read_object
from ..options.value_types import COUNT, NUMBER, ChecksFields
from ..sources import find_folder, read_description
from .sampling import prepare_sampling_params, validate_sampling_params

logger = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class OnDeviceSamplingConfig(ChecksFields):
    """How decode steps pick tokens."""

    do_sample: bool = False
    """Draw tokens; False takes the likeliest unless `dynamic`."""
    top_k: int = 1
    """Tokens that may be drawn."""
    top_p: float = 1.0
    """Share of probability that may be drawn."""
    temperature: float = 1.0
    """Divisor of logits."""
    dynamic: bool = False
    """Whether each call names its own parameters."""
    deterministic: bool = False
    """Draw with 0.5 in place of a random number."""
    global_topk: int = 256
    """Likeliest tokens of a step."""
    on_device_sampling_config: bool = True
    """Whether this is such a configuration."""
    top_k_kernel_enabled: bool = True
    """Which program finds the likeliest tokens; it has no effect here."""
    sampling_dp_degree: COUNT = 1
    """Cores that share the rows; it has no effect here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_sampling_params(prepare_sampling_params(1, self.top_k, self.top_p, self.temperature), self)


@dataclasses.dataclass(eq=False)
class ChunkedPrefillConfig(ChecksFields):
    """How prompts are read in parts."""

    max_num_seqs: NUMBER = 0
    """Sequences of a batch."""
    tkg_model_enabled: bool = True
    """Whether decode steps have a program of their own."""
    kernel_q_tile_size: COUNT = 128
    """Tokens of a tile."""
    kernel_kv_tile_size: COUNT = 1024
    """Slots of the cache of a tile."""


@dataclasses.dataclass(eq=False)
class FusedSpecNeuronConfig:
    """The draft of a model."""

    worker_cls: Any
    """Class of the target's network; it has no effect here."""
    draft_config: Any = None
    """`InferenceConfig` of the draft."""
    draft_model_path: str | None = None
    """Folder of the draft's checkpoint."""
    draft_model_cls: Any = None
    """Class of the draft; None: the target's."""


@dataclasses.dataclass(eq=False)
class HybridShardingConfig(ChecksFields):
    """Degrees of experts in prompts and in steps; they have no effect here."""

    moe_cte_tp_degree: COUNT = 1
    moe_cte_ep_degree: COUNT = 1
    moe_tkg_tp_degree: COUNT = 1
    moe_tkg_ep_degree: COUNT = 1


@dataclasses.dataclass(eq=False)
class RouterConfig(ChecksFields):
    """How experts are chosen: the checkpoint says it, so this has no effect here."""

    act_fn: str = "softmax"
    """Function of the router's logits."""
    dtype: torch.dtype | str = torch.float32
    """Dtype of the router."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dtype = to_torch_dtype(self.dtype)


@dataclasses.dataclass(eq=False)
class TensorCaptureConfig(ChecksFields):
    """Intermediate tensors that calls return."""

    modules_to_capture: list[str] = dataclasses.field(default_factory=list)
    max_intermediate_tensors: COUNT | None = None
    auto_capture_moe_tensors: bool = False
    capture_inputs: bool = False


@dataclasses.dataclass(eq=False)
class LoraServingConfig(ChecksFields):
    """LoRA adapters of a model, each with a name."""

    max_loras: COUNT = 1
    """Adapters that are loaded at once."""
    max_lora_rank: COUNT = 16
    """Largest rank."""
    max_cpu_loras: COUNT = 100
    """Adapters in host memory; it has no effect here."""
    batch_size: COUNT = 1
    """It has no effect here: the batch size is that of the model."""
    target_modules: list[str] | None = None
    """Modules that adapters change; None: those of the adapters."""
    lora_bias: str = "none"
    """"none": adapters have no bias."""
    lora_ckpt_paths: Any = None
    """Folders by name, or a list of "name : folder"."""
    lora_ckpt_paths_cpu: Any = None
    """Further adapters, which `load_adapter` loads."""
    lora_ckpt_json: str | None = None
    """File with `lora-ckpt-dir` and `lora-ckpt-paths`."""
    lora_memory_transpose: bool = True
    lora_shard_linear_layer: bool = True
    is_context_encoding: bool = False
    dynamic_multi_lora: bool = False
    eviction_policy: str = "lru"
    lfu_decay_period: COUNT = 128
    base_model_quantized: bool = False
    enable_base_model_only: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lora_ckpt_paths = {**self._of_file("lora-ckpt-paths"), **_paths(self.lora_ckpt_paths)}
        self.lora_ckpt_paths_cpu = {**self._of_file("lora-ckpt-paths-cpu", {}), **_paths(self.lora_ckpt_paths_cpu)}
        if self.eviction_policy not in ("lru", "lfu"):
            raise invalid_choice("eviction_policy", self.eviction_policy, ("lru", "lfu"))
        if self.lora_bias != "none":
            message = f"lora_bias={self.lora_bias!r} is not supported: adapters have matrices only."
            raise ConfigError(message, hint='Pass "none".', option="lora_bias", value=self.lora_bias)
        every = [*self.lora_ckpt_paths.values(), *self.lora_ckpt_paths_cpu.values()]
        found = [read_description(find_folder(path)) for path in every]
        number = max(self.max_loras, len(self.lora_ckpt_paths))
        rank = max([self.max_lora_rank, *(one.get("r", 0) for one in found)])
        modules = sorted({module for one in found for module in one.get("target_modules") or ()})
        if (number, rank) != (self.max_loras, self.max_lora_rank):
            logger.warning("max_loras=%d, max_lora_rank=%d: the adapters of lora_ckpt_paths need them.", number, rank)
        self.max_loras, self.max_lora_rank = number, rank
        if self.target_modules is None or not set(modules) <= set(self.target_modules):
            self.target_modules = modules or None

    def _of_file(self, key: str, default: object = None) -> dict[str, str]:
        """Return the adapters that `lora_ckpt_json` has under a key."""
        if self.lora_ckpt_json is None:
            return {}
        content = read_object(Path(self.lora_ckpt_json).expanduser())
        folder, paths = Path(content.get("lora-ckpt-dir", ".")), content.get(key, default)
        if not isinstance(paths, dict):
            message = f"{self.lora_ckpt_json} has no {key}."
            hint = 'Write {"lora-ckpt-dir": folder, "lora-ckpt-paths": {name: folder}}.'
            raise ConfigError(message, hint=hint, option="lora_ckpt_json", value=self.lora_ckpt_json)
        return {name: str(folder / path) for name, path in paths.items()}


def _paths(given: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """Adapters by name."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    if not isinstance(given, (list, tuple)) or not all(isinstance(entry, str) for entry in given):
        message = f"lora_ckpt_paths={given!r} is no mapping from names to folders, nor a list of 'name : folder'."
        hint = 'Pass for example {"adapter": "folder"}.'
        raise ConfigError(message, hint=hint, option="lora_ckpt_paths", value=str(given))
    pairs = [entry.partition(":") for entry in given]
    names = [name.strip() for name, _, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = f"lora_ckpt_paths has several adapters of the name {twice[0]!r}."
        raise ConfigError(message, hint="Give each a name of its own.", option="lora_ckpt_paths", names=twice)
    return {name: path.strip() for name, (_, _, path) in zip(names, pairs, strict=True)}


DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
}


def to_torch_dtype(dtype_str: str | torch.dtype) -> torch.dtype:
    """Return the dtype of a name."""
    name = str(dtype_str).removeprefix("torch.")
    if name not in DTYPES:
        message = f"The dtype {name!r} is unknown."
        raise ConfigError(message, hint=f"Use one of {', '.join(DTYPES)}.", option="torch_dtype", value=name)
    return DTYPES[name]
