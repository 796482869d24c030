"""Activations that a model writes out and the compiler computes in one instruction.

GELU by its tanh approximation (Hendrycks and Gimpel 2016) is a function of the scalar engine; ALBERT and GPT-2 write it
as eight operators. Only this form is known here, also with the casts of a rounding between its operators.

    part_of_gelu(graph)  # operators that take no pass because their GELU takes one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Graph, Node


def part_of_gelu(graph: Graph) -> set[Node]:
    """Operators of written-out GELUs, without the tanh of each, which stands for the whole."""
    return {part for node in graph.nodes if _is(node, "tanh") for part in _parts(node)}


def _parts(tanh: Node) -> list[Node]:
    """Other operators of 0.5 x (1 + tanh(a (x + b x^3))) around its tanh; none if it is something else."""
    scaled = _operand(tanh, "mul")
    total = scaled and _operand(scaled, "add")
    cubic = total and _operand(total, "mul")
    power = cubic and _operand(cubic, "pow")
    if not (scaled and total and cubic and power) or power.args[1] != 3.0:
        return []
    (x,) = _operands(power)
    adds = _users(tanh)
    outer = [user for add in adds if _is(add, "add") for user in _users(add) if _is(user, "mul")]
    half = [_operand(user, "mul") for user in outer]
    if x not in _operands(total) or len(outer) != 1 or half[0] is None or x not in _operands(half[0]):
        return []
    return [scaled, total, cubic, power, *adds, *outer, half[0]]


def _operand(node: Node, name: str) -> Node | None:
    """The operand of a node that is such an operator."""
    return next((source for source in _operands(node) if _is(source, name)), None)


def _operands(node: Node) -> list[Node]:
    """The operands of a node, without casts."""
    found = []
    for source in node.all_input_nodes:
        while _is_cast(source):
            source = source.all_input_nodes[0]
        found.append(source)
    return found


def _users(node: Node) -> list[Node]:
    """The users of a node, of a cast those of its result."""
    return [one for user in node.users for one in (_users(user) if _is_cast(user) else [user])]


def _is_cast(node: Node) -> bool:
    return _is(node, "to") or _is(node, "_to_copy")


def _is(node: Node, name: str) -> bool:
    return node.op == "call_function" and str(node.target).startswith(f"aten.{name}.")
