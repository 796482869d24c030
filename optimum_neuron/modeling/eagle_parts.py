"""What an EAGLE draft is made of, by its generation, from the tensors of its folder."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

from ..base.model_facts import facts_of
from ..errors import ConfigError, ModelError, WeightsError
from ..files.plain_json import read_object
from ..models import (
    EAGLE_WEIGHT_MAP,
    FIRST_EAGLE_WEIGHT_MAP,
    LAYER_STATES,
    EagleNetwork,
    FirstEagleNetwork,
    build_decoder,
    eagle_gap,
    eagle_layers,
    eagle_sizes,
)
from ..sources import require_sizes, unreadable_errors
from ..weights import Checkpoint, MappedFile, StateDict, TensorSource
from .decoder import NeuronDecoderModel
from .draft_program import require_results

_EMBEDDING, _HEAD, _SHIFTS, _MASK = "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"
_FUSION, _BIAS, _INPUT_NORM = "fc.weight", "fc.bias", "layers.0.input_layernorm.weight"
_NAMED = "eagle_aux_hidden_state_layer_ids"
_DECODER, _LAYERS, _INSIDE = "decoder.norm.", "layers.", "model."


@dataclasses.dataclass(frozen=True)
class EagleParts:
    """A draft without a program."""

    name: str
    reads: tuple[str, ...]
    """Hidden states of the decoder."""
    network: EagleNetwork | FirstEagleNetwork
    """Its layer, without weights."""
    weight_map: Mapping[str, tuple[str, ...]]
    """Tensors of each parameter."""
    tensors: TensorSource
    token_of: list[int]
    """The decoder's token for each that the draft can guess."""


def parts_of(tensors: TensorSource, config: LlamaConfig, model: NeuronDecoderModel) -> EagleParts:
    """Return the parts of a draft: of the first generation if its layer is `layers.0`, else of the third.

    Args:
        tensors: its checkpoint.
        config: its configuration.
        model: the decoder.
    """
    if not is_first(tensors):
        return _third(tensors, config, model)
    named = {name.removeprefix(_INSIDE): tensors.join([name])[0] for name in tensors.specs}
    return _first(StateDict(tensors=named, origin=tensors.origin), config, model)


def hidden_layers_of(folder: str | Path, num_layers: int) -> tuple[int, ...] | None:
    """Return `hidden_state_layers` of an export that a draft needs; None: those of `speculation=True`.

    Args:
        folder: folder of the draft.
        num_layers: layers of the decoder.

    Raises:
        WeightsError: the folder has no safetensors, or no EAGLE draft in them.
    """
    tensors = safetensors_of(folder)
    if _FUSION not in {name.removeprefix(_INSIDE) for name in tensors.specs}:
        message = f"{folder} is no EAGLE draft: it has no {_FUSION}, which reads hidden states."
        raise WeightsError(message, hint="Pass the folder of an EAGLE draft.", path=str(folder), missing=_FUSION)
    if is_first(tensors):
        return (num_layers,)
    return _named_layers(read_object(Path(folder) / "config.json")) or None


def safetensors_of(folder: str | Path) -> Checkpoint:
    """Return the tensors of a draft's folder."""
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        message = f"{folder} has no safetensors weights."
        hint = "Pass the folder of an EAGLE draft; save pytorch_model.bin as model.safetensors first."
        raise WeightsError(message, hint=hint, path=str(folder))
    return Checkpoint([MappedFile.open(path) for path in files], str(folder))


def is_first(tensors: TensorSource) -> bool:
    """Return whether tensors are those of a draft of the first generation."""
    return any(name.removeprefix(_INSIDE).startswith(_LAYERS) for name in tensors.specs)


def _third(tensors: TensorSource, config: LlamaConfig, model: NeuronDecoderModel) -> EagleParts:
    """The parts of an EAGLE-3 draft, with the decoder's embedding if it has none."""
    reads = tuple(f"{LAYER_STATES}{layer}" for layer in _layers_of(config, model))
    require_results(model, reads)
    _require_known(tensors, {_SHIFTS, _MASK, *_names(EAGLE_WEIGHT_MAP)}, "EAGLE-3")
    num_guessed = facts_of(config).draft_vocab_size or config.vocab_size
    token_of = _tokens(tensors, num_guessed, config.vocab_size)
    sizes, width = eagle_sizes(config), model.config.get_text_config(decoder=True).hidden_size
    is_residual_normed = bool(facts_of(config).norm_before_residual)
    with torch.device("meta"):
        network = EagleNetwork(
            sizes, target_width=width, num_draft_tokens=num_guessed, is_residual_normed=is_residual_normed
        )
    completed = _completed(tensors, {_EMBEDDING: _of_decoder(model, "embed.weight")})
    return EagleParts("EAGLE-3 draft", reads, network, EAGLE_WEIGHT_MAP, completed, token_of)


