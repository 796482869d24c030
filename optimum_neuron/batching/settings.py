"""transformers' `ContinuousBatchingConfig`, read for a program whose sizes are compiled.

Some of its fields choose sizes that are fixed at export: other values are refused, with the option of the export. Some
choose what only a GPU has: they change nothing here, which an INFO line says.
"""

from __future__ import annotations

import dataclasses
import logging

from transformers import ContinuousBatchingConfig

from ..errors import ConfigError
from .runner import Runner

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManagerSettings:
    """What a manager can be told."""

    max_queue_size: int = 0
    """Requests that may wait; 0 for any number."""
    return_logprobs: bool = False
    """Return the logarithmic probability of each token."""
    seed: int | None = None
    """Seed of the first request, the next one has the next; None: each has one from torch's generator."""
    allow_block_sharing: bool = True
    """Let prompts share what they begin with."""

    def resolved(self, runner: Runner) -> ContinuousBatchingConfig:
        """Return transformers' form of these settings, with the sizes of a program."""
        sizes = {name: value for name, (value, _) in _sizes(runner).items() if name != "block_size"}
        return ContinuousBatchingConfig(**dataclasses.asdict(self), **sizes)


_WITHOUT_EFFECT = {
    **dict.fromkeys(("use_cuda_graph", "q_padding_interval_size", "kv_padding_interval_size"), "graphs are static"),
    **dict.fromkeys(("varlen_compile_config", "decode_compile_config", "default_compile_level"), "graphs are compiled"),
    "use_default_compile_configs": "graphs are compiled",
    "max_cached_graphs": "graphs are compiled",
    "auto_switch_to_flash": "attention is compiled",
    "max_blocks_per_request": "every step reads the blocks of whole sequences",
    "use_async_batching": "a step is one call",
    "max_memory_percent": "the pool is part of the program",
    "per_request_processors": "every request has its own settings",
    "drop_unsupported_processors": "all processors are supported",
    "disable_nccl_graph_mixing": "there is no NCCL",
    "cpu_group_timeout": "there is no process group",
    "cpu_offload_space": "preempted requests always wait on the host",
    "cpu_offload_space_safety_threshold": "preempted requests always wait on the host",
    "safety_margin": "requests that came last give way",
}
"""Fields that change nothing, and why."""


def read_settings(config: ContinuousBatchingConfig | None, runner: Runner) -> ManagerSettings:
    """Return the settings of a manager.

    Args:
        config: transformers' `ContinuousBatchingConfig`, or None for the defaults.
    """
    if config is None:
        return ManagerSettings()
    names = [field.name for field in dataclasses.fields(ManagerSettings)]
    changed = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in names and getattr(config, field.name) != field.default
    }
    sizes = _sizes(runner)
    for name, value in changed.items():
        if name in sizes:
            compiled, option = sizes[name]
            if value != compiled:
                message = f"{name}={value!r}, but the program was compiled for {compiled}."
                hint = f"Export with another {option}, or remove {name}."
                raise ConfigError(message, hint=hint, option=name, value=value, compiled=compiled)
        elif name in _WITHOUT_EFFECT:
            logger.info("%s=%r changes nothing: %s.", name, value, _WITHOUT_EFFECT[name])
        else:
            message = f"{name}={value!r} is not supported."
            raise ConfigError(message, hint="Remove it.", option=name, value=value)
    return ManagerSettings(**{name: getattr(config, name) for name in names})


def _sizes(runner: Runner) -> dict[str, tuple[int, str]]:
    """Compiled sizes by transformers' names, with the options of the export."""
    return {
        "page_size": (runner.block_size, "block_size"),
        "block_size": (runner.block_size, "block_size"),
        "num_blocks": (runner.num_blocks, "num_blocks"),
        "max_requests_per_batch": (runner.num_rows, "batch_size"),
        "max_batch_tokens": (runner.chunk_sizes[-1], "prefill_chunk_size"),
    }
