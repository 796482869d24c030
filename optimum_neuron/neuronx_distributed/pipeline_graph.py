"""Cuts a model into stages, by the graph of torch.fx: a stage ends behind a module that is named.

Values that later stages need pass through the stages between. What depends on inputs of the model alone, such as masks
and positions, is computed in each stage that needs it, and so are shapes of values that a stage receives.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..base.foreign import name_of
from ..errors import ConfigError, ModelError
from . import convolution, embedding, layers, lora_layers, loss_functions, mappings, qkv_linear
from .transformers_graphs import as_nodes

Leaf = type[nn.Module] | str
_PARALLEL = (
    layers.BaseParallelLinear,
    convolution.BaseParallelConv,
    embedding.ParallelEmbedding,
    qkv_linear.GQAQKVColumnParallelLinear,
    lora_layers.LoraLayer,
)
_OF_SHAPE = {"size", "dim", "numel"}
_ATTRIBUTES = {"shape", "dtype", "device", "ndim"}
_RANDOM = ("rand", "dropout", "bernoulli", "normal", "multinomial")


class Tracer(torch.fx.Tracer):
    """Traces a model of some inputs; other arguments keep their defaults.

    Args:
        input_names: names of the inputs.
        leaves: classes, or their names, whose modules are nodes.
        functions: functions that are nodes.
        modules: Python modules whose functions are nodes.
    """

    def __init__(
        self,
        input_names: Sequence[str],
        leaves: Sequence[Leaf],
        functions: Sequence[Callable[..., Any]] = (),
        modules: Sequence[ModuleType] = (),
    ) -> None:
        super().__init__((*modules, loss_functions, mappings), tuple(functions), param_shapes_constant=True)
        self._inputs = list(input_names)
        self._proxies: list[torch.fx.Proxy] = []
        self._names = {leaf for leaf in leaves if isinstance(leaf, str)}
        self._classes: tuple[type[nn.Module], ...] = (
            *_PARALLEL,
            *(leaf for leaf in leaves if not isinstance(leaf, str)),
        )

    def trace(self, root: Any, concrete_args: Any = None) -> torch.fx.Graph:
        """Return the graph of a model."""
        with as_nodes(self, root, lambda: self._proxies[0]):
            return super().trace(root, concrete_args)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one node."""
        is_chosen = isinstance(m, self._classes) or type(m).__name__ in self._names
        return is_chosen or super().is_leaf_module(m, module_qualified_name)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return a function of the inputs, and a proxy for each."""
        known = inspect.signature(root_fn).parameters
        unknown = [name for name in self._inputs if name not in known]
        if unknown:
            message = f"The model has no inputs {', '.join(unknown)}."
            raise ConfigError(message, hint="Name arguments of its forward as input_names.", names=unknown)
        proxies = [self.create_proxy("placeholder", name, (), {}) for name in self._inputs]
        self._proxies = proxies

        def called(root: nn.Module, *values: Any) -> Any:
            return root_fn(root, **dict(zip(self._inputs, values, strict=True)))

        return called, [self.root, *proxies]


class GraphStage(nn.Module):
    """A stage: values of the stage before in, values for the next one or the outputs of the model out.

    Args:
        graph: the stage's part of the model, with the names of the model.
        received: names of the values of the stage before.
        inputs: names of the inputs of the model that it uses.
    """

    def __init__(self, graph: nn.Module, received: Sequence[str], inputs: Sequence[str]) -> None:
        super().__init__()
        self.graph, self.received, self.inputs = graph, list(received), list(inputs)
        self.loss_spec: Any = None
        """Where the last stage's output has the loss, which is then all that it returns."""

    def forward(self, *values: torch.Tensor, **inputs: Any) -> Any:
        """Run the stage; the first one ignores `values`, which only say how large a batch is."""
        given = tuple(map(_with_plain_gradient, values)) if self.received else ()
        output = self.graph(*given, *(inputs[name] for name in self.inputs))
        if self.loss_spec is not None:
            return loss_in(output, self.loss_spec).reshape(1)
        return _in_one_piece(output)


