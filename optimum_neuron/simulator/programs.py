"""Estimate of what has its graphs already: compiled programs, and torch modules on example inputs.

program_estimate(program, config, DecoderRequest(), machine, name="bert")
module_estimate(torch.nn.Linear(8, 8), (torch.zeros(1, 8),), DecoderRequest(), machine)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core import AutoCast, Choice
from ..errors import ConfigError
from .configured import DEFAULT_AUTO_CAST
from .decoders import DecoderRequest, serving_estimate
from .graphs import graph_estimate
from .machine import Machine, choose_copies, positive, require_fits
from .quantity import Estimate

if TYPE_CHECKING:
    from ..compiler.ir import Program
    from ..configuration import CompileConfig


def program_estimate(
    program: Program, config: CompileConfig | None, request: DecoderRequest, machine: Machine, *, name: str
) -> Estimate:
    """Estimate a compiled program, from its own graphs.

    Args:
        program: of a NEFF or of a loaded model.
        config: how it was compiled; None where a NEFF does not say.
        request: lengths, copies and stack; shapes are those of the program.
        machine: where.
        name: of the model.
    """
    from ..compiler.memory import memory_need
    from .compiled import generates, serving_plan_of
    from .work.graph import work_of_program

    need = memory_need(program, lnc=machine.rates.num_physical)
    memory = {"weights": need.weights, "kv_cache": need.kv_cache, "scratch": need.scratch, "code": need.code}
    auto_cast = config.auto_cast if config is not None else "none"
    require_fits(name, memory, machine)
    lengths = ("sequence_length", "output_length", "concurrency") if generates(program) else ()
    _require_own_shapes(request, "a compiled model", lengths)
    plan = serving_plan_of(program, request, auto_cast=auto_cast)
    if plan is not None:
        return serving_estimate(
            plan.value,
            machine,
            name=name,
            kind="seq2seq" if plan.value.encode is not None else "decoder",
            num_cores=Choice(value=1, reason="compiled for one core"),
            num_copies=choose_copies(machine, 1, request.data_parallel_size),
            memory=memory,
            assumptions=(plan.reason, machine.price_source),
        )
    graph_name = list(program.graphs)[-1]
    work = work_of_program(program, graph_name, auto_cast=auto_cast)
    rows = max((spec.shape[0] for spec in program.graphs[graph_name].inputs.values() if spec.shape), default=1)
    return graph_estimate(
        work,
        machine,
        name=name,
        rows=rows,
        memory=memory,
        task=config.task if config is not None else None,
        num_copies=request.data_parallel_size,
        assumptions=(f"graph {graph_name} of the compiled program, its largest shapes",),
    )


def module_estimate(
    module: Any, example_inputs: Sequence[Any] | None, request: DecoderRequest, machine: Machine
) -> Estimate:
    """Any torch module: exported on its example inputs."""
    import torch

    from ..compiler.memory import MICROCODE_BYTES
    from .work.graph import work_of_graph

    if not example_inputs:
        raise ConfigError(
            f"Estimating a {type(module).__name__} needs example_inputs, because a graph is static.",
            hint="Pass example_inputs=(tensor, ...), on any device, the meta device too.",
            option="example_inputs",
        )
    _require_own_shapes(request, "a torch module", ("auto_cast",))
    exported = torch.export.export(module.eval(), tuple(example_inputs), strict=False)
    kinds = {spec.arg.name: spec.kind.name for spec in exported.graph_signature.input_specs}
    inputs = [node for node in exported.graph.nodes if node.op == "placeholder"]
    roles: list[Any] = ["value" if kinds.get(node.name) == "USER_INPUT" else "weight" for node in inputs]
    float32 = all(p.dtype == torch.float32 for p in module.parameters())
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if float32 else "none")
    work = work_of_graph(exported.graph_module, name=type(module).__name__, roles=roles, auto_cast=auto_cast)
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    rows = int(example_inputs[0].shape[0]) if getattr(example_inputs[0], "ndim", 0) else 1
    memory = {"weights": weights, "code": MICROCODE_BYTES * machine.rates.num_physical}
    require_fits(type(module).__name__, memory, machine)
    return graph_estimate(
        work,
        machine,
        name=type(module).__name__,
        rows=rows,
        memory=memory,
        num_copies=request.data_parallel_size,
        assumptions=(f"exported on the example inputs, auto_cast {auto_cast}",),
    )


def _require_own_shapes(request: DecoderRequest, what: str, changeable: Sequence[str]) -> None:
    """Check that a request leaves out options that are fixed already, and that the others are in range.

    Raises:
        ConfigError: at least one option is fixed, or out of range.
    """
    fixed = [
        name
        for name, value in dataclasses.asdict(request).items()
        if value not in (None, 1) and name not in (*changeable, "data_parallel_size")
    ]
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} cannot be chosen for {what}: it was decided before.",
            hint="Remove it, or estimate the model's folder or configuration instead.",
            options=fixed,
        )
    for name in changeable:
        if isinstance(value := getattr(request, name), int):
            positive(name, value)
