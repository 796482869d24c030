"""Arguments of Optimum Neuron's `NeuronTrainingArguments` and of older transformers, for scripts that pass them.

Each one is translated to a field that exists here (`TRANSLATED`), or changes nothing on a simulated device and is
reported by one INFO line (`WITHOUT_EFFECT`). `arguments.py` has the fields with an effect.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from ..distributed import WITHOUT_EFFECT as LAYOUT
from ..errors import ConfigError
from ..options.option import ChecksKeywords
from ..options.peer_attributes import report_without_effect

WITHOUT_EFFECT = {
    **{name: LAYOUT[name] for name in ("async_save", "fuse_qkv", "kv_size_multiplier", "num_local_ranks_per_step")},
    **{name: LAYOUT[name] for name in ("recompute_causal_mask", "use_xser")},
    "dataloader_prefetch_size": "the host and the simulated device share memory; use dataloader_prefetch_factor",
    "enable_efficiency_metrics": "enable_throughput_metrics logs tokens per second, enable_mfu_metrics estimates",
    "metrics_window_size": "throughput is the mean between two log entries; use logging_steps",
    "optimizer_save_master_weights_in_ckpt": "the optimizer's state always has the master weights",
    "overwrite_output_dir": "transformers 5 overwrites files of the output folder anyway",
    "skip_cache_push": "training pushes nothing to a cache",
    "use_autocast": "bf16=True is autocast; load the model with dtype='bfloat16' for pure bfloat16",
}
"""Why an argument changes nothing."""

TRANSLATED = {
    "disable_sequence_parallel": "sequence_parallel",
    "evaluation_strategy": "eval_strategy",
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
class PeerArgumentsMixin(ChecksKeywords):
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
    evaluation_strategy: str | None = _field("evaluation_strategy")
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
        """Set the fields that these arguments stand for, and report the others."""
        upstream: Any = self
        given = {name: getattr(self, name) for name in WITHOUT_EFFECT}
        report_without_effect({name: value for name, value in given.items() if value is not None}, WITHOUT_EFFECT)
        if self.warmup_ratio is not None:
            if upstream.warmup_steps not in (0, self.warmup_ratio):
                raise _both("warmup_ratio", self.warmup_ratio, "warmup_steps", upstream.warmup_steps)
            if not 0 <= self.warmup_ratio < 1:
                message = f"warmup_ratio={self.warmup_ratio} is not a share of the steps."
                raise ConfigError(message, hint="Pass a number from 0 to below 1.", warmup_ratio=self.warmup_ratio)
            upstream.warmup_steps = self.warmup_ratio
        if self.disable_sequence_parallel is not None:
            if self.disable_sequence_parallel and upstream.sequence_parallel:
                raise _both("disable_sequence_parallel", True, "sequence_parallel", True)
            upstream.sequence_parallel = not self.disable_sequence_parallel and upstream.tensor_parallel_size > 1
        if self.evaluation_strategy is not None:
            if upstream.eval_strategy not in ("no", self.evaluation_strategy):
                raise _both("evaluation_strategy", self.evaluation_strategy, "eval_strategy", upstream.eval_strategy)
            upstream.eval_strategy = self.evaluation_strategy
        if self.logging_dir is not None:
            os.environ["TENSORBOARD_LOGGING_DIR"] = str(self.logging_dir)


def _both(name: str, value: object, field: str, field_value: object) -> ConfigError:
    message = f"{name}={value!r} sets {field}, but {field} is {field_value!r} already."
    return ConfigError(message, hint="Pass one of them.", **{name: value, field: field_value})
