"""NKI kernels in captured graphs, and in NEFFs: operators of `nki_op` are written out, and streams are stored by name.

A node of `neuron.nki_kernel` names its stream by content, so graphs, cache keys, and bodies know a kernel without
holding it. The stream is a member of the NEFF, as JSON with its constants as safetensors; nothing of it is executed
before it was checked against the rules of its target. This module does not know what instructions mean.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from .. import nki
from ..errors import ArtifactError, KernelError
from ..hardware import resolve_target
from .ir import Program, forget_source_at_end
from .neff import Neff

FOLDER = "kernels"
"""Members of a NEFF that are kernels."""
KERNEL = "neuron.nki_kernel.default"
"""Operator of a kernel; `nki` defines it, and is imported for graphs that have one."""


def is_kernel(node: fx.Node) -> bool:
    """Return whether a node launches a kernel."""
    return node.op == "call_function" and str(node.target) == KERNEL


def write_out(module: fx.GraphModule) -> None:
    """Replace operators of `nki_op` by the kernels and the operators of ATen that they are made of, in place."""
    if f"{nki.__name__}.custom_ops" not in sys.modules:
        return  # no such operator is defined
    graph = module.graph
    for node in list(graph.nodes):
        if node.target in nki.WRITTEN_OUT:
            _write_out(graph, node, nki.WRITTEN_OUT[node.target])
    graph.lint()


def _write_out(graph: fx.Graph, node: fx.Node, function: Callable[..., Any]) -> None:
    sources = node.all_input_nodes
    places = {source: place for place, source in enumerate(sources)}

    def call(*values: torch.Tensor) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: values[places[source]])
        return function(*args, **kwargs)

    traced = make_fx(call)(*(source.meta["val"] for source in sources))
    forget_source_at_end(traced)
    copies: dict[fx.Node, fx.Node] = dict(zip(traced.graph.find_nodes(op="placeholder"), sources, strict=True))
    with graph.inserting_before(node):
        results = graph.graph_copy(traced.graph, copies)
    for copy in copies.values():
        if copy not in places:
            copy.meta |= {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
    if isinstance(results, fx.Node):
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


def kernels_in(module: fx.GraphModule) -> list[str]:
    """Return the keys of the kernels that a graph calls, in order."""
    return list(dict.fromkeys(str(node.args[1]) for node in module.graph.nodes if is_kernel(node)))


def kernels_of(program: Program) -> list[str]:
    """Return the keys of the kernels that a program calls, sorted."""
    return sorted({key for one in program.subprograms.values() for key in kernels_in(one.body)})


def members_of(keys: Iterable[str]) -> dict[str, bytes]:
    """Return the members of a NEFF that hold kernels."""
    from safetensors.torch import save

    members: dict[str, bytes] = {}
    for key in keys:
        stream = nki.stream_of(key)
        members[f"{FOLDER}/{key}.json"] = nki.streams.encode(stream)
        if stream.constants:
            members[f"{FOLDER}/{key}.safetensors"] = save(stream.constants)
    return members


def add_members(members: Mapping[str, bytes], origin: str) -> None:
    """Check the kernels of members, and make them known to this process."""
    from safetensors.torch import load

    for name, data in members.items():
        key, _, kind = name.removeprefix(f"{FOLDER}/").rpartition(".")
        if kind == "json":
            values = members.get(f"{FOLDER}/{key}.safetensors")
            _add(key, data, load(values) if values else {}, f"The kernel {key} in {origin}")


def read_kernels(neff: Neff) -> None:
    """Read the kernels of a NEFF, check them, and make them known to this process."""
    names = [name for name in neff.names if name.startswith(f"{FOLDER}/")]
    add_members({name: bytes(neff.read(name)) for name in names}, str(neff.path))


def _add(key: str, data: bytes, constants: dict[str, torch.Tensor], origin: str) -> None:
    stream = nki.streams.decode(data, constants, origin=origin)
    try:
        nki.streams.verify(stream, resolve_target(stream.target).value)
    except KernelError as error:
        message = f"{origin} breaks a rule of the core: {error.message}"
        hint = "Do not use it; export the model yourself."
        raise ArtifactError(message, hint=hint, kernel=key, **error.details) from error
    if nki.add_stream(stream) != key:
        message = f"{origin} was altered: its content has another name."
        raise ArtifactError(message, hint="Export the model again.", kernel=key)
