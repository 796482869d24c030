"""Autobucketing: several input shapes of one model in one NEFF, and a TorchScript kernel that pads and picks.

Buckets share weights, states and equal parts of their programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..compiler import tensor_spec
from ..errors import ConfigError
from .compile import checked_flags, compile_entries, work_folder
from .entry import Entry, make_entry, warn_ignored
from .neuron_model import BucketModel
from .script import nested, script_neff, scripted
from .states import SharedStates


class BucketModelConfig:
    """How a model with buckets takes its inputs.

    Args:
        bucket_kernel: called without arguments, returns a `torch.jit.script` function that takes the flat inputs and
            returns them padded, with the number of their bucket as a tensor of one element.
        shared_state_buffer: first values of the states that buckets share; None takes those of the last bucket.
        shared_state_buffer_preprocessor: called without arguments, returns a `torch.jit.script` function that takes the
            shapes of the states of all buckets, the shared states and the number of a bucket, and returns that bucket's
            part of each state, as views.
        func_kwargs: keywords for the function that makes the model: the same for all buckets, or a list.

    Example: see `bucket_model_trace`.
    """

    def __init__(
        self,
        bucket_kernel: Callable[..., Any],
        *_: object,
        shared_state_buffer: Sequence[torch.Tensor] | None = None,
        shared_state_buffer_preprocessor: Callable[..., Any] | None = None,
        func_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        warn_ignored("BucketModelConfig takes bucket_kernel", _)
        self.bucket_kernel = bucket_kernel
        self.shared_state_buffer = shared_state_buffer
        self.shared_state_buffer_preprocessor = shared_state_buffer_preprocessor
        self.func_kwargs = func_kwargs

    def kwargs_of(self, bucket: int, num_buckets: int) -> dict[str, Any]:
        """Keywords of one bucket."""
        if self.func_kwargs is None or isinstance(self.func_kwargs, Mapping):
            return dict(self.func_kwargs or {})
        if len(self.func_kwargs) != num_buckets:
            message = f"func_kwargs has {len(self.func_kwargs)} dictionaries for {num_buckets} buckets."
            hint = "Pass one dictionary for all buckets, or one for each."
            raise ConfigError(message, hint=hint, option="func_kwargs", num_buckets=num_buckets)
        return dict(self.func_kwargs[bucket])


def bucket_model_trace(
    func: Callable[..., Any],
    example_inputs: Sequence[Any],
    bucket_config: BucketModelConfig,
    compiler_workdir: str | Path | None = None,
    compiler_args: str | Sequence[str] | None = None,
) -> torch.jit.ScriptModule:
    """Trace one model for several input shapes; calls go to the bucket that its kernel names.

    Args:
        func: returns the model, and the aliases of its states ({} without states); called once for each bucket. Models
            of all buckets have the same weights.
        example_inputs: a tuple of inputs for each bucket, in the order of the kernel's numbers.
        bucket_config: see `BucketModelConfig`.
        compiler_workdir: as for `trace`.
        compiler_args: as for `trace`.

    Raises:
        ConfigError: buckets do not fit together, or a kernel is no TorchScript.
        NeuronError: As for `trace`.

    Example:
        ```python no-run
        import torch
        from optimum_neuron.tracing import BucketModelConfig, bucket_model_trace

        @torch.jit.script
        def pad(tensors: list[torch.Tensor]):
            bucket = 0 if tensors[0].size(1) <= 16 else 1
            size = [16, 64][bucket]
            return [torch.constant_pad_nd(t, [0, size - t.size(1)]) for t in tensors], torch.tensor([bucket])

        linear = torch.nn.Embedding(10, 4)
        config = BucketModelConfig(lambda: pad)
        examples = [(torch.zeros(1, 16, dtype=torch.int64),), (torch.zeros(1, 64, dtype=torch.int64),)]
        model = bucket_model_trace(lambda: (linear, {}), examples, config, compiler_args="-O1")
        assert model(torch.ones(1, 5, dtype=torch.int64)).shape == (1, 16, 4)
        ```
    """
    if not isinstance(example_inputs, (list, tuple)) or not example_inputs:
        message = f"example_inputs is a {type(example_inputs).__name__}, not a list of buckets."
        raise ConfigError(message, hint="Pass a list with a tuple of tensors for each bucket.", option="example_inputs")
    kernel = _scripted(bucket_config.bucket_kernel, "bucket_kernel")
    flags = checked_flags(compiler_args)
    entries = _entries(func, example_inputs, bucket_config)
    with work_folder(compiler_workdir, flags.flags.temp_dir) as folder:
        neff, weights = compile_entries(entries, flags, folder, inline_weights=True)
        _require_equal_outputs(list(entries.values()))
        model = scripted(BucketModel(script_neff(neff, weights), kernel))
        return nested(model, next(iter(entries.values())))


def _entries(func: Callable[..., Any], examples: Sequence[Any], config: BucketModelConfig) -> dict[str, Entry]:
    made = [func(**config.kwargs_of(index, len(examples))) for index in range(len(examples))]
    plain = [make_entry(model, inputs, aliases) for (model, aliases), inputs in zip(made, examples, strict=True)]
    slicer = config.shared_state_buffer_preprocessor
    if slicer is None and config.shared_state_buffer is None:
        _require_equal_states(plain)
        return {f"bucket_{index}": entry for index, entry in enumerate(plain)}
    buffers = config.shared_state_buffer or [state.value for state in plain[-1].states]
    script = _scripted(slicer, "shared_state_buffer_preprocessor") if slicer is not None else None
    shapes = [[list(state.value.shape) for state in entry.states] for entry in plain]
    shared = [SharedStates(buffers=tuple(buffers), slicer=script, shapes=shapes, bucket=n) for n in range(len(plain))]
    parts = enumerate(zip(made, examples, strict=True))
    return {f"bucket_{n}": make_entry(model, inputs, aliases, shared[n]) for n, ((model, aliases), inputs) in parts}


def _scripted(make: Callable[..., Any], what: str) -> torch.jit.ScriptFunction:
    kernel = make()
    if not isinstance(kernel, torch.jit.ScriptFunction):
        message = f"{what} returns a {type(kernel).__name__}, which cannot become part of a ScriptModule."
        raise ConfigError(message, hint="Return torch.jit.script(function).", option=what)
    return kernel


def _require_equal_states(entries: Sequence[Entry]) -> None:
    if any(entry.state_specs != entries[0].state_specs for entry in entries):
        states = [", ".join(f"{s.name} {tensor_spec(s.value)}" for s in entry.states) or "none" for entry in entries]
        hint = "Pass a shared_state_buffer_preprocessor that returns the part of each state that a bucket uses."
        message = f"The buckets share their states, which differ: {'; '.join(states)}."
        raise ConfigError(message, hint=hint, states=states)


def _require_equal_outputs(entries: Sequence[Entry]) -> None:
    skeletons = [entry.outputs.skeleton for entry in entries]
    if any(skeleton != skeletons[0] for skeleton in skeletons):
        message = f"The outputs of the {len(entries)} buckets are nested differently."
        hint = "Return the same tuple, list, or dictionary for every shape."
        raise ConfigError(message, hint=hint, structures=skeletons)
