"""`torch.neuron.trace`: operators that NeuronCore-v1 has run on simulated cores, all others on the CPU.

model = trace(bert, (input_ids, attention_mask))
torch.jit.save(model, "bert.pt")
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ...compiler.rules import neuroncore_v1
from ...errors import ConfigError, NeuronError, NoFallbackError, NothingCompiledError
from ...hardware import require_pipeline_cores, resolve_instance
from ...options.option import check_known
from ..contexts import no_such_cores, num_cores as num_usable_cores
from ..entry import require_callable
from ..placement import dynamic_batch
from . import log
from .assemble import assemble
from .compile import TARGET, compile_segments
from .graph import Operation, Program, read_graph
from .options import Optimization, Options, checked_options
from .parts import Part
from .run import Environment, run_example
from .segments import Limits, Plan
from .support import ALL_COMPILABLE, unsupported_because

_DEPRECATED = r".torch\.jit\.\w+. is deprecated"


def trace(
    model: Callable[..., Any],
    example_inputs: object,
    fallback: bool = True,
    op_whitelist: Collection[str] | None = None,
    minimum_segment_size: int = 2,
    subgraph_builder_function: Callable[[Operation], bool] | None = None,
    subgraph_inputs_pruning: bool = True,
    skip_compiler: bool = False,
    debug_must_trace: bool = False,
    allow_no_ops_on_neuron: bool = False,
    compiler_workdir: str | Path | None = None,
    dynamic_batch_size: bool = False,
    compiler_timeout: float | None = None,
    single_fusion_ratio_threshold: float = 0.6,
    compiler_args: str | Sequence[str] | None = None,
    optimizations: Sequence[Optimization] | None = None,
    separate_weights: bool = False,
    verbose: int | str | bool | None = None,
    **jit_trace_kwargs: object,
) -> torch.jit.ScriptModule:
    """Compile a model for NeuronCore-v1, and load it on simulated cores of an Inf1 instance.

    Args:
        model: module, method, or function, as for `torch.jit.trace`.
        example_inputs: a tensor, or a tuple or list of inputs; they decide the shapes of segments.
        fallback: let operators that the core lacks run on the CPU; False refuses them, and compiles lookups too.
        op_whitelist: operators that may run on the core; None takes those of `get_supported_operations` and those with
            a condition.
        minimum_segment_size: smallest number of graph nodes of a segment; smaller ones run on the CPU.
        subgraph_builder_function: called with each operator that the core has, whose `name` is the tuple of the class
            names of its modules; False keeps it on the CPU.
        subgraph_inputs_pruning: has no effect; a segment has the inputs that it reads, and no others.
        skip_compiler: divide and log only; the result runs on the CPU.
        debug_must_trace: raise the error of a segment that cannot be compiled, which otherwise runs on the CPU.
        allow_no_ops_on_neuron: return a model of which nothing runs on a core, instead of raising an error.
        compiler_workdir: folder that gets a numbered folder for each segment with its NEFF.
        dynamic_batch_size: let dimension 0 of the inputs have any size.
        compiler_timeout: longest time of one compile, in seconds.
        single_fusion_ratio_threshold: share of the operators above which only the largest segment is compiled.
        compiler_args: flags of neuron-cc, as one text or a list of words.
        optimizations: passes of `Optimization`.
        separate_weights: keep weights beside the NEFF, for models whose weights are above 1.9 GB.
        verbose: has no effect; `logging.getLogger("Neuron").setLevel` decides what is logged.
        jit_trace_kwargs: other arguments of `torch.jit.trace`, such as strict=False for outputs in dictionaries.

    Returns:
        A ScriptModule that takes and returns tensors of the CPU. It can be saved and loaded with `torch.jit`.

    Raises:
        AttributeError: an operator is not supported, and `fallback` is False.
        RuntimeError: nothing can run on a core, or the model cannot be traced.
        subprocess.TimeoutExpired: a compile took longer than `compiler_timeout`.
        ConfigError: an argument cannot be used.

    Example:
        ```python no-run
        import torch
        from optimum_neuron.tracing import inf1

        net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
        model = inf1.trace(net, torch.rand(3, 4))
        x = torch.rand(3, 4)
        torch.testing.assert_close(model(x), net(x), rtol=2e-2, atol=2e-2)
        ```
    """
    options = checked_options(
        op_whitelist=ALL_COMPILABLE if op_whitelist is None and not fallback else op_whitelist,
        minimum_segment_size=minimum_segment_size,
        subgraph_builder_function=subgraph_builder_function,
        subgraph_inputs_pruning=subgraph_inputs_pruning,
        debug_must_trace=debug_must_trace,
        compiler_timeout=compiler_timeout,
        single_fusion_ratio_threshold=single_fusion_ratio_threshold,
        compiler_args=compiler_args,
        optimizations=optimizations,
        separate_weights=separate_weights,
        verbose=verbose,
    )
    if options.flags.ineffective:
        warnings.warn(f"neuron-cc flags without an effect here: {'; '.join(options.flags.ineffective)}", stacklevel=2)
    if not skip_compiler:
        _require_instance(options.flags.pipeline_cores)
    inputs = checked_inputs(example_inputs)
    program, example = traced_program(model, inputs, jit_trace_kwargs)
    limits = Limits(
        supports=lambda operation: not unsupported_because(operation, example, options.whitelist),
        chosen=options.chosen,
        minimum_segment_size=options.minimum_segment_size,
        single_fusion_ratio_threshold=options.single_fusion_ratio_threshold,
    )
    plan = Plan(program, limits)
    log.before_compile(plan)
    if not fallback and (missing := [one for one in plan.arithmetic if one not in plan.supported]):
        hint = "Let them run on the CPU with fallback=True."
        raise NoFallbackError(log.unsupported_text(missing), hint=hint, operators=[one.kind for one in missing])
    if skip_compiler:
        return assemble(program, [_whole(program)], {}, example)
    models, parts, failure = compile_segments(plan, example, options, compiler_workdir)
    log.after_compile(plan)
    if not models and not allow_no_ops_on_neuron:
        raise _nothing(plan, options, failure)
    is_half = {value for value, found in example.items() if options.half and _is_float(found)}
    result = assemble(program, parts, models, example, is_half)
    return dynamic_batch(result) if dynamic_batch_size and models else result


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _whole(program: Program) -> Part:
    inputs, outputs = list(program.inputs), list(program.outputs)
    return Part(place="cpu", operations=list(program.operations), inputs=inputs, outputs=outputs)


def checked_inputs(example_inputs: object) -> tuple[Any, ...]:
    """Return example inputs as a tuple; a single tensor counts as one.

    Raises:
        ConfigError: they are neither tensors nor tuples or lists of them.
    """
    inputs = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    wrong = [
        type(item).__name__ for item in inputs if not isinstance(item, (torch.Tensor, tuple, list, int, float, bool))
    ]
    if wrong or not inputs:
        what = f"a {wrong[0]}" if wrong else "empty"
        message = f"example_inputs is {what}, but a traced model takes tensors by position."
        hint = "Pass a tensor, or a tuple of the inputs in the order of forward()."
        raise ConfigError(message, hint=hint, option="example_inputs", types=wrong)
    return inputs


def traced_program(
    model: Callable[..., Any], inputs: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Program, Environment]:
    """Trace a model with `torch.jit.trace`; return its operations, and every value of the example inputs."""
    require_callable(model)
    known = [*inspect.signature(trace).parameters, *inspect.signature(torch.jit.trace).parameters]
    check_known(options, known, what="torch.neuron.trace")
    with warnings.catch_warnings(), torch.no_grad(), _without_fused_layers():
        warnings.filterwarnings("ignore", _DEPRECATED, DeprecationWarning)
        traced = torch.jit.trace(model, inputs, **{"check_trace": False, **options})
    program = read_graph(traced)
    return program, run_example(program, inputs)


@contextlib.contextmanager
def _without_fused_layers() -> Iterator[None]:
    """Keep the operators of `nn.TransformerEncoderLayer`; without gradients, torch runs a whole layer as one."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _require_instance(num_cores: int) -> None:
    """Require that the simulated instance has NeuronCore-v1, and as many cores as a pipeline takes."""
    instance = resolve_instance().value
    if instance.family != TARGET:
        message = f"{instance.name}, the simulated instance, cannot run a model compiled for {TARGET}."
        hint = "Set OPTIMUM_NEURON_INSTANCE=inf1.xlarge, or trace it for this instance with torch_neuronx.trace."
        raise ConfigError(message, hint=hint, target=TARGET, instance=instance.name)
    require_pipeline_cores(instance, num_cores, option="--neuroncore-pipeline-cores")
    if num_cores > num_usable_cores():
        raise no_such_cores(f"--neuroncore-pipeline-cores={num_cores}", hint="Pass fewer, or allow the process more.")


