"""EAGLE drafts: one layer that reads hidden states of the decoder, and guesses a chain of tokens.

A folder has a `config.json` and safetensors with the published names, which tell the generation of the draft: with
`midlayer.*` it is EAGLE-3, with `layers.0.*` EAGLE. Its graphs have their own cache.

    draft = EagleDraft.from_pretrained("eagle3-smollm2", model)
    model.generate(**inputs, assistant_model=draft)

Shape legend: C columns, N tokens with new hidden states, F the decoder's hidden width times 3, D hidden width, V
vocabulary.
"""

from __future__ import annotations

import functools
import weakref
from pathlib import Path
from typing import Any, Self

import torch

from ..base.core import TensorSpec
from ..base.transformers_types import PreTrainedConfig
from ..compiler import Recapture, capture
from ..engine import Draft
from ..models import EagleEntry, EagleNetwork, FirstEagleNetwork
from ..runtime import LoadedProgram, State
from .decoder import NeuronDecoderModel
from .draft_program import load_draft
from .eagle_parts import EagleParts, parts_of, read_config, safetensors_of

_READ, _NEXT, _NETWORK = "read", "next", "network."
_CHUNK = 64
"""Tokens with hidden states that one call reads."""


class EagleDraft(Draft):
    """A compiled EAGLE draft of a decoder, as `assistant_model` of its `generate` and of requests."""

    def __init__(self, loaded: LoadedProgram, parts: EagleParts, num_candidates: int, config: PreTrainedConfig) -> None:
        self.loaded, self.num_candidates = loaded, num_candidates
        self.name, self.reads, self.token_of = parts.name, parts.reads, parts.token_of
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
        config = read_config(Path(folder), model)
        parts = parts_of(safetensors_of(folder), config, model)
        network, most = parts.network, model.neuron_config.extend_length - 1
        for parameter in network.parameters():
            parameter.data = parameter.data.to(getattr(torch, model.neuron_config.torch_dtype))
        sources = {f"{_NETWORK}{name}": names for name, names in parts.weight_map.items()}
        loaded = load_draft(_captures(network, model), sources, parts.tensors, model, parts.name)
        return cls(loaded, parts, min(num_candidates or most, most), model.config)

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
    """An EAGLE draft at work on one sequence."""

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


def _captures(network: EagleNetwork | FirstEagleNetwork, model: NeuronDecoderModel) -> list[Recapture]:
    """Functions that capture the graphs: one reads tokens of the decoder, one a guess."""
    dtype = model.neuron_config.torch_dtype
    # Padding of a chunk may reach behind the longest sequence.
    num_slots = model.sequence_length + _CHUNK
    states = {
        f"{tensor.name}.0": TensorSpec(shape=tensor.shape(1, num_slots), dtype=tensor.dtype or dtype)
        for tensor in network.state
    }
    widths = {_READ: network.read_width, _NEXT: network.width}

    def graph(name: str, shorten: bool) -> Any:
        tokens = TensorSpec(shape=(1, _CHUNK if name == _READ else 1), dtype="int64")
        hidden = TensorSpec(shape=(*tokens.shape, widths[name]), dtype="float32")
        inputs = {"input_ids": tokens, "position_ids": tokens, "hidden_states": hidden}
        inputs["last_index"] = TensorSpec(shape=(1,), dtype="int64")
        entry, outputs = EagleEntry(network, reads_decoder=name == _READ), ("token", "hidden_state")
        return capture(entry, name=name, inputs=inputs, states=states, outputs=outputs, shorten=False)

    return [functools.partial(graph, name) for name in (_READ, _NEXT)]