def _with_plain_gradient(value: torch.Tensor) -> torch.Tensor:
    """A received value whose gradient is sent without gaps in memory."""
    return mappings.apply(value, mappings.same, torch.Tensor.contiguous) if value.requires_grad else value


def _in_one_piece(output: Any) -> Any:
    """Values without gaps in memory: receivers make tensors of the same layout, and collectives allow no other."""
    if isinstance(output, tuple):
        return tuple(_in_one_piece(value) for value in output)
    return output.contiguous() if isinstance(output, torch.Tensor) else output


def loss_in(output: Any, spec: Any) -> torch.Tensor:
    """Return the loss of an output.

    Args:
        output: a tensor, or a tuple or dict with it.
        spec: True, or a tuple or dict with True in its place.
    """
    places = {True: [None], False: []}[spec] if isinstance(spec, bool) else _places(spec)
    if len(places) != 1:
        message = f"output_loss_value_spec={spec!r} names {len(places)} losses."
        raise ConfigError(message, hint="Put True in one place.", option="output_loss_value_spec")
    if isinstance(output, dict) and not isinstance(spec, dict):  # transformers counts what an output has
        output = [value for value in output.values() if value is not None]
    loss = output if places[0] is None else output[places[0]]
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        message = f"output_loss_value_spec={spec!r} does not name one number of the output."
        raise ConfigError(message, hint="Put True where the loss is.", option="output_loss_value_spec")
    return loss


def _places(spec: Any) -> list[Any]:
    pairs = spec.items() if isinstance(spec, dict) else enumerate(spec)
    return [place for place, is_loss in pairs if is_loss]


def equal_cuts(module: nn.Module, kind: type[nn.Module], count: int) -> list[str]:
    """Return the layers behind which to cut a model into equal stages; later stages have the rest.

    Args:
        module: the model.
        kind: class of its layers.
        count: number of stages.
    """
    names = [name for name, one in module.named_modules() if isinstance(one, kind)]
    if len(names) < count:
        message = f"{len(names)} modules of {kind.__name__} cannot be divided into {count} stages."
        raise ConfigError(message, hint="Use fewer ranks or stages.", layers=names, stages=count)
    share, rest = divmod(len(names), count)
    ends = [share * stage + max(0, rest - (count - stage)) for stage in range(1, count)]
    return [names[end - 1] for end in ends]


def stages_of(module: nn.Module, tracer: Tracer, cuts: Sequence[str]) -> list[GraphStage]:
    """Return the stages of a model, which share its modules.

    Args:
        module: the model.
        tracer: traces it.
        cuts: names of the modules behind which a stage ends.

    Raises:
        ModelError: torch.fx cannot trace the model.
        ConfigError: the model does not call a module of `cuts` exactly once.
    """
    try:
        graph = tracer.trace(module)
    except (TypeError, NameError, torch.fx.proxy.TraceError) as error:
        hint = "Name modules with such code in leaf_module_cls, and functions in autowrap_functions."
        message = f"torch.fx cannot trace {type(module).__name__}: {error}"
        raise ModelError(message, hint=hint, model=type(module).__name__) from error
    called = [node.target for node in graph.nodes if node.op == "call_module"]
    wrong = [cut for cut in cuts if called.count(cut) != 1]
    if wrong or len(set(cuts)) != len(cuts):
        message = f"The model does not call {', '.join(wrong or cuts)} exactly once."
        hint = "Name modules which are leaves of the graph, such as transformer layers."
        raise ConfigError(message, hint=hint, cuts=list(cuts), modules=called)
    return _Cut(module, graph, set(cuts)).stages()