def _nothing(plan: Plan, options: Options, failure: NeuronError | None) -> NothingCompiledError:
    """Return the error for a model without a segment, with the reason that comes first."""
    missing = _missing_text(plan, options)
    hint = "Pass allow_no_ops_on_neuron=True to get a model for the CPU."
    if failure is not None:
        reason = f"a segment cannot be compiled ({failure.message.splitlines()[0].rstrip(':')})"
    elif not plan.arithmetic:
        reason = "it has none that compute"
    elif not plan.supported:
        reason = missing
    elif not any(options.chosen(one) for one in plan.supported):
        reason = "subgraph_builder_function leaves all of them to the CPU"
    else:
        lacks = f", and {missing}" if missing else ""
        reason = f"all segments have fewer than {options.minimum_segment_size} graph nodes{lacks}"
        hint = f"Pass a smaller minimum_segment_size, or a{hint[6:]}"
    message = f"No operations of the model were compiled for a core: {reason}."
    return NothingCompiledError(message, hint=hint, operators=[one.kind for one in plan.arithmetic])


def _missing_text(plan: Plan, options: Options) -> str:
    """Say which operators the core lacks, and which ones the whitelist leaves out; "" for none."""
    missing = [one for one in plan.arithmetic if one not in plan.supported]
    left_out = [one for one in missing if options.whitelist is not None and neuroncore_v1.is_listed(one.kind)]
    lacking = log.kinds_text(one for one in missing if one not in left_out)
    texts = [f"the core lacks {lacking}"] if lacking else []
    return " and ".join([*texts, f"op_whitelist leaves out {log.kinds_text(left_out)}"] if left_out else texts)
