"""Trace a subgraph into the graph that Inductor compiles: functional, decomposed, with host arithmetic in place.

One trace on fake tensors replaces the four of `torch.export` and AOTAutograd. This module does not depend on files or
compilers.

    traced = trace(body, probe_cpu())
    traced.graph_module, traced.inputs
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx

from ...upstream.torch import FakeTensorMode
from . import block_attention, experts, few_rows, onednn
from .arithmetic import HostArithmetic
from .choose import CpuFeatures
from .convolutions import fuse

Positions = Collection[int]
"""Positions of arguments or results of a subgraph."""

_CLONE = torch.ops.aten.clone.default


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traced:
    """A functional graph; `copy_` at its end writes the arguments that the subgraph writes."""

    graph_module: fx.GraphModule
    inputs: list[torch.Tensor]
    """Fake arguments, in the memory order that the code may expect of real ones."""
    mode: FakeTensorMode
    """The mode of all fakes."""


class _WithArithmetic(fx.Interpreter):
    """Runs a subgraph with some of its operators replaced."""

    def __init__(self, body: fx.GraphModule, arithmetic: HostArithmetic) -> None:
        # Experts are computed from old values, and a matmul may take the weight behind a cast.
        super().__init__(body, garbage_collect_values=False)
        self._arithmetic, self._replaced = arithmetic, arithmetic.operators()
        routed = experts.find_routed(body)
        self._routed = {node: index for node, index in routed.items() if arithmetic.can_group(node.meta["val"].dtype)}

    def run_node(self, n: fx.Node) -> Any:
        if (index := self._routed.get(n)) is not None:
            num_experts = self.env[n.args[1]].shape[0]
            return experts.Pairs(self.env[index], num_experts, self.env).sum_of_experts(n)
        if n.target == torch.ops.aten.linear.default and (stored := few_rows.stored_weight(n)) is not None:
            x, weight = self.env[n.args[0]], self.env[stored]
            if few_rows.is_faster(self._arithmetic.features, x, weight):
                # It converts a weight in registers; the copy would be written and read.
                return self._arithmetic.linear(x, weight, *self.fetch_args_kwargs_from_env(n)[0][2:])
        if n.target == torch.ops.aten.scaled_dot_product_attention.default:
            mixed = self._attend_to_stored(n)
            if mixed is not None:
                return mixed
        return super().run_node(n)

    def _attend_to_stored(self, n: fx.Node) -> torch.Tensor | None:
        """Attend to a cache where and as it is stored; None where the kernel does not take the call."""
        stored = block_attention.find_stored(n)
        if stored is None:
            return None
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        query, _, _, mask, *others = (*args, None)[: max(len(args), 4)]
        places = (stored.key_scale, stored.value_scale, stored.table)
        key_scale, value_scale, table = (None if one is None else self.env[one] for one in places)
        key, value = self.env[stored.key], self.env[stored.value]
        if stored.table is not None:  # slots of a pool are innermost
            key = key.transpose(2, 3)
            key_scale = key_scale.transpose(2, 3) if key_scale is not None and key_scale.dim() > 1 else key_scale
        is_plain = not any(others) and not kwargs.get("dropout_p") and not kwargs.get("is_causal")
        if not is_plain or not block_attention.is_faster(self._arithmetic.features, query, key, value, mask):
            return None
        scales = {"key_scale": key_scale, "value_scale": value_scale, "scale": kwargs.get("scale")}
        return block_attention.attend(query, key, value, mask, table, **scales)

    def call_function(self, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(self._replaced.get(target, target), args, kwargs)


def trace(
    body: fx.GraphModule,
    features: CpuFeatures,
    convolutions: Mapping[int, str] = {},  # noqa: B006  # never written
    channels_last: tuple[Positions, Positions] = ((), ()),
) -> Traced:
    """Trace a subgraph for the host.

    Args:
        body: the subgraph; changed where convolutions are fused.
        features: features of the CPU.
        convolutions: positions of the weights of convolutions that are prepared, and how, see `prepare.py`.
        channels_last: positions of the arguments and of the results in channels-last order; the others are contiguous.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    from ...upstream.inductor import select_decomp_table

    if convolutions:
        fuse(body, convolutions)
    onednn.register_lowerings()
    interpreter = _WithArithmetic(body, HostArithmetic(features=features))
    inputs = [node.meta["val"] for node in body.graph.nodes if node.op == "placeholder"]
    mode = inputs[0].fake_mode if inputs else FakeTensorMode()
    with torch.no_grad(), mode:
        inputs = [
            fake.contiguous(memory_format=torch.channels_last) if index in channels_last[0] else fake
            for index, fake in enumerate(inputs)
        ]
        functional = torch.func.functionalize(interpreter.run, remove="mutations")
        graph_module = make_fx(functional, decomposition_table=select_decomp_table())(*inputs)
        _own_results(graph_module.graph, channels_last[1])
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    return Traced(graph_module=graph_module, inputs=inputs, mode=mode)


def _own_results(graph: fx.Graph, channels_last: Positions) -> None:
    """Give each result its own memory, in the order that the next subgraph was compiled for."""
    output = next(node for node in graph.nodes if node.op == "output")
    taken = {_storage(node) for node in graph.find_nodes(op="placeholder")}
    results = []
    for index, node in enumerate(output.args[0]):
        order = torch.channels_last if index in channels_last else torch.contiguous_format
        value = node.meta["val"]
        if _storage(node) in taken or not value.is_contiguous(memory_format=order):
            with graph.inserting_before(output):
                node = graph.call_function(_CLONE, (node,), {"memory_format": order})
            node.meta["val"] = value.clone(memory_format=order)
        taken.add(_storage(node))
        results.append(node)
    output.args = (tuple(results),)


def _storage(node: fx.Node) -> int:
    return node.meta["val"].untyped_storage()._cdata
