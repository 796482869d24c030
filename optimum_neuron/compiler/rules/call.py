"""One operator call of an exported graph, as rules see it: names, shapes, dtypes and named arguments.

It reads torch.fx nodes, and the module path and source line in their meta (`nn_module_stack`, `stack_trace`). It does
not depend on targets or verdicts.

    >>> from optimum_neuron.compiler.rules.call import base_name
    >>> base_name("aten.add_.Tensor")
    'aten.add'
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.core import TensorSpec
from ...errors import ConfigError
from ...upstream import torch as private
from ...upstream.torch import schema_of

if TYPE_CHECKING:
    import torch
    from torch.fx import Node


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpCall:
    """A `call_function` node; `OpCall.from_node` makes it."""

    op: str
    """Operator with overload, for example "aten.sort.default"."""
    inputs: tuple[TensorSpec, ...]
    """Every tensor among the arguments, lists flattened. A size unknown at compile time is -1."""
    outputs: tuple[TensorSpec, ...]
    """Every tensor returned. A size unknown at compile time is -1."""
    arguments: Mapping[str, Any]
    """Arguments by schema name with defaults filled in; tensors are `TensorSpec`. Empty without a schema."""
    input_symbols: frozenset[str]
    """Names of the unknown sizes in tensors and numbers that come in."""
    output_symbols: frozenset[str]
    """Names of the unknown sizes in tensors and numbers that come out."""
    sparse: bool
    """Whether a tensor among them is not dense."""
    module_path: str | None
    """Module path in the user's model, for example "model.layers.3.mlp"."""
    source_line: str | None
    """file:line of the user's code."""
    node: Node = dataclasses.field(repr=False, compare=False)
    """The graph node, for rules that check the producer of an argument."""

    @property
    def name(self) -> str:
        """The operator without overload and in-place underscore, for example "aten.sort"."""
        return base_name(self.op)

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs and outputs."""
        return self.inputs + self.outputs

    def source(self, name: str) -> Any:
        """Argument in the graph: a node, or a plain value."""
        if name in self.node.kwargs:
            return self.node.kwargs[name]
        position = [argument.name for argument in self.node.target._schema.arguments].index(name)
        return self.node.args[position]

    @classmethod
    def from_node(cls, node: Node) -> OpCall:
        """View a `call_function` node of a graph; a wrapper is viewed as the call inside."""
        import torch

        node = _unwrapped(node)
        produced = node.meta.get("val")
        if produced is None and _returns_tensor(node):
            raise not_exported(node, "has no shapes")
        leaves = [leaf for leaf in private.tree_leaves((values_of(node), produced)) if _is_tensor(leaf)]
        incoming = [leaf for source in node.all_input_nodes for leaf in private.tree_leaves(source.meta.get("val"))]
        return cls(
            op=op_name(node.target),
            inputs=tuple(_spec(leaf) for leaf in private.tree_leaves(values_of(node)) if _is_tensor(leaf)),
            outputs=tuple(_spec(leaf) for leaf in private.tree_leaves(produced) if _is_tensor(leaf)),
            arguments=_arguments(node),
            input_symbols=symbols(incoming),
            output_symbols=symbols(private.tree_leaves(produced)),
            sparse=any(leaf.layout is not torch.strided for leaf in leaves),
            module_path=module_path(node),
            source_line=source_line(node),
            node=node,
        )


def not_exported(node: Node, problem: str) -> ConfigError:
    """Return the error for a graph that does not come from `torch.export`."""
    message = f"The graph cannot be checked: its node '{node.name}' {problem}."
    return ConfigError(message, hint="Pass the result of torch.export.export.", node=node.name, op=node.op)


FUNCTIONALIZED = ("auto_functionalized", "auto_functionalized_v2")
"""Higher-order operators that torch wraps around a custom operator that writes to its arguments."""

_WRAPPERS = {"run_and_save_rng_state": 0, "run_with_rng_state": 1, "with_effects": 1}
"""Higher-order operators that call an operator, to its position among their arguments.

