"""EAGLE-3 drafts: one layer that reads hidden states of three layers of the decoder, and guesses a chain of tokens.

A folder has a `config.json` and safetensors with the published names: `fc.weight`, `midlayer.*`, `norm.weight`,
`lm_head.weight`, and `d2t` where the draft guesses from a part of the vocabulary. Its graphs have their own cache.

    draft = EagleDraft.from_pretrained("eagle3-smollm2", model)
    model.generate(**inputs, assistant_model=draft)

Shape legend: C columns, N tokens with new hidden states, F the decoder's hidden width times 3, D hidden width, V
vocabulary.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from transformers import LlamaConfig

from ..base.core import TensorSpec
from ..base.transformers_types import PreTrainedConfig
from ..compiler import Recapture, capture
from ..engine import Draft
from ..errors import ConfigError, ModelError, WeightsError
from ..files.plain_json import read_object
from ..models import (
    EAGLE_WEIGHT_MAP,
    LAYER_STATES,
    EagleEntry,
    EagleNetwork,
    eagle_gap,
    eagle_layers,
    eagle_sizes,
)
from ..runtime import LoadedProgram, State
from ..sources import require_sizes
from ..weights import Checkpoint, MappedFile, StateDict, TensorSource
from .decoder import NeuronDecoderModel
from .draft_program import load_draft, require_results

_READ, _NEXT, _NETWORK = "read", "next", "network."
_CHUNK = 64
"""Tokens with hidden states that one call reads."""
_EMBEDDING, _SHIFTS, _MASK = "embed_tokens.weight", "d2t", "t2d"


class EagleDraft(Draft):
    """A compiled EAGLE-3 draft of a decoder, as `assistant_model` of its `generate` and of requests."""

    name = "EAGLE-3 draft"

    def __init__(
        self,
        loaded: LoadedProgram,
        token_of: list[int],
        reads: tuple[str, ...],
        num_candidates: int,
        config: PreTrainedConfig,
    ) -> None:
        self.loaded, self.reads, self.num_candidates, self.token_of = loaded, reads, num_candidates, token_of
        self.config = config
        """Configuration of the decoder, which `generate` reads."""

    @classmethod
    def from_pretrained(cls, folder: str | Path, model: NeuronDecoderModel, num_candidates: int | None = None) -> Self:
        """Compile the draft of a checkpoint for the target of a model, and load it.

        Args:
            folder: folder with `config.json` and safetensors.
            model: the decoder that the draft was trained on, exported with `speculation=True`.
            num_candidates: tokens to guess at once; None for as many as a check takes, `extend_length - 1`.

        Raises:
            ConfigError: the model returns no hidden states of the draft's layers, or the draft has another vocabulary,
                or options that are not supported.
            ModelError: the configuration cannot be read.
            WeightsError: tensors are missing, unknown, or of another shape.
            CoreBusyError, DeviceMemoryError: there is no room for it on a core.
        """
        config = _read_config(Path(folder), model)
        reads = tuple(f"{LAYER_STATES}{layer}" for layer in _layers_of(config, model))
        require_results(model, reads)
        files = [MappedFile.open(path) for path in sorted(Path(folder).glob("*.safetensors"))]
        tensors = Checkpoint(files, str(folder))
        num_guessed = getattr(config, "draft_vocab_size", None) or config.vocab_size
        token_of = _tokens(tensors, num_guessed, config.vocab_size)
        most = model.neuron_config.extend_length - 1
        network = _empty_network(config, model, num_guessed)
        sources = {f"{_NETWORK}{name}": names for name, names in EAGLE_WEIGHT_MAP.items()}
        loaded = load_draft(_captures(network, model), sources, _weights(tensors, config, model), model, cls.name)
        return cls(loaded, token_of, reads, min(num_candidates or most, most), model.config)

    def begin(self) -> EagleSequence:
        """Return the draft of a new sequence, with its own cache."""
        return EagleSequence(self)

    def propose(self, ids_1C: torch.Tensor, hidden_NF: torch.Tensor | None) -> list[int]:
        """Guess without tokens before the new ones."""
        return self.begin().propose(ids_1C, hidden_NF)

    def close(self) -> None:
        """Free the core and the memory of the draft."""
        self.loaded.close()


class EagleSequence(Draft):
    """An EAGLE-3 draft at work on one sequence."""

    def __init__(self, draft: EagleDraft) -> None:
        self.name, self.reads, self._draft = draft.name, draft.reads, draft
        self._state: State | None = None
        self._num_read = 0
        """Tokens in the cache of the draft that the decoder has accepted."""

    def propose(self, ids_1C: torch.Tensor, hidden_NF: torch.Tensor | None) -> list[int]:
        """Read the new tokens, and return a chain of guesses."""
        assert hidden_NF is not None, "the model was checked"
        if self._state is None:
            loaded = self._draft.loaded
            self._state = loaded.take_state()
            weakref.finalize(self, loaded.give_back, self._state)
        ids_1N = ids_1C[:, -len(hidden_NF) :]
        for start in range(0, len(hidden_NF), _CHUNK):
            guess, hidden_11D = self._read(ids_1N[:, start : start + _CHUNK], hidden_NF[start : start + _CHUNK])
        candidates = [guess]
        while len(candidates) < self._draft.num_candidates:
            position = torch.tensor([[self._num_read + len(candidates) - 1]])
            ids_11 = torch.tensor([candidates[-1:]])
            guess, hidden_11D = self._run(_NEXT, ids_11, position, hidden_11D, 0)
            candidates.append(guess)
        return candidates

    def _read(self, ids_1T: torch.Tensor, hidden_TF: torch.Tensor) -> tuple[int, torch.Tensor]:
        num_tokens = len(hidden_TF)
        padding = _CHUNK - num_tokens
        ids_1T = torch.nn.functional.pad(ids_1T, (0, padding))
        hidden_TF = torch.nn.functional.pad(hidden_TF, (0, 0, 0, padding))
        # Padding is written behind the new tokens, where guesses replace it before anything sees it.
        positions_1T = self._num_read + torch.arange(_CHUNK)[None]
        self._num_read += num_tokens
        return self._run(_READ, ids_1T, positions_1T, hidden_TF[None], num_tokens - 1)

    def _run(
        self, graph: str, ids_1T: torch.Tensor, positions_1T: torch.Tensor, hidden_1TF: torch.Tensor, last: int
    ) -> tuple[int, torch.Tensor]:
        assert self._state is not None, "proposing begins with a cache"
        inputs = [ids_1T, positions_1T, hidden_1TF, torch.tensor([last])]
        results = self._draft.loaded.run(graph, inputs, self._state)
        return self._draft.token_of[int(results["token"])], results["hidden_state"]


def _read_config(folder: Path, model: NeuronDecoderModel) -> LlamaConfig:
    """Read the configuration of a draft, and check that it fits the decoder."""
    path = folder / "config.json"
    data = read_object(path)
    require_sizes(data, path)
    try:
        config = LlamaConfig.from_dict(data)
    except (OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"transformers cannot read the draft's configuration {path} ({type(error).__name__}: {error})."
        raise ModelError(message, hint="Pass the folder of an EAGLE-3 draft.", file=str(path)) from error
    if gap := eagle_gap(config):
        message = f"This EAGLE-3 draft is not supported: {gap}."
        raise ConfigError(message, hint="Use a draft with one layer of Llama's form.", option=gap)
    text = model.config.get_text_config(decoder=True)
    width = getattr(config, "target_hidden_size", None) or config.hidden_size
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
    """Layers of the decoder whose inputs a draft reads."""
    name = "eagle_aux_hidden_state_layer_ids"
    layers = (getattr(config, "eagle_config", None) or {}).get(name) or getattr(config, name, None)
    return tuple(layers or eagle_layers(model.config.get_text_config(decoder=True).num_hidden_layers))


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


def _weights(tensors: TensorSource, config: LlamaConfig, model: NeuronDecoderModel) -> TensorSource:
    """Return the tensors of a draft, with the decoder's embedding if it has none."""
    known = {_SHIFTS, _MASK, *(name for names in EAGLE_WEIGHT_MAP.values() for name in names)}
    if unknown := sorted(set(tensors.specs) - known):
        message = f"{tensors.origin} has tensors that no EAGLE-3 draft has: {', '.join(unknown)}."
        raise WeightsError(message, hint=f"Known are {', '.join(sorted(known))}.", unknown=unknown)
    if _EMBEDDING in tensors.specs:
        return tensors
    bound, name = model.prepared.bound, "model.embed.weight"
    assert bound is not None, "a loaded model has weights"
    names: Mapping[str, torch.Tensor] = {one: tensors.join([one])[0] for one in tensors.specs}
    return StateDict(tensors={**names, _EMBEDDING: bound.weights.tensors[name]}, origin=tensors.origin)


