"""Estimates from graphs: compiled or captured programs, and torch modules on example inputs.

program_estimate(program, config, DecoderRequest(), machine, name="bert")
module_estimate(torch.nn.Linear(8, 8), (torch.zeros(1, 8),), DecoderRequest(), machine)
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..configuration import DEGREES
from ..core import AutoCast
from ..errors import ConfigError
from ..hardware import require_degrees
from .decoders import DecoderRequest
from .graphs import PER_S, graph_estimate
from .machine import Machine, positive, require_fits
from .quantity import Estimate

if TYPE_CHECKING:
    from ..compiler import Program
    from ..configuration import CompileConfig
    from .work import Role

DEFAULT_AUTO_CAST: AutoCast = "matmul"
"""Rounding of single-pass models in float32, as in published measurements."""


def program_estimate(
    program: Program,
    config: CompileConfig | None,
    request: DecoderRequest,
    machine: Machine,
    *,
    name: str,
    origin: str = "of the compiled program, its largest shapes",
) -> Estimate:
    """Estimate a compiled program, from its own graphs; `config` is None where a NEFF does not say how.

    `origin` is where the graphs come from, in words.
    """
    from ..compiler import group_size_of, memory_need
    from ..runtime import require_fit
    from .compiled import generates

    auto_cast = config.auto_cast if config is not None else "none"
    degrees = (group_size_of(program), program.num_stages)
    require_degrees(machine.instance.value, **dict(zip(DEGREES, degrees, strict=True)))
    need = memory_need(program, lnc=machine.rates.num_physical)
    require_fit(
        need,
        instance=machine.instance.value,
        target=machine.target,
        model_name=name,
        num_cores=math.prod(degrees),
        program=program,
    )
    memory = dataclasses.asdict(need)
    lengths = ("sequence_length", "input_length", "output_length", "concurrency", "speculation", "prefix_hit_rate")
    longest = getattr(config, "decoder_sequence_length", None)
    if longest is not None and (request.output_length or 0) >= longest:
        message = f"output_length={request.output_length} does not fit the compiled decoder_sequence_length={longest}."
        hint = f"Pass an output_length below {longest}, or export with a larger decoder_sequence_length."
        raise ConfigError(message, hint=hint, output_length=request.output_length, compiled=longest)
    _require_own_shapes(request, "a compiled model", lengths if generates(program) else ("batches_in_flight",))
    return linked_estimate(
        program,
        request,
        machine,
        name=name,
        memory=memory,
        auto_cast=auto_cast,
        task=config.task if config is not None else None,
        axes=None if config is None else batch_axes(config),
        origin=origin,
    )


def linked_estimate(
    program: Program,
    request: DecoderRequest,
    machine: Machine,
    *,
    name: str,
    memory: dict[str, int],
    auto_cast: AutoCast,
    task: str | None,
    origin: str,
    axes: Mapping[str, int] | None,
    assumptions: tuple[str, ...] = (),
) -> Estimate:
    """Estimate linked graphs: the plan of a request where they generate, otherwise one run of the largest.

    Args:
        origin: where the graphs come from, in words.
        axes: batch sizes of a single-pass model by axis; None if they are not known, for the largest of its inputs.
        assumptions: more conditions of a single-pass model.
    """
    from ..compiler import group_size_of
    from .compiled import generated_estimate, serving_plan_of
    from .work import work_of_program

    plan = serving_plan_of(program, request, auto_cast=auto_cast)
    if plan is not None:
        return generated_estimate(
            program, plan, request, machine, name=name, memory=memory, auto_cast=auto_cast, origin=origin
        )
    graph_name = list(program.graphs)[-1]
    if axes is None:
        shapes = [spec.shape for spec in program.graphs[graph_name].inputs.values() if spec.shape]
        rows = max((shape[0] for shape in shapes), default=1)
    else:
        rows = rows_of_run(axes)
    return graph_estimate(
        work_of_program(program, graph_name, auto_cast=auto_cast),
        machine,
        name=name,
        rows=rows,
        axes=axes,
        memory=memory,
        task=task,
        num_cores=group_size_of(program),
        num_copies=request.data_parallel_size,
        num_in_flight=request.batches_in_flight or 1,
        assumptions=(f"graph {graph_name} {origin}", *assumptions),
    )


def rows_of_run(axes: Mapping[str, int]) -> int:
    """Return the examples of a run, from its batch sizes by axis."""
    return axes.get("batch_size") or (list(axes.values())[-1] if axes else 1)


def batch_axes(config: CompileConfig) -> dict[str, int]:
    """Return the largest compiled size of each batch axis; where texts and images have one each, images come last."""
    sizes = {axis: getattr(config, axis, None) for axis in PER_S}
    return {axis: max(size) if isinstance(size, tuple) else size for axis, size in sizes.items() if size is not None}


def module_estimate(
    module: Any, example_inputs: Sequence[Any] | None, request: DecoderRequest, machine: Machine
) -> Estimate:
    """Estimate a torch module, captured whole on its example inputs."""
    import torch

    from ..compiler import MICROCODE_BYTES, capture, capture_graphs, tensor_spec
    from .work import work_of_graph

    name = type(module).__name__
    if not example_inputs or not all(isinstance(value, torch.Tensor) for value in example_inputs):
        message = f"Estimating a {name} needs example_inputs of tensors, because a graph is static."
        hint = "Pass example_inputs=(tensor, ...), on any device, the meta device too."
        raise ConfigError(message, hint=hint, option="example_inputs")
    _require_own_shapes(request, "a torch module", ("auto_cast", "batches_in_flight"))
    inputs = {f"input{index}": tensor_spec(value) for index, value in enumerate(example_inputs)}
    # Not shortened: a graph whose sizes depend on values cannot become a program, whose layers could be repeated.
    whole = functools.partial(capture, module.eval(), name=name, inputs=inputs, shorten=False)
    (graph,) = capture_graphs([lambda shorten: whole()], on_captured=lambda captured: None)
    exported = graph.captured.exported
    roles: list[Role] = [
        "value" if spec.kind.name == "USER_INPUT" else "weight" for spec in exported.graph_signature.input_specs
    ]
    float32 = all(p.dtype == torch.float32 for p in module.parameters())
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if float32 else "none")
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    memory = {"weights": weights, "code": MICROCODE_BYTES * machine.rates.num_physical}
    require_fits(name, memory, machine)
    return graph_estimate(
        work_of_graph(exported.graph_module, name=name, roles=roles, auto_cast=auto_cast),
        machine,
        name=name,
        rows=example_inputs[0].shape[0] if example_inputs[0].ndim else 1,
        memory=memory,
        num_copies=request.data_parallel_size,
        num_in_flight=request.batches_in_flight or 1,
        assumptions=(f"exported on the example inputs, auto_cast {auto_cast}",),
    )


def _require_own_shapes(request: DecoderRequest, what: str, changeable: Sequence[str]) -> None:
    """Check that a request leaves out options that are fixed already, and that the others are in range."""
    fixed = [
        name
        for name, value in dataclasses.asdict(request).items()
        if value not in (None, 1) and name not in (*changeable, "data_parallel_size")
    ]
    if fixed:
        message = f"{', '.join(fixed)} cannot be chosen for {what}: it was decided before."
        hint = "Remove it, or estimate the model's folder or configuration instead."
        raise ConfigError(message, hint=hint, options=fixed)
    for name in changeable:
        if isinstance(value := getattr(request, name), int):
            positive(name, value)
