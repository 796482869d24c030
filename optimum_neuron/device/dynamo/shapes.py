"""Static sizes: dynamic sizes of torch are fixed to the sizes of the call, and a new size recompiles.

After the second size of an input torch makes it a symbol, so that one graph serves all sizes. A NeuronCore has no such
graphs. Reading a symbol's value here is enough: torch then guards on it and compiles again for another size. A symbol
of a Python float would reach the graph as a float64 tensor, which no NeuronCore has arithmetic for, so it is fixed too.
"""

from __future__ import annotations

import logging
import operator
import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import fx

logger = logging.getLogger(__name__)

_seen: dict[int, list[dict[str, str]]] = {}
"""Inputs of each compile of a frame, as text."""
_lock = threading.Lock()
_LOCAL = re.compile(r"^L\['(\w+)'\]")
"""torch's name of a local variable."""


def fix_sizes(example_inputs: Sequence[Any]) -> bool:
    """Give every symbolic size its present value; return whether there was one."""
    has_symbols = False
    for value in example_inputs:
        is_strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
        sizes = (*value.shape, *value.stride(), value.storage_offset()) if is_strided else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt):
                has_symbols = True
                int(size)
    return has_symbols


def fix_random_states(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    """Give the random states that a forward keeps for its backward a plain size, in place; return the fake inputs.

    torch makes a symbol of their size, which belongs to no input, so a guard on it could not be checked.
    """
    inputs = list(example_inputs)
    places = {node: place for place, node in enumerate(graph_module.graph.find_nodes(op="placeholder"))}
    for node in graph_module.graph.nodes:
        states: list[Any] = []
        if node.target is torch.ops.higher_order.run_and_save_rng_state:
            states = [part for part in node.users if part.target is operator.getitem and part.args[1] == 0]
        elif node.target is torch.ops.higher_order.run_with_rng_state:
            states = [node.args[0]]
        for state in states:
            with state.meta["val"].fake_mode:
                state.meta["val"] = torch.empty(len(torch.get_rng_state()), dtype=torch.uint8)
            if state in places:
                inputs[places[state]] = state.meta["val"]
    return inputs


def fix_numbers(graph_module: fx.GraphModule) -> None:
    """Give every symbolic Python float its present value.

    torch cannot do so once the number is an input of the graph. It captures the function again, with the number as a
    constant under a guard.
    """
    from ...upstream.torch import SymT, TensorifyScalarRestartAnalysis, TensorifyState, symbol_is_type

    values = [node.meta.get("example_value") for node in graph_module.graph.nodes]
    # `_expr` is the symbol, `expr` may be its replacement.
    symbols = {
        symbol for value in values if isinstance(value, torch.SymFloat) for symbol in value.node._expr.free_symbols
    }
    names = {str(symbol) for symbol in symbols if symbol_is_type(symbol, SymT.FLOAT)}
    known = {name for name in names if TensorifyState.should_specialize(name)}
    for name in names - known:
        TensorifyState.specialize(name)
    if names - known:
        raise TensorifyScalarRestartAnalysis


def reason_of_compile(graph_module: fx.GraphModule, frame: int, number: int, *, was_symbolic: bool) -> str:
    """Say why a frame was compiled, after `number` times before, and warn where it is another size."""
    inputs = {
        _name(node): _text(value)
        for node in graph_module.graph.find_nodes(op="placeholder")
        # A size of its own belongs to a tensor that is named too.
        if not isinstance(value := node.meta.get("example_value"), torch.SymInt)
    }
    with _lock:
        before = _seen.setdefault(frame, [])
        last = before[-1] if before else None
        before.append(inputs)
    if number == 0 or last is None:
        if was_symbolic:
            logger.warning(
                "torch.compile(dynamic=True): sizes are fixed to those of this call, and every other size compiles "
                "again, because a NeuronCore's graphs are static (NCC_EMOD025). Pad inputs to a few sizes."
            )
        return "first call"
    if set(inputs) != set(last):
        return "another module, or other arguments"
    changes = [f"{name} was {last[name]}, is {text}" for name, text in inputs.items() if last[name] != text]
    if not changes:
        return "a guard of torch failed (TORCH_LOGS=recompiles tells which)"
    from ...upstream.torch import dynamo_config

    limit = dynamo_config.recompile_limit
    logger.warning(
        "compile %d of at most %d of one function: %s. A NeuronCore's graphs are static: pad inputs to a few sizes. "
        "Beyond the limit the function runs operator by operator.",
        number + 1,
        limit,
        "; ".join(changes),
    )
    return "; ".join(changes)


def reset() -> None:
    """Forget the call sizes of frames."""
    with _lock:
        _seen.clear()


def _name(node: fx.Node) -> str:
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None)
    text = str(name() if callable(name) else name) if name else node.name
    return _LOCAL.sub(r"\1", text)


def _text(value: object) -> str:
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(str(int(size)) for size in value.shape)
        return f"{value.dtype}[{sizes}]".removeprefix("torch.")
    return str(value)