def _empty_network(config: LlamaConfig, model: NeuronDecoderModel, num_guessed: int) -> EagleNetwork:
    sizes, width = eagle_sizes(config), model.config.get_text_config(decoder=True).hidden_size
    is_residual_normed = getattr(config, "norm_before_residual", False)
    with torch.device("meta"):
        network = EagleNetwork(
            sizes, target_width=width, num_draft_tokens=num_guessed, is_residual_normed=is_residual_normed
        )
    dtype = getattr(torch, model.neuron_config.torch_dtype)
    for parameter in network.parameters():
        parameter.data = parameter.data.to(dtype)
    return network


def _captures(network: EagleNetwork, model: NeuronDecoderModel) -> list[Recapture]:
    """Functions that capture the graphs: one reads tokens of the decoder, one a guess."""
    dtype = model.neuron_config.torch_dtype
    # Padding of a chunk may reach behind the longest sequence.
    num_slots = model.sequence_length + _CHUNK
    states = {
        f"{tensor.name}.0": TensorSpec(shape=tensor.shape(1, num_slots), dtype=tensor.dtype or dtype)
        for tensor in network.state
    }
    widths = {_READ: network.fc.in_features, _NEXT: network.fc.out_features}

    def graph(name: str, shorten: bool) -> Any:
        tokens = TensorSpec(shape=(1, _CHUNK if name == _READ else 1), dtype="int64")
        hidden = TensorSpec(shape=(*tokens.shape, widths[name]), dtype="float32")
        inputs = {"input_ids": tokens, "position_ids": tokens, "hidden_states": hidden}
        inputs["last_index"] = TensorSpec(shape=(1,), dtype="int64")
        entry, outputs = EagleEntry(network, reads_decoder=name == _READ), ("token", "hidden_state")
        return capture(entry, name=name, inputs=inputs, states=states, outputs=outputs, shorten=False)

    return [functools.partial(graph, name) for name in (_READ, _NEXT)]