def _first(tensors: TensorSource, config: LlamaConfig, model: NeuronDecoderModel) -> EagleParts:
    """The parts of an EAGLE draft, with the decoder's last norm, and its head and embedding if it has none."""
    text = model.config.get_text_config(decoder=True)
    reads = (f"{LAYER_STATES}{text.num_hidden_layers}",)
    require_results(model, reads)
    decoder = build_decoder(
        text, dtype=model.neuron_config.torch_dtype, family=model.neuron_config.family, num_tokens=model.sequence_length
    )
    norm = copy.deepcopy(decoder.module.head.norm)
    own = {f"{_DECODER}{name}": _of_decoder(model, f"head.norm.{name}") for name, _ in norm.named_parameters()}
    own |= {_EMBEDDING: _of_decoder(model, "embed.weight"), _HEAD: _of_decoder(model, "head.weight", "embed.weight")}
    _require_known(tensors, {*_names(FIRST_EAGLE_WEIGHT_MAP)} - set(own) | {_EMBEDDING, _HEAD}, "EAGLE")
    sizes, has_bias, has_input_norm = eagle_sizes(config), _BIAS in tensors.specs, _INPUT_NORM in tensors.specs
    with torch.device("meta"):
        network = FirstEagleNetwork(sizes, decoder_norm=norm, has_bias=has_bias, has_input_norm=has_input_norm)
    names = [name for name, _ in network.named_parameters()]
    weight_map = {name: FIRST_EAGLE_WEIGHT_MAP[name] for name in names}
    token_of = list(range(config.vocab_size))
    return EagleParts("EAGLE draft", reads, network, weight_map, _completed(tensors, own), token_of)


def _names(weight_map: Mapping[str, tuple[str, ...]]) -> set[str]:
    return {name for names in weight_map.values() for name in names}


def _require_known(tensors: TensorSource, known: set[str], kind: str) -> None:
    if unknown := sorted(set(tensors.specs) - known):
        message = f"{tensors.origin} has tensors that no {kind} draft has: {', '.join(unknown)}."
        raise WeightsError(message, hint=f"Known are {', '.join(sorted(known))}.", unknown=unknown)


def _of_decoder(model: NeuronDecoderModel, *names: str) -> torch.Tensor:
    """The first of these weights that the decoder has: tied ones have one name.

    Cores that share the model have rows of the vocabulary, one after the other, of which the last are padding.
    """
    assert model.prepared.bound is not None, "a loaded model has weights"
    weights, group_size = model.prepared.bound.weights.tensors, model.neuron_config.tensor_parallel_size
    for name in (f"model.{name}" for name in names):
        if name in weights:
            return weights[name]
        if f"{name}@0" in weights:
            rows = [weights[f"{name}@{rank}"] for rank in range(group_size)]
            return torch.cat(rows)[: model.config.get_text_config(decoder=True).vocab_size]
    raise AssertionError(f"every decoder has {names[0]}")


def _completed(tensors: TensorSource, own: Mapping[str, torch.Tensor]) -> TensorSource:
    """A checkpoint with the decoder's tensors that it lacks."""
    if own.keys() <= tensors.specs.keys():
        return tensors
    given = {name: tensors.join([name])[0] for name in tensors.specs}
    return StateDict(tensors={**own, **given}, origin=tensors.origin)


def read_config(folder: Path, model: NeuronDecoderModel) -> LlamaConfig:
    """Read the configuration of a draft, and check that it fits the decoder."""
    path = folder / "config.json"
    data = read_object(path)
    require_sizes(data, path)
    try:
        config = LlamaConfig.from_dict(data)
    except unreadable_errors() as error:
        message = f"transformers cannot read the draft's configuration {path} ({type(error).__name__}: {error})."
        raise ModelError(message, hint="Pass the folder of an EAGLE draft.", file=str(path)) from error
    if gap := eagle_gap(config):
        message = f"This EAGLE draft is not supported: {gap}."
        raise ConfigError(message, hint="Use a draft with one layer of Llama's form.", option=gap)
    text = model.config.get_text_config(decoder=True)
    width = facts_of(config).target_hidden_size or config.hidden_size
    for name, own, expected in (
        ("vocab_size", config.vocab_size, text.vocab_size),
        ("hidden_size", width, text.hidden_size),
    ):
        if own != expected:
            message = f"The draft is for a decoder with {name}={own}, and the model has {expected}."
            hint = "Pass the draft that was trained on this model."
            raise ConfigError(message, hint=hint, option=name, value=own, expected=expected)
    return config


def _layers_of(config: LlamaConfig, model: NeuronDecoderModel) -> tuple[int, ...]:
    """Layers of the decoder whose inputs an EAGLE-3 draft reads."""
    named = _named_layers(config.to_dict())
    return named or eagle_layers(model.config.get_text_config(decoder=True).num_hidden_layers)


def _named_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Layers that a configuration names."""
    layers = (config.get("eagle_config") or {}).get(_NAMED) or config.get(_NAMED)
    return tuple(layers or ())


def _tokens(tensors: TensorSource, num_guessed: int, num_tokens: int) -> list[int]:
    """Return the decoder's token for each token that the draft can guess."""
    sizes = {_SHIFTS: num_guessed, _MASK: num_tokens}
    shapes = {name: tensors.specs[name].shape for name in sizes if name in tensors.specs}
    problems = [f"{name} has shape {list(shapes[name])}" for name in shapes if shapes[name] != (sizes[name],)]
    ids = torch.arange(num_guessed)
    if _SHIFTS in shapes and not problems:
        ids = ids + tensors.join([_SHIFTS])[0]
    elif num_guessed != num_tokens and not problems:
        problems.append(f"{_SHIFTS} is missing, which gives the draft's tokens their IDs")
    if int(ids.min()) < 0 or int(ids.max()) >= num_tokens:
        problems.append(f"{_SHIFTS} names tokens outside of the vocabulary")
    if problems:
        message = f"{tensors.origin} does not fit a draft of {num_guessed} tokens, and a decoder of {num_tokens} "
        hint = "Pass the whole checkpoint of a draft that was trained on this model."
        raise WeightsError(f"{message}({'; '.join(problems)}).", hint=hint, problems=problems)
    return ids.tolist()
