"""`CompiledProgram`: the graphs of a loaded model as functions of tensors.

    logits = model.model(input_ids, attention_mask, token_type_ids)["logits"]

It does not depend on padding, buckets, or generation: tensors have the shapes and dtypes that a graph was compiled for.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers.utils import ModelOutput

from ..base.core import TensorSpec
from ..compiler import tensor_spec
from ..errors import ConfigError, ShapeError, invalid_choice
from ..kinds import unflatten
from ..runtime import LoadedProgram, State
from .checks import on_host


class CompiledProgram:
    """A loaded program; calling it runs the graph that takes the inputs.

    Keys and values that a decoder writes stay in the KV cache until `reset`; until then, it keeps its host code.
    """

    def __init__(self, loaded: LoadedProgram) -> None:
        self._loaded = loaded
        self._state: State | None = None

    def __repr__(self) -> str:
        return f"CompiledProgram({', '.join(self._loaded.program.graphs)})"

    @property
    def graphs(self) -> Mapping[str, Mapping[str, TensorSpec]]:
        """Names of the graphs, each with its inputs in order."""
        return {name: dict(graph.inputs) for name, graph in self._loaded.program.graphs.items()}

    def __call__(self, *tensors: torch.Tensor, graph: str | None = None) -> ModelOutput:
        """Run a graph.

        Args:
            *tensors: inputs in the order of the graph.
            graph: name of the graph; needed only if several take these shapes.

        Returns:
            The results, by name and by position.
        """
        tensors, _ = on_host(tensors, {})
        if graph is not None and graph not in self.graphs:
            raise invalid_choice("graph", graph, self.graphs)
        name = graph or self._fitting(tensors)
        if self._state is None and self._loaded.program.states:
            self._state = self._loaded.take_state()
        return ModelOutput(**unflatten(self._loaded.run(name, tensors, self._state or ())))

    def reset(self) -> None:
        """Forget the keys and values of earlier calls, and free their memory."""
        if self._state is not None:
            self._loaded.give_back(self._state)
            self._state = None

    def _fitting(self, tensors: tuple[torch.Tensor, ...]) -> str:
        graphs = self.graphs
        if len(graphs) == 1:
            return next(iter(graphs))  # running it names the input that differs
        specs = [tensor_spec(tensor) for tensor in tensors]
        fitting = [name for name, inputs in graphs.items() if list(inputs.values()) == specs]
        if not fitting:
            taken = {name: ", ".join(f"{k} {spec}" for k, spec in inputs.items()) for name, inputs in graphs.items()}
            listed = "; ".join(f"{name}({inputs})" for name, inputs in taken.items())
            hint = f"Pass the tensors of one of these graphs: {listed}."
            raise ShapeError(f"No graph takes ({', '.join(map(str, specs))}).", hint=hint, graphs=list(graphs))
        if len(fitting) > 1:
            message = f"The graphs {' and '.join(fitting)} take tensors of these shapes."
            raise ConfigError(message, hint=f"Choose one, for example graph={fitting[-1]!r}.", graphs=fitting)
        return fitting[0]