The first two wrap a random operator that a backward repeats (gradient checkpointing); the last keeps calls in order.
"""


def operator_of(node: Node) -> Any:
    """Operator that a node calls, without the wrapper that torch puts around it."""
    if not isinstance(node.target, private.HigherOrderOperator):
        return node.target
    name = node.target.name()
    position = 0 if name in FUNCTIONALIZED else _WRAPPERS.get(name)
    return node.target if position is None else node.args[position]


def region_of(node: Node) -> tuple[tuple[Any, ...], Node, tuple[Node, ...]] | None:
    """Return the settings of a region of autocast or no_grad, its module, and its arguments; None for other nodes."""
    from torch.fx import Node

    if not str(node.target).startswith("wrap_with_"):
        return None
    position = next(number for number, argument in enumerate(node.args) if isinstance(argument, Node))
    return node.args[:position], node.args[position], node.args[position + 1 :]


def _unwrapped(node: Node) -> Node:
    """Return the call inside a wrapper, as a node outside the graph; other nodes are unchanged.

    The partitioner gives wrappers of random operators neither values nor positions; their users have the positions.
    """
    import torch
    from torch.fx import Graph
    from torch.fx.node import map_arg

    position = _WRAPPERS.get(op_name(node.target).removeprefix("higher_order."))
    if position is None:
        return node
    graph, inputs = Graph(), {}
    for source in node.all_input_nodes:
        inputs[source] = graph.placeholder(source.name)
        inputs[source].meta = source.meta
    target, *args = node.args[position:]
    call = graph.call_function(target, *map_arg((tuple(args), node.kwargs), inputs.__getitem__))
    with private.FakeTensorMode(), torch.no_grad():
        args, kwargs = fakes_of(call)
        result = target(*args, **kwargs)
    located = next((user for user in node.users if user.meta.get("stack_trace")), node)
    call.meta = {**located.meta, "val": result}
    return call


def fakes_of(node: Node) -> tuple[Any, Any]:
    """Positional and named arguments of a node, with fake tensors of the active mode for those of the graph."""
    import torch

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    return private.tree_map_only(torch.Tensor, fake, values_of(node))


def op_name(target: Any) -> str:
    """Name the target of a node: "aten.add.Tensor", "higher_order.cond"; plain functions are "python.getitem"."""
    if isinstance(target, private.OpOverload):
        return str(target)
    if isinstance(target, private.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return f"python.{target.__name__}"


def base_name(op: str) -> str:
    """Cut overload and in-place underscore off an operator name."""
    name = ".".join(op.split(".")[:2])
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def symbols(values: Iterable[Any]) -> frozenset[str]:
    """Names of the unknown sizes in the shapes of tensors and in symbolic numbers."""
    import torch

    numbers = [size for value in values for size in (value.shape if _is_tensor(value) else [value])]
    return frozenset(
        str(symbol)
        for number in numbers
        if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool))
        for symbol in number.node.expr.free_symbols
    )


def values_of(node: Node) -> tuple[Any, Any]:
    """Positional and named arguments of a node, with the fake values of the nodes among them."""
    from torch.fx.node import map_arg

    return map_arg((node.args, node.kwargs), lambda argument: argument.meta.get("val"))


def _arguments(node: Node) -> dict[str, Any]:
    schema = schema_of(node)
    if schema is None:
        return {}
    args, kwargs = values_of(node)
    named = {argument.name: argument.default_value for argument in schema.arguments}
    named |= dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    return {
        name: private.tree_map(lambda leaf: _spec(leaf) if _is_tensor(leaf) else leaf, value)
        for name, value in named.items()
    }


def _returns_tensor(node: Node) -> bool:
    schema = schema_of(node)
    return schema is not None and any("Tensor" in str(entry.type) for entry in schema.returns)


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _spec(tensor: torch.Tensor) -> TensorSpec:
    # Of inputs that share memory, torch gives known sizes as symbolic numbers without a symbol.
    shape = tuple(-1 if symbols([size]) else int(size) for size in tensor.shape)
    return TensorSpec(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."))


_FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+)')
_NOISE = re.compile(r"slice\([^)]*\)\.?|@\d+|^L\['(?:self|fn)'\]\.?|^L__self__\.?")
"""Left in paths by tracing: slices of a ModuleList, numbers of repeated calls, the root's name in Dynamo."""
_LOCAL = re.compile(r"^L\['(\w+)'\]")
"""Dynamo's name of a module that is a local variable."""


def module_path(node: Node) -> str | None:
    """Return the innermost module of a node, like "model.layers.3.mlp"; "" is the top, None unknown."""
    # Nodes of a backward graph remember the modules of the forward that they belong to.
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0]
    return _LOCAL.sub(r"\1", _NOISE.sub("", path)).strip(".")


def source_line(node: Node) -> str | None:
    """Return "file:line" of the innermost frame of the user, None where the graph does not know it."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return next((f"{_cut(file, Path.cwd())}:{line}" for file, line in reversed(frames) if is_users(file)), None)


def merge_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Join paths that differ in one number, in order of appearance: layers 0 to 31 become "0-31"."""
    groups: dict[tuple[str, ...], set[int]] = {}
    for path in paths:
        parts = path.split(".")
        numbers = [index for index, part in enumerate(parts) if part.isdigit()]
        if numbers:
            first = numbers[0]
            key = (".".join(parts[:first]), ".".join(parts[first + 1 :]))
            groups.setdefault(key, set()).add(int(parts[first]))
        else:
            groups.setdefault((path,), set())
    return tuple(
        key[0] if not numbers else ".".join(part for part in (key[0], _ranges(sorted(numbers)), key[1]) if part)
        for key, numbers in groups.items()
    )


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@functools.cache
def _cut(file: str, working_folder: Path) -> str:
    path = Path(file)
    for folder in (*_package_folders(), working_folder):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return file


@functools.cache
def _package_folders() -> tuple[Path, ...]:
    return Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib"))


@functools.cache
def is_users(file: str) -> bool:
    """Return whether a file is neither torch's nor of the part of this package that calls traced functions."""
    import torch

    folders = Path(torch.__file__).parent, Path(__file__).resolve().parents[2] / "tracing"
    return not any(map(Path(file).is_relative_to, folders))
