"""Arguments of Optimum Neuron's `NeuronTrainingArguments` and of older transformers, for scripts that pass them.

Each one is translated to a field that exists here (`TRANSLATED`), or changes nothing on a simulated device and is
reported by one INFO line (`WITHOUT_EFFECT`). `arguments.py` has the fields that do something.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import Any

from ..errors import ConfigError

logger = logging.getLogger(__name__)

WITHOUT_EFFECT = {
    "async_save": "a checkpoint is complete before training goes on",
    "dataloader_prefetch_size": "the host and the simulated device share memory; use dataloader_prefetch_factor",
    "enable_efficiency_metrics": "enable_throughput_metrics logs tokens per second, enable_mfu_metrics estimates",
    "fuse_qkv": "weights keep their layout, and results are the same",
    "kv_size_multiplier": "key heads are shared by the cores that need them, and results are the same",
    "metrics_window_size": "throughput is the mean between two log entries; use logging_steps",
    "num_local_ranks_per_step": "checkpoints are memory-mapped, so all processes load at once",
    "optimizer_save_master_weights_in_ckpt": "the optimizer's state always has the master weights",
    "overwrite_output_dir": "transformers 5 overwrites files of the output folder anyway",
    "recompute_causal_mask": "masks are those of transformers",
    "skip_cache_push": "training pushes nothing to a cache",
    "use_autocast": "bf16=True is autocast; load the model with dtype='bfloat16' for pure bfloat16",
    "use_xser": "checkpoints are safetensors or torch.distributed.checkpoint files",
}
"""Why an argument changes nothing."""

TRANSLATED = {
    "disable_sequence_parallel": "sequence_parallel",
    "logging_dir": "TENSORBOARD_LOGGING_DIR",
    "warmup_ratio": "warmup_steps",
}
"""The field or variable that has an argument's meaning."""


def _field(name: str) -> Any:
    reason = WITHOUT_EFFECT.get(name)
    text = f"Changes nothing: {reason}." if reason else f"Sets {TRANSLATED[name]}."
    return dataclasses.field(default=None, metadata={"help": text})


def _switch(name: str) -> Any:
    """A field that `HfArgumentParser` reads as --name or --name true: alone, it takes None for "needs a value"."""
    field = _field(name)
    return dataclasses.field(default=None, metadata={**field.metadata, "nargs": "?", "const": True})


@dataclasses.dataclass(kw_only=True)
class PeerArgumentsMixin:
    """Arguments that scripts pass to Optimum Neuron; None leaves an argument out.

    Example:
        ```python
        from optimum_neuron import NeuronTrainingArguments

        assert NeuronTrainingArguments(output_dir="out", warmup_ratio=0.1, use_xser=True).warmup_steps == 0.1
        ```
    """

    async_save: bool | None = _switch("async_save")
    dataloader_prefetch_size: int | None = _field("dataloader_prefetch_size")
    disable_sequence_parallel: bool | None = _switch("disable_sequence_parallel")
    enable_efficiency_metrics: bool | None = _switch("enable_efficiency_metrics")
    fuse_qkv: bool | None = _switch("fuse_qkv")
    kv_size_multiplier: int | None = _field("kv_size_multiplier")
    logging_dir: str | None = _field("logging_dir")
    metrics_window_size: int | None = _field("metrics_window_size")
    num_local_ranks_per_step: int | None = _field("num_local_ranks_per_step")
    optimizer_save_master_weights_in_ckpt: bool | None = _switch("optimizer_save_master_weights_in_ckpt")
    overwrite_output_dir: bool | None = _switch("overwrite_output_dir")
    recompute_causal_mask: bool | None = _switch("recompute_causal_mask")
    skip_cache_push: bool | None = _switch("skip_cache_push")
    use_autocast: bool | None = _switch("use_autocast")
    use_xser: bool | None = _switch("use_xser")
    warmup_ratio: float | None = _field("warmup_ratio")

    def translate_peer_arguments(self) -> None:
        """Set the fields that these arguments stand for, and report the others.

        Raises:
            ConfigError: an argument and the field that it sets are both given.
        """
        given: Any = self
        names = [name for name in WITHOUT_EFFECT if getattr(self, name) is not None]
        for name in names:
            logger.info("%s=%r changes nothing: %s.", name, getattr(self, name), WITHOUT_EFFECT[name])
        if self.warmup_ratio is not None:
            if given.warmup_steps not in (0, self.warmup_ratio):
                raise _both("warmup_ratio", self.warmup_ratio, "warmup_steps", given.warmup_steps)
            if not 0 <= self.warmup_ratio < 1:
                raise ConfigError(
                    f"warmup_ratio={self.warmup_ratio} is not a share of the steps. Pass a number from 0 to below 1.",
                    details={"warmup_ratio": self.warmup_ratio},
                )
            given.warmup_steps = self.warmup_ratio
        if self.disable_sequence_parallel is not None:
            if self.disable_sequence_parallel and given.sequence_parallel:
                raise _both("disable_sequence_parallel", True, "sequence_parallel", True)
            given.sequence_parallel = not self.disable_sequence_parallel and given.tensor_parallel_size > 1
        if self.logging_dir is not None:
            os.environ["TENSORBOARD_LOGGING_DIR"] = str(self.logging_dir)


def _both(name: str, value: Any, field: str, field_value: Any) -> ConfigError:
    return ConfigError(
        f"{name}={value!r} sets {field}, and {field}={field_value!r} is given too. Pass one of them.",
        details={name: value, field: field_value},
    )