class _Cut:
    """The graph of a model, and where each node is."""

    def __init__(self, module: nn.Module, graph: torch.fx.Graph, cuts: set[str]) -> None:
        self._module, self._nodes = module, list(graph.nodes)
        self._home: dict[torch.fx.Node, int] = {}
        self._again: set[torch.fx.Node] = set()
        stage = 0
        for node in self._nodes:
            # An item of a tuple stays with it: stages send tensors alone.
            is_item = node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node)
            self._home[node] = self._home[node.args[0]] if is_item else stage
            if self._is_computed_again(node):
                self._again.add(node)
            if node.op == "call_module" and node.target in cuts:
                stage += 1
        self._count = stage + 1

    def _is_computed_again(self, node: torch.fx.Node) -> bool:
        """Whether each stage that needs a value computes it: attributes, shapes, and what depends on inputs alone.

        So are results of leaves without parameters, such as the pair of rotary embeddings: stages send tensors alone.
        """
        if node.op == "get_attr":
            return True
        if node.op == "call_module":
            leaf = self._module.get_submodule(str(node.target))
            is_random = any(word in type(leaf).__name__.lower() for word in _RANDOM)
            return not is_random and next(leaf.parameters(), None) is None
        if node.op not in ("call_function", "call_method"):
            return False
        name = node.target if isinstance(node.target, str) else name_of(node.target)
        if name in _OF_SHAPE or (node.target is getattr and node.args[1] in _ATTRIBUTES):
            return True
        if any(word in name for word in _RANDOM):
            return False
        return all(source.op == "placeholder" or source in self._again for source in node.all_input_nodes)

    def _needs(self, node: torch.fx.Node, stage: int) -> set[torch.fx.Node]:
        """Values of earlier stages that a node of a stage needs."""
        found: set[torch.fx.Node] = set()
        for source in node.all_input_nodes:
            if source.op == "placeholder":
                continue
            if source in self._again:
                found |= self._needs(source, stage)
            elif self._home[source] < stage:
                found.add(source)
        return found

    def stages(self) -> list[GraphStage]:
        """Return all stages."""
        sent: set[torch.fx.Node] = set()
        made: list[GraphStage] = []
        for stage in reversed(range(self._count)):
            own = [node for node in self._nodes if self._home[node] == stage and node not in self._again]
            needed = set().union(*(self._needs(node, stage) for node in own if node.op != "placeholder"))
            received = needed | {node for node in sent if self._home[node] < stage}
            made.append(self._stage(stage, own, self._ordered(received), self._ordered(sent)))
            sent = received
        return made[::-1]

    def _ordered(self, nodes: set[torch.fx.Node]) -> list[torch.fx.Node]:
        return [node for node in self._nodes if node in nodes]

    def _stage(
        self, stage: int, own: list[torch.fx.Node], received: list[torch.fx.Node], sent: list[torch.fx.Node]
    ) -> GraphStage:
        graph = torch.fx.Graph()
        held = {node: graph.placeholder(node.name) for node in received}
        used = self._inputs_of(own)
        held |= {node: graph.placeholder(str(node.target)) for node in used}

        def value_of(node: torch.fx.Node) -> torch.fx.Node:
            if node not in held:
                held[node] = graph.node_copy(node, value_of)
            return held[node]

        for node in own:
            if node.op == "output" and stage == self._count - 1:
                graph.output(torch.fx.map_arg(node.args[0], value_of))
            elif node.op not in ("placeholder", "output"):
                value_of(node)
        if stage < self._count - 1:
            graph.output(tuple(value_of(node) for node in sent))
        part = torch.fx.GraphModule(self._module, graph)
        return GraphStage(part, [node.name for node in received], [str(node.target) for node in used])

    def _inputs_of(self, own: list[torch.fx.Node]) -> list[torch.fx.Node]:
        found: set[torch.fx.Node] = set()
        rest = [node for node in own if node.op != "placeholder"]
        seen = set(rest)
        while rest:
            for source in rest.pop().all_input_nodes:
                if source.op == "placeholder":
                    found.add(source)
                elif source in self._again and source not in seen:
                    seen.add(source)
                    rest.append(source)
        return self._ordered(found)
