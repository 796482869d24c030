"""Programs of drafts that read hidden states of a decoder: compiled for its target when they are loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..compiler import Recapture, compile_graphs
from ..compiler.lower import lower
from ..errors import ConfigError
from ..hardware import resolve_instance
from ..runtime import LoadedProgram, load_program
from ..weights import Shards, TensorSource, bind_weights
from .decoder import NeuronDecoderModel


def load_draft(
    captures: Sequence[Recapture],
    sources: Mapping[str, tuple[str, ...]],
    tensors: TensorSource,
    model: NeuronDecoderModel,
    name: str,
) -> LoadedProgram:
    """Compile a draft for the target of a decoder, and load it on a separate core or a shared one.

    Args:
        captures: one function for each graph.
        sources: tensors that make each weight.
        tensors: the checkpoint.
        model: the decoder.
        name: name of the draft, for messages.
    """
    config, target = model.neuron_config, model.prepared.target.value
    program = compile_graphs(
        captures, target=target, auto_cast=config.auto_cast, auto_cast_type=config.auto_cast_type
    ).program
    weights = bind_weights(program.weights, sources, tensors, Shards())
    return load_program(
        program,
        weights.tensors,
        lower(program, optlevel=config.optlevel),
        instance=resolve_instance(config.instance_type).value,
        target=target,
        model_name=f"{model.prepared.source.name}, {name}",
        auto_cast=config.auto_cast,
    )


def require_results(model: NeuronDecoderModel, names: Sequence[str]) -> None:
    """Check that a decoder returns the hidden states that a draft reads."""
    outputs = model._signature["decode"].outputs
    missing = [name for name in names if name not in outputs]
    if not missing:
        return
    if not model.neuron_config.speculation:
        message = "The model was exported without hidden states, which draft heads read."
        hint = "Export with speculation=True."
    elif "last_hidden_state" not in outputs:
        message = f"The {model.prepared.family} decoder returns no hidden states on this number of cores."
        hint = "Use a model of an optimized family on one core, or another draft."
    else:
        layers = ",".join(name.rpartition(".")[2] for name in names)
        message = f"The draft reads {', '.join(names)}, and the model does not return {', '.join(missing)}."
        hint = f"Export with hidden_state_layers={layers}."
    raise ConfigError(message, hint=hint, option="speculation", family=model.prepared.family, missing=missing)
