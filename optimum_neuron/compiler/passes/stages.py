"""Pass: divide the layers of a program into pipeline stages, each of which runs on its own cores.

    program = divide_into_stages(program, 2)
    first, second = stage_programs(program)

A layer is the calls of one module that read a state. A call that belongs to no layer is of the stage of the layer
before it: embeddings are of the first stage, the last norm and the head of the last one. Before: every call is of stage
0. After: stages follow each other, and a value that a later stage reads is sent there, by a call of that stage, from
the last stage before it that has the value.

Nothing is computed twice, so the host runs the program without its sends (`without_sends`). Memory, time, and claims
are those of `stage_programs`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ...errors import ModelError
from ..ir import Call, Graph, Program, Subprogram


def divide_into_stages(
    program: Program, num_stages: int, *, stages: Mapping[str, int] = MappingProxyType({})
) -> Program:
    """Return the program with its layers in so many stages, of equal numbers of layers as far as possible.

    `stages` has the stage of each module that is one, where a user or another pass decided it.
    """
    if num_stages == 1:
        return program
    sends: dict[str, Subprogram] = {}
    graphs = {
        name: _divided(program, graph, stages or _stage_of_layers(graph, num_stages), sends)
        for name, graph in program.graphs.items()
    }
    program = dataclasses.replace(program, graphs=graphs, subprograms=program.subprograms | sends)
    _require_own_states(program)
    return program


def _require_own_states(program: Program) -> None:
    """Reject a state that several stages read, or that one changes after it was sent there."""
    owners: dict[str, int] = {}
    for call in (call for graph in program.graphs.values() for call in graph.calls):
        written = [call.inputs[position] for position in program.subprograms[call.subprogram].mutated]
        shared = [value for value in written if _is_sent(value)]
        shared += [
            value
            for value in call.inputs
            if value.startswith("state:") and owners.setdefault(value, call.stage) != call.stage
        ]
        if shared:
            place = call.module_path or "code outside of the layers"
            message = f"pipeline_parallel_size: {place} shares a state with layers of another stage."
            hint = "Pass pipeline_parallel_size=1; tensor_parallel_size divides every layer."
            raise ModelError(message, hint=hint, option="pipeline_parallel_size", module_path=call.module_path)


def _stage_of_layers(graph: Graph, num_stages: int) -> dict[str, int]:
    """Return the stage of each layer; a graph without a state has none."""
    readers = [call for call in graph.calls if any(value.startswith("state:") for value in call.inputs)]
    layers = list(dict.fromkeys(call.module_path for call in readers if call.module_path))
    if readers and len(layers) < num_stages:
        num_layers = len(layers) or 1
        message = f"pipeline_parallel_size={num_stages}: graph {graph.name} has {len(layers)} separate layers."
        hint = f"Pass at most {num_layers}; tensor_parallel_size divides every layer."
        raise ModelError(message, hint=hint, option="pipeline_parallel_size", value=num_stages, num_layers=num_layers)
    return {path: index * num_stages // len(layers) for index, path in enumerate(layers)}


def _divided(program: Program, graph: Graph, stage_of_layer: Mapping[str, int], sends: dict[str, Subprogram]) -> Graph:
    """Give every call its stage, and send what a later stage reads; a graph without a state is of the first stage."""
    from .exchanges import send_of

    stage, made_in, newest, calls = 0, dict[str, int](), dict[str, str](), list[Call]()
    for call in graph.calls:
        stage = max(stage, stage_of_layer.get(call.module_path, stage))
        for value in dict.fromkeys(call.inputs):
            there = _sent(value, stage)
            if made_in.get(value, stage) == stage or there in made_in:
                continue
            send = send_of(program.value_spec(graph, value))
            sends[send.name] = send
            made_in[there] = stage
            calls.append(Call(subprogram=send.name, inputs=(newest.get(value, value),), outputs=(there,), stage=stage))
            newest[value] = there
        inputs = tuple(_sent(value, stage) if made_in.get(value, stage) != stage else value for value in call.inputs)
        made_in |= dict.fromkeys(call.outputs, stage)
        calls.append(dataclasses.replace(call, inputs=inputs, stage=stage))
    return dataclasses.replace(graph, calls=tuple(calls))


def _sent(value: str, stage: int) -> str:
    """Name of a value in the memory of another stage."""
    return f"{value}>{stage}"


def _is_sent(value: str) -> bool:
    return ">" in value


def without_sends(program: Program) -> Program:
    """Return the program as one stage would run it."""
    if program.num_stages == 1:
        return program
    from ..collectives import is_send

    sends = {name for name, one in program.subprograms.items() if is_send(one)}
    subprograms = {name: one for name, one in program.subprograms.items() if name not in sends}
    graphs = {name: _joined(graph, sends) for name, graph in program.graphs.items()}
    return dataclasses.replace(program, graphs=graphs, subprograms=subprograms)


def _joined(graph: Graph, sends: set[str]) -> Graph:
    origin: dict[str, str] = {}
    for call in graph.calls:
        if call.subprogram in sends:
            origin[call.outputs[0]] = origin.get(call.inputs[0], call.inputs[0])
    calls = tuple(
        dataclasses.replace(call, inputs=tuple(origin.get(value, value) for value in call.inputs), stage=0)
        for call in graph.calls
        if call.subprogram not in sends
    )
    return dataclasses.replace(graph, calls=calls)


def stage_programs(program: Program) -> tuple[Program, ...]:
    """Return the program of each stage, whose graphs have those of the same name as their parts.

    What a stage receives is an input of its graph, and what it sends a result. A weight that several stages read, such
    as an embedding that is also the head, is in each of them.
    """
    num_stages = program.num_stages
    if num_stages == 1:
        return (program,)
    parts = []
    for stage in range(num_stages):
        graphs = {name: _part(program, graph, stage) for name, graph in program.graphs.items()}
        graphs = {name: graph for name, graph in graphs.items() if graph.calls}
        calls = [call for graph in graphs.values() for call in graph.calls]
        read = {value for call in calls for value in call.inputs}
        parts.append(
            Program(
                graphs=graphs,
                subprograms={call.subprogram: program.subprograms[call.subprogram] for call in calls},
                weights={name: spec for name, spec in program.weights.items() if f"weight:{name}" in read},
                states={name: spec for name, spec in program.states.items() if f"state:{name}" in read},
                constants={name: value for name, value in program.constants.items() if f"const:{name}" in read},
            )
        )
    return tuple(parts)


def _part(program: Program, graph: Graph, stage: int) -> Graph:
    calls = [call for call in graph.calls if call.stage == stage]
    made = {value for call in calls for value in call.outputs}
    received = {value: f"input:{value}" for value in _read(calls) if value.startswith("tmp:") and value not in made}
    elsewhere = set(_read(call for call in graph.calls if call.stage != stage))
    inputs = {name: spec for name, spec in graph.inputs.items() if f"input:{name}" in set(_read(calls))}
    return dataclasses.replace(
        graph,
        inputs=inputs | {value: program.value_spec(graph, value) for value in received},
        outputs={name: value for name, value in graph.outputs.items() if value in made}
        | {value: value for value in made if value in elsewhere},
        calls=tuple(
            dataclasses.replace(call, inputs=tuple(received.get(value, value) for value in call.inputs), stage=0)
            for call in calls
        ),
    )


def _read(calls: Iterable[Call]) -> list[str]:
    return list(dict.fromkeys(value for call in calls for value in call.inputs))
