"""Compile a module or a function for the ranks of tensor parallelism, and compare it with the CPU.

model = build_module(Layer, [(torch.zeros(1, 8),)], tp_degree=2)
validate_accuracy(model, [(torch.rand(1, 8),)], cpu_callable=reference)
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers import set_seed

from ..base import env
from ..errors import ConfigError
from ..neuronx_distributed import model_builder_v1, parallel_state, simulated

Inputs = Sequence[tuple[torch.Tensor, ...]]
"""Positional arguments of each call."""
Interval = tuple[float, float]
"""The smallest value, and the value that all are below."""
_VARIABLES = contextlib.ExitStack()
"""What `init_cpu_env` changed in the environment."""


class FunctionModule(nn.Module):
    """A function as a module."""

    def __init__(self, func: Callable[..., Any]) -> None:
        super().__init__()
        self.func = func

    def forward(self, *args: torch.Tensor) -> Any:
        """Call the function."""
        return self.func(*args)


def load_tensors(path: str | os.PathLike[str]) -> Mapping[str, torch.Tensor]:
    """Read a file of a state dict, without code."""
    tensors: Mapping[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return tensors


def build_module(
    module_cls: Callable[..., nn.Module],
    example_inputs: Inputs,
    module_init_kwargs: Mapping[str, Any] | None = None,
    tp_degree: int = 1,
    world_size: int | None = None,
    local_ranks_size: int | None = None,
    compiler_args: str | None = None,
    compiler_workdir: str | Path | None = None,
    checkpoint_path: str | Path | None = None,
    priority_model_idx: int | None = 0,
    logical_nc_config: int = 1,
    dry_run: bool = False,
    checkpoint_loader_fn: Callable[[Path], Mapping[str, torch.Tensor]] = load_tensors,
) -> torch.jit.ScriptModule | None:
    """Make a module, and compile it for all ranks of tensor parallelism.

    Args:
        module_cls: returns the module.
        example_inputs: a list with the arguments of one call.
        module_init_kwargs: keywords of `module_cls`.
        tp_degree: number of ranks of tensor parallelism.
        world_size: number of ranks; None: `tp_degree`.
        local_ranks_size: the same number, if `world_size` is given.
        compiler_args: flags of neuronx-cc.
        compiler_workdir: folder of the compiled program; None: a new one in /tmp.
        checkpoint_path: file of the whole weights, written if it is missing; None: the weights that the module has
            after `set_random_seed(0)`.
        priority_model_idx: the inputs that may choose the layout of weights; there is one layout.
        logical_nc_config: physical cores of a core.
        dry_run: trace only, and return None.
        checkpoint_loader_fn: reads the file.

    Raises:
        ConfigError: `example_inputs` is not a list with one tuple of tensors.
        CaptureError: the module depends on values.
    """
    _check_example(example_inputs)
    workdir = Path(compiler_workdir or f"/tmp/nxdi_test_{uuid.uuid4()}/compiler_workdir")
    workdir.parent.mkdir(parents=True, exist_ok=True)
    make = functools.partial(module_cls, **(module_init_kwargs or {}))
    with TemporaryDirectory(prefix="nxdi_test_") as folder:
        file = Path(checkpoint_path or Path(folder, "checkpoint.pt"))
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.save(_new_weights(make), file)
        builder = model_builder_v1.ModelBuilder(
            router=None,
            tp_degree=tp_degree,
            checkpoint_loader=functools.partial(checkpoint_loader_fn, file),
            world_size=world_size,
            local_ranks_size=local_ranks_size,
            compiler_workdir=workdir,
            logical_nc_config=logical_nc_config,
        )
        builder.add(
            _name_of(make),
            model_builder_v1.BaseModelInstance(make, input_output_aliases={}),
            example_inputs=example_inputs,
            compiler_args=compiler_args,
            priority_model_idx=priority_model_idx,
        )
        return builder.trace(initialize_model_weights=True, dry_run=dry_run)


def build_function(func: Callable[..., Any], example_inputs: Inputs, **options: Any) -> torch.jit.ScriptModule | None:
    """Compile a function of tensors for all ranks of tensor parallelism.

    Args:
        func: the function.
        example_inputs: a list with the arguments of one call.
        **options: keywords of `build_module`, such as `tp_degree`.
    """
    return build_module(FunctionModule, example_inputs, {"func": func}, **options)


def _new_weights(make: Callable[[], nn.Module]) -> dict[str, torch.Tensor]:
    """The whole weights of a new module."""
    destroy_mp()
    with simulated.NxDParallelState():
        parallel_state.set_aot_mode(False)
        set_seed(0)
        return make().state_dict()


def _name_of(make: functools.partial[nn.Module]) -> str:
    """The name of a class or of a function, without its arguments."""
    named: Any = make.keywords["func"] if make.func is FunctionModule else make.func
    while isinstance(named, functools.partial):
        named = named.func
    return str((named if hasattr(named, "__name__") else type(named)).__name__)


def build_cpu_model(
    model_cls: Callable[[Any], nn.Module],
    config: object,
    dtype: torch.dtype = torch.float32,
    checkpoint_dir: str | Path = "/tmp/nxd_inference",
) -> tuple[nn.Module, str]:
    """Return a model with random weights, and the new file in which they are.

    Args:
        model_cls: class of the model.
        config: its configuration.
        dtype: dtype of the weights; LayerNorm stays in float32.
        checkpoint_dir: folder of the file.
    """
    path = shared_checkpoint_path(checkpoint_dir)
    return random_weights(model_cls(config), path, dtype), path


def shared_checkpoint_path(checkpoint_dir: str | Path) -> str:
    """Return a new name of a file in a folder, which is made."""
    Path(checkpoint_dir).mkdir(parents=True, exist_ok=True)
    return f"{checkpoint_dir}/ckpt_{str(uuid.uuid4())[:8]}.pt"


def random_weights(
    model: nn.Module,
    ckpt_path: str | Path,
    dtype: torch.dtype = torch.float32,
    weight_range: Interval = (-0.05, 0.05),
    bias_range: Interval = (-0.25, 0.25),
) -> nn.Module:
    """Draw the weights and biases of a model uniformly, save them, and return the model.

    Args:
        model: the model; other parameters and buffers stay as they are.
        ckpt_path: the file.
        dtype: dtype of the weights; LayerNorm stays in float32.
        weight_range: interval of tensors whose name ends with `weight`.
        bias_range: interval of tensors whose name ends with `bias`.
    """
    drawn = {}
    for name, value in model.state_dict().items():
        ends = [ends for suffix, ends in (("weight", weight_range), ("bias", bias_range)) if name.endswith(suffix)]
        if ends:
            drawn[name] = random_interval(*ends[0], dtype, *value.shape)
        else:
            drawn[name] = value.to(dtype) if value.is_floating_point() else value
    model.load_state_dict(drawn, strict=True)
    model.to(dtype)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
    torch.save(drawn, ckpt_path)
    return model


def random_interval(a: float, b: float, dtype: torch.dtype, *size: int) -> torch.Tensor:
    """Return numbers that are drawn uniformly from `a` to below `b`."""
    return (torch.rand(size) * (b - a) + a).to(dtype)


def init_cpu_env() -> None:
    """Make the groups of one process on the CPU, for layers of NxD in a reference."""
    destroy_mp()
    _VARIABLES.enter_context(env.inherited({"NXD_CPU_MODE": "1"}))
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    parallel_state.initialize_model_parallel()


def destroy_mp() -> None:
    """End the groups of NxD, if there are any."""
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
        if dist.is_initialized():
            dist.destroy_process_group()


def destroy_cpu_env() -> None:
    """End what `init_cpu_env` began."""
    destroy_mp()
    _VARIABLES.close()


def validate_accuracy(
    neuron_model: Callable[..., Any],
    inputs: Inputs,
    expected_outputs: Sequence[Any] | None = None,
    cpu_callable: Callable[..., Any] | None = None,
    assert_close_kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Check that results are the expected ones, and those of the CPU.

    Args:
        neuron_model: what was compiled.
        inputs: arguments of each call.
        expected_outputs: its result.
        cpu_callable: the same on the CPU.
        assert_close_kwargs: keywords of `torch.testing.assert_close`.

    Raises:
        AssertionError: a result differs.
        ConfigError: there is nothing to compare with, or not for every call.
    """
    _check_inputs("inputs", inputs)
    if expected_outputs is None and cpu_callable is None:
        message = "Provide expected_outputs or a cpu_callable to produce expected outputs."
        raise ConfigError(message, options=["expected_outputs", "cpu_callable"])
    if expected_outputs is not None and not isinstance(expected_outputs, list):
        message = "expected_outputs must be a list."
        raise ConfigError(message, hint="Pass a result for each call.", option="expected_outputs")
    if expected_outputs is not None and len(expected_outputs) != len(inputs):
        message = f"len(expected_outputs) must match len(inputs): {len(expected_outputs)} and {len(inputs)}."
        raise ConfigError(message, hint="Pass a result for each call.", option="expected_outputs")
    tolerances = dict(assert_close_kwargs or {})
    for index, arguments in enumerate(inputs):
        actual = neuron_model(*arguments)
        if cpu_callable is not None:
            on_cpu = cpu_callable(*arguments)
            if expected_outputs is not None:
                torch.testing.assert_close(on_cpu, expected_outputs[index], **tolerances)
            torch.testing.assert_close(actual, on_cpu, **tolerances)
        if expected_outputs is not None:
            torch.testing.assert_close(actual, expected_outputs[index], **tolerances)


def _check_example(inputs: Any) -> None:
    """Check the arguments of a compile."""
    _check_inputs("example_inputs", inputs)
    if len(inputs) != 1:
        message = f"example_inputs must contain exactly one input, not {len(inputs)}."
        raise ConfigError(message, hint="Pass [(tensor, ...)].", option="example_inputs")


def _check_inputs(name: str, inputs: object) -> None:
    if not isinstance(inputs, list):
        problem = "must be a list of tensor tuples"
    elif not inputs:
        problem = "must contain exactly one input" if name == "example_inputs" else "must not be empty"
    elif not all(isinstance(one, tuple) and all(isinstance(part, torch.Tensor) for part in one) for one in inputs):
        problem = "must be a list of tensor tuples"
    else:
        return
    raise ConfigError(f"{name} {problem}.", hint="Pass [(tensor, ...), ...].", option=name)
