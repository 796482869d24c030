"""Compile a module or a function for one core, and compare it with the CPU.

model = build_function(torch.sin, [(torch.zeros(4),)])
validate_accuracy(model, [(torch.rand(4),)], cpu_callable=torch.sin)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError
from ..tracing import trace

Inputs = Sequence[tuple[torch.Tensor, ...]]
"""Positional arguments of each call."""


def build_module(
    module_cls: Callable[..., torch.nn.Module],
    example_inputs: Inputs,
    module_init_kwargs: Mapping[str, Any] | None = None,
    tp_degree: int = 1,
    compiler_args: str | None = None,
    compiler_workdir: str | Path | None = None,
    checkpoint_path: str | Path | None = None,
) -> Callable[..., Any]:
    """Make a module, and compile it for one core.

    Args:
        module_cls: returns the module.
        example_inputs: a list with the arguments of one call.
        module_init_kwargs: keywords of `module_cls`.
        tp_degree: must be 1.
        compiler_args: flags of neuronx-cc.
        compiler_workdir: folder that gets the NEFF.
        checkpoint_path: file of a state dict; None: the module's own weights.
    """
    _check_example(example_inputs, tp_degree)
    module = module_cls(**(module_init_kwargs or {})).eval()
    if checkpoint_path is not None:
        module.load_state_dict(torch.load(checkpoint_path, map_location="cpu", weights_only=True))
    return trace(module, example_inputs[0], compiler_args=compiler_args, compiler_workdir=compiler_workdir)


def build_function(
    func: Callable[..., Any],
    example_inputs: Inputs,
    tp_degree: int = 1,
    compiler_args: str | None = None,
    compiler_workdir: str | Path | None = None,
) -> Callable[..., Any]:
    """Compile a function for one core; see `build_module`."""
    _check_example(example_inputs, tp_degree)
    return trace(func, example_inputs[0], compiler_args=compiler_args, compiler_workdir=compiler_workdir)


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


def _check_example(inputs: Any, tp_degree: int) -> None:
    """Check the arguments of a compile."""
    _check_inputs("example_inputs", inputs)
    if len(inputs) != 1:
        message = f"example_inputs must contain exactly one input, not {len(inputs)}."
        raise ConfigError(message, hint="Pass [(tensor, ...)].", option="example_inputs")
    if tp_degree != 1:
        raise ConfigError(
            f"tp_degree={tp_degree} is not supported for a single module.",
            hint="Pass 1, or trace modules of neuronx_distributed.",
            option="tp_degree",
            value=tp_degree,
        )


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
