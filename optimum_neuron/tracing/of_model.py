"""A loaded encoder-style model as a ScriptModule, as Optimum Neuron has it under `model.model`.

The module calls the program that is loaded already. It can be saved with `torch.jit.save`; what is loaded from the file
has a program of its own, as any traced model.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..artifact import read_artifact
from ..compiler import write_program
from ..compiler.neff import neff_from_bytes
from . import ops
from .artifact import KIND
from .contexts import PLACEMENT
from .entry import Outputs
from .neuron_model import NeuronModel
from .script import nested, neuron_models, scripted, session_of
from .session import Replica, Session
from .structure import Flat

if TYPE_CHECKING:
    from ..artifact import Artifact
    from ..compiler import Graph
    from ..modeling import NeuronTracedModel


@dataclasses.dataclass(frozen=True)
class _Call:
    """Inputs and outputs of a program, as `nested` reads them of an entry."""

    inputs: Flat
    outputs: Outputs
    parameter_names: tuple[str, ...]


class _ModelSession(Session):
    """Runs the program of a model while the model lives, and then one of its own."""

    def __init__(self, artifact: Artifact, weights: Sequence[torch.Tensor], owner: NeuronTracedModel) -> None:
        super().__init__(artifact, weights, placement=PLACEMENT.get())
        self._owner = weakref.ref(owner)
        self._prepared: Any = None

    def load(self, on_progress: Callable[[object], None] = lambda step: None) -> list[Replica]:
        """Return the programs of the model."""
        if (owner := self._owner()) is None:
            return super().load(on_progress)
        if self._prepared is not owner.prepared:
            bound = owner.prepared.bound
            assert bound is not None, "the model is loaded"
            tensors = (*bound.weights.tensors.values(), *self.program.constants.values())
            on_core = frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors)
            self._prepared = owner.prepared
            self._replicas = [Replica(loaded=one, state=[], on_core=on_core) for one in owner.copies.loaded]
        return self._replicas

    def unload(self) -> None:
        """Unload a program of its own; that of a model belongs to the model."""
        if self._owner() is None:
            super().unload()

    def close(self) -> None:
        """Close the model too."""
        if (owner := self._owner()) is not None:
            owner.close()
        super().close()

    def replace_weights(self, weights: Sequence[torch.Tensor]) -> None:
        """Replace the weights of the model too."""
        if (owner := self._owner()) is not None:
            owner.replace_weights(dict(zip(self.metadata["weights"], weights, strict=True)))
        super().replace_weights(weights)


def script_of(model: NeuronTracedModel) -> torch.jit.ScriptModule:
    """Return the program of a loaded model as a ScriptModule.

    It takes tensors of the largest compiled shapes in the order of `model.signature`, and returns a tuple. With
    `inline_weights_to_neff=False`, `replace_weights` changes its weights, which are the model's.

    Args:
        model: an encoder-style model on one core.
    """
    prepared = model.prepared
    bound, artifact = prepared.bound, prepared.artifact
    assert bound is not None, "the model is loaded"
    graphs = artifact.program.graphs
    sizes = {name: sum(math.prod(spec.shape) for spec in graph.inputs.values()) for name, graph in graphs.items()}
    entries = sorted(graphs, key=lambda name: -sizes[name])
    sources = _sources({name: artifact.weight_sources[name] for name in artifact.program.weights})
    metadata = {
        "kind": KIND,
        "entries": entries,
        "optlevel": prepared.config.optlevel,
        "auto_cast": prepared.config.auto_cast,
        "weight_sources": sources,
        "weights": [names[0] for names in sources.values()],
        "states": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.neff"
        name = artifact.neff.document.name
        write_program(path, artifact.program, name=name, target=prepared.target.value, metadata=metadata)
        content = path.read_bytes()
    tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    weights = [bound.weights.tensors[name] for name in sources]
    neff = neff_from_bytes(memoryview(tensor.numpy()), ops.ORIGIN)
    ops.keep_session(tensor, _ModelSession(read_artifact(neff), weights, model))
    call: Any = _call(model, entries[0])  # it has what `nested` reads of an entry
    return nested(scripted(NeuronModel(tensor, weights, lazy=False)), call)


def _sources(weight_sources: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The name of each weight in a state dict; weights that are joined of several tensors keep their own."""
    named = {name: list(group) if len(group) == 1 else [name] for name, group in weight_sources.items()}
    return dict(sorted(named.items()))


def _call(model: NeuronTracedModel, name: str) -> _Call:
    program = model.prepared.artifact.program
    graph = program.graphs[name]
    tensors = tuple(torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for s in graph.inputs.values())
    names = tuple(graph.inputs)
    specs = tuple(program.value_spec(graph, value) for value in graph.outputs.values())
    return _Call(
        inputs=Flat(skeleton=tuple(range(len(tensors))), tensors=tensors, names=names),
        outputs=Outputs(skeleton=tuple(range(len(specs))), specs=specs),
        parameter_names=names,
    )


def inputs_of(script: torch.jit.ScriptModule) -> dict[str, torch.Tensor]:
    """Return zeros for each input of a traced model, in the order of its call.

    Args:
        script: result of `script_of` or of `trace`, or of `torch.jit.load` of one.

    Raises:
        ConfigError: it is no traced model.
    """
    inputs = _graph_of(script).inputs
    return {name: torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for name, spec in inputs.items()}


def outputs_of(script: torch.jit.ScriptModule) -> list[str]:
    """Return the names of the outputs of a traced model, in the order of its result.

    Args:
        script: as for `inputs_of`.

    Raises:
        ConfigError: it is no traced model.
    """
    return list(_graph_of(script).outputs)


def _graph_of(script: torch.jit.ScriptModule) -> Graph:
    session = session_of(neuron_models(script)[0])
    return session.program.graphs[session.metadata["entries"][0]]
