"""Arguments of `torch.neuron.trace`, checked before a model is traced.

options = checked_options(compiler_args=["--fast-math", "none"], minimum_segment_size=2)
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...compiler import NeuronCcFlags, parse_neuron_cc
from ...errors import ConfigError
from ...options.peer_attributes import report_without_effect
from .graph import Operation
from .support import checked_whitelist

_PRUNING = "subgraph_inputs_pruning"
WITHOUT_EFFECT = {
    "verbose": 'the level of the logger "Neuron" decides what is logged',
    _PRUNING: "a segment has the inputs that it reads, and no others",
}
"""Arguments that change nothing, and why."""


class Optimization(enum.Enum):
    """Passes over a model before it is compiled."""

    FLOAT32_TO_FLOAT16 = "float32_to_float16"
    """Inputs, outputs, and weights of segments are float16; inputs may have either dtype."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Checked arguments of one trace."""

    flags: NeuronCcFlags
    whitelist: frozenset[str] | None
    chosen: Callable[[Operation], bool]
    minimum_segment_size: int
    single_fusion_ratio_threshold: float
    timeout_s: float | None
    half: bool
    separate_weights: bool
    must_trace: bool


def checked_options(
    *,
    op_whitelist: Collection[str] | None,
    minimum_segment_size: int,
    subgraph_builder_function: Callable[[Operation], bool] | None,
    subgraph_inputs_pruning: bool,
    debug_must_trace: bool,
    compiler_timeout: float | None,
    single_fusion_ratio_threshold: float,
    compiler_args: str | Sequence[str] | None,
    optimizations: Sequence[Optimization] | None,
    separate_weights: bool,
    verbose: int | str | bool | None,
) -> Options:
    """Return the arguments of a trace; those that change nothing are logged.

    Raises:
        ConfigError: an argument cannot be used.
    """
    ignored: dict[str, Any] = {} if verbose is None else {"verbose": verbose}
    report_without_effect(ignored if subgraph_inputs_pruning else {**ignored, _PRUNING: False}, WITHOUT_EFFECT)
    size, ratio, timeout_s = minimum_segment_size, single_fusion_ratio_threshold, compiler_timeout
    _require("minimum_segment_size", size, isinstance(size, int) and size >= 0, "Pass a whole number such as 2.")
    _require("single_fusion_ratio_threshold", ratio, _is_number(ratio) and 0 <= ratio <= 1, "Pass a share from 0 to 1.")
    is_time = timeout_s is None or (_is_number(timeout_s) and timeout_s > 0)
    _require("compiler_timeout", timeout_s, is_time, "Pass seconds, such as 600.")
    chosen = subgraph_builder_function or (lambda operation: True)
    _require("subgraph_builder_function", chosen, callable(chosen), "Pass a function of an operator.")
    passes = [optimizations] if isinstance(optimizations, Optimization) else optimizations or ()
    is_passes = isinstance(passes, (list, tuple, set, frozenset)) and all(isinstance(p, Optimization) for p in passes)
    hint = "Pass a list such as [torch_neuron.Optimization.FLOAT32_TO_FLOAT16]."
    _require("optimizations", optimizations, is_passes, hint)
    is_flags = compiler_args is None or isinstance(compiler_args, (str, list, tuple))
    _require("compiler_args", compiler_args, is_flags, 'Pass flags of neuron-cc, such as ["--fast-math", "none"].')
    return Options(
        flags=parse_neuron_cc(compiler_args),
        whitelist=checked_whitelist(op_whitelist),
        chosen=chosen,
        minimum_segment_size=size,
        single_fusion_ratio_threshold=ratio,
        timeout_s=timeout_s,
        half=Optimization.FLOAT32_TO_FLOAT16 in passes,
        separate_weights=separate_weights,
        must_trace=debug_must_trace,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(option: str, value: object, is_valid: bool, hint: str) -> None:
    if not is_valid:
        raise ConfigError(f"{option}={value!r} cannot be used.", hint=hint, option=option, value=repr(value))
