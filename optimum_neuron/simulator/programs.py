"""Counts of graphs: compiled or captured programs, and torch modules on example inputs.

count_program(program, config, EstimateRequest(), machine, name="bert")
count_module(torch.nn.Linear(8, 8), (torch.zeros(1, 8),), EstimateRequest(), machine)
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..base.core import AutoCast, Choice
from ..base.wording import counted
from ..errors import ConfigError
from ..hardware import Target, require_degrees
from ..options.configuration import DEGREES
from .compiled import ProgramCounts, generates, serving_plan_of
from .graphs import PER_S, RunCounts
from .machine import Machine
from .request import EstimateRequest, Kind

if TYPE_CHECKING:
    from ..compiler import Program
    from ..options.configuration import CompileConfig
    from .work import Role


def auto_cast_of(request: EstimateRequest, target: Target, *, float32: bool) -> AutoCast:
    """Return the rounding of a model that is no decoder: as asked for, else as the target's compiler rounds float32.

    Where that rounds nothing, products are rounded, as in published measurements.
    """
    if request.auto_cast or not float32:
        return request.auto_cast or "none"
    return "matmul" if target.auto_cast == "none" else target.auto_cast


class Placed(TypedDict):
    """Facts of a program that its graphs do not have."""

    memory: Mapping[str, int]
    """HBM of a core by category."""
    auto_cast: AutoCast
    task: str | None
    axes: Mapping[str, int] | None
    """Batch sizes of a single-pass model by axis; None if they are not known, for the largest of its inputs."""
    origin: str
    """Where the graphs come from, in words."""


def count_program(
    program: Program,
    config: CompileConfig | None,
    request: EstimateRequest,
    machine: Machine,
    *,
    name: str,
    auto_cast: AutoCast = "none",
) -> ProgramCounts | RunCounts:
    """Count a compiled program, in its own graphs.

    `config` is None for a NEFF without an export; `auto_cast` is then how it was compiled.
    """
    kind: Kind = "single-pass"
    if generates(program):
        kind = "encoder-decoder" if program.by_size("encode") else "decoder"
    request.require_effect(kind, "a compiled model", compiled=True)
    longest = None if config is None else config.decoder_sequence_length
    if longest is not None and (request.output_length or 0) >= longest:
        message = f"output_length={request.output_length} does not fit the compiled decoder_sequence_length={longest}."
        hint = f"Pass an output_length below {longest}, or export with a larger decoder_sequence_length."
        raise ConfigError(message, hint=hint, output_length=request.output_length, compiled=longest)
    return counts_of_program(
        program,
        request,
        memory=memory_of_program(program, machine, name=name),
        auto_cast=config.auto_cast if config is not None else auto_cast,
        task=config.task if config is not None else None,
        axes=None if config is None else batch_axes(config),
        origin="of the compiled program, its largest shapes",
    )


def memory_of_program(program: Program, machine: Machine, *, name: str) -> dict[str, int]:
    """Return the HBM of a core by category."""
    from ..compiler import fullest_need, group_size_of, stage_needs
    from ..runtime import require_fit

    degrees = (group_size_of(program), program.num_stages)
    require_degrees(machine.instance.value, **dict(zip(DEGREES, degrees, strict=True)))
    needs = stage_needs(program, machine.target)
    require_fit(
        needs,
        instance=machine.instance.value,
        target=machine.target,
        model_name=name,
        num_cores=math.prod(degrees),
        program=program,
    )
    return dataclasses.asdict(fullest_need(needs))


def counts_of_program(
    program: Program, request: EstimateRequest, *, num_cores: Choice[int] | None = None, **placed: Unpack[Placed]
) -> ProgramCounts | RunCounts:
    """Count linked graphs: the plan of a request where they generate, otherwise one run of the largest.

    `num_cores` says why a captured program has its cores, which other numbers could share too.
    """
    from ..compiler import group_size_of
    from .work import work_of_program

    plan = serving_plan_of(program, request, auto_cast=placed["auto_cast"])
    if plan is not None:
        own = group_size_of(program) * program.num_stages
        return ProgramCounts(
            program=program,
            plan=plan,
            memory=placed["memory"],
            auto_cast=placed["auto_cast"],
            origin=placed["origin"],
            num_cores=num_cores or Choice(value=own, reason=f"compiled for {counted(own, 'core')}"),
            divisible=num_cores is not None,
        )
    graph, axes = list(program.graphs)[-1], placed["axes"]
    if axes is None:
        shapes = [spec.shape for spec in program.graphs[graph].inputs.values() if spec.shape]
        rows = max((shape[0] for shape in shapes), default=1)
    else:
        rows = axes.get("batch_size") or (list(axes.values())[-1] if axes else 1)
    own = group_size_of(program) * program.num_stages
    return RunCounts(
        work=work_of_program(program, graph, auto_cast=placed["auto_cast"]),
        rows=rows,
        axes=axes or {},
        memory=placed["memory"],
        num_cores=own,
        num_cores_reason=f"compiled for {counted(own, 'core')}" if num_cores is None else num_cores.reason,
        task=placed["task"],
        assumptions=(f"graph {graph} {placed['origin']}",),
    )


def batch_axes(config: CompileConfig) -> dict[str, int]:
    """Return the largest compiled size of each batch axis; where texts and images have one each, images come last."""
    sizes = config.static_shapes
    return {axis: max(size) if isinstance(size := sizes[axis], list) else size for axis in PER_S if axis in sizes}


def count_module(
    module: Any, example_inputs: Sequence[Any] | None, request: EstimateRequest, machine: Machine
) -> RunCounts:
    """Count a torch module, captured whole on its example inputs."""
    import torch

    from ..compiler import MICROCODE_BYTES, capture, capture_graphs, tensor_spec
    from .work import work_of_graph

    name = type(module).__name__
    request.require_effect("module", "a torch module", compiled=True)
    if not example_inputs or not all(isinstance(value, torch.Tensor) for value in example_inputs):
        message = f"Estimating a {name} needs example_inputs of tensors, because a graph is static."
        hint = "Pass example_inputs=(tensor, ...), on any device, the meta device too."
        raise ConfigError(message, hint=hint, option="example_inputs")
    inputs = {f"input{index}": tensor_spec(value) for index, value in enumerate(example_inputs)}
    # Not shortened: a graph whose sizes depend on values cannot become a program, whose layers could be repeated.
    whole = functools.partial(capture, module.eval(), name=name, inputs=inputs, shorten=False)
    (graph,) = capture_graphs([lambda shorten: whole()], on_captured=lambda captured: None)
    exported = graph.captured.exported
    roles: list[Role] = [
        "value" if spec.kind.name == "USER_INPUT" else "weight" for spec in exported.graph_signature.input_specs
    ]
    float32 = all(p.dtype == torch.float32 for p in module.parameters())
    auto_cast = auto_cast_of(request, machine.target, float32=float32)
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    if machine.target.keeps_rounded_weights and auto_cast == "all" and float32:
        weights //= 2
    counts = RunCounts(
        work=work_of_graph(exported.graph_module, name=name, roles=roles, auto_cast=auto_cast),
        rows=example_inputs[0].shape[0] if example_inputs[0].ndim else 1,
        axes={},
        memory={"weights": weights, "code": MICROCODE_BYTES * machine.rates.num_physical},
        num_cores=1,
        num_cores_reason=f"compiled for {counted(1, 'core')}",
        task=None,
        assumptions=(f"exported on the example inputs, auto_cast {auto_cast}",),
    )
    return counts.in_stages(request.pipeline_parallel_size, machine)
