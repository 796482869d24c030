"""Medusa heads: small networks that read the last hidden state and guess the tokens after the next one.

A checkpoint has a stack of residual layers and a projection for each head: `0.0.linear.weight`, `0.0.linear.bias`, and
`0.1.weight` for a first head of one layer. The heads are a separate graph, on a separate core or a shared one.

    heads = MedusaHeads.from_pretrained("medusa-smollm2", model)
    model.generate(**inputs, assistant_model=heads)

Shape legend: D hidden, V vocabulary, H heads.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional as F

from ..base.core import TensorSpec
from ..base.transformers_types import PreTrainedConfig
from ..compiler import capture
from ..engine import Draft
from ..errors import WeightsError
from ..runtime import LoadedProgram
from ..weights import Checkpoint, MappedFile
from .decoder import NeuronDecoderModel
from .draft_program import load_draft, require_results

_PREFIX = "heads."
_LAYER = re.compile(r"(\d+)\.(\d+)\.linear\.weight")
_GRAPH = "draft"


class _ResidualLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x_1D: torch.Tensor) -> torch.Tensor:
        return x_1D + F.silu(F.linear(x_1D, self.linear.weight, self.linear.bias))


class _Heads(nn.Module):
    """All heads: a hidden state to one token of each."""

    def __init__(self, num_heads: int, num_layers: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.Sequential(*(_ResidualLayer(width) for _ in range(num_layers)), nn.Linear(width, vocabulary, bias=False))
            for _ in range(num_heads)
        )

    def forward(self, hidden_1D: torch.Tensor) -> torch.Tensor:
        """Return the likeliest tokens [1, H]."""
        x_1D = hidden_1D.to(self.heads[0][-1].weight.dtype)
        return torch.stack([head(x_1D).float().argmax(-1) for head in self.heads], 1)


class MedusaHeads(Draft):
    """Compiled Medusa heads of a decoder, as `assistant_model` of its `generate`."""

    name = "Medusa heads"
    reads = ("last_hidden_state",)

    def __init__(self, loaded: LoadedProgram, num_heads: int, config: PreTrainedConfig) -> None:
        self.loaded, self.num_heads = loaded, num_heads
        self.config = config
        """Configuration of the decoder, which `generate` reads."""

    @classmethod
    def from_pretrained(cls, folder: str | Path, model: NeuronDecoderModel) -> Self:
        """Compile the heads of a checkpoint for the target of a model, and load them.

        Args:
            folder: folder with the heads' safetensors file.
            model: the decoder that the heads were trained on, exported with `speculation=True`.

        Raises:
            ConfigError: the model returns no hidden states.
            WeightsError: the checkpoint has no Medusa heads, or heads of another model.
            CoreBusyError, DeviceMemoryError: there is no room for them on a core.
        """
        require_results(model, cls.reads)
        files = sorted(Path(folder).glob("*.safetensors"))
        tensors = Checkpoint([MappedFile.open(path) for path in files], str(folder))
        heads, sources = _empty_heads(tensors, model)
        width = heads.heads[0][-1].in_features
        heads.to(getattr(torch, model.neuron_config.torch_dtype))
        loaded = load_draft([functools.partial(_capture, heads, width)], sources, tensors, model, cls.name)
        return cls(loaded, len(heads.heads), model.config)

    def propose(self, ids_1C: torch.Tensor, hidden_NF: torch.Tensor | None) -> list[int]:
        """Return the guess of each head, from the newest hidden state."""
        assert hidden_NF is not None, "the model was checked"
        return self.loaded.run(_GRAPH, [hidden_NF[-1:]])["tokens"][0].tolist()

    def close(self) -> None:
        """Free the core and the memory of the heads."""
        self.loaded.close()


def _empty_heads(tensors: Checkpoint, model: NeuronDecoderModel) -> tuple[_Heads, dict[str, tuple[str, ...]]]:
    """Return heads without weights, and the tensors of each parameter."""
    layers = [tuple(map(int, match.groups())) for name in tensors.specs if (match := _LAYER.search(name))]
    if not layers:
        message = f"{tensors.origin} has no Medusa heads: no tensor is named like 0.0.linear.weight."
        raise WeightsError(message, hint="Pass a folder with medusa_lm_head.safetensors.", folder=tensors.origin)
    num_heads, num_layers = (max(numbers) + 1 for numbers in zip(*layers, strict=True))
    if num_heads * num_layers > len(layers):
        message = f"{tensors.origin} has {len(layers)} layers, but is named for {num_heads} heads of {num_layers}."
        raise WeightsError(message, hint="Download the heads again.", folder=tensors.origin)
    config: Any = model.config.get_text_config(decoder=True)
    with torch.device("meta"):
        heads = _Heads(num_heads, num_layers, config.hidden_size, config.vocab_size)
    first = next(name for name in tensors.specs if name.endswith("0.0.linear.weight"))
    prefix = first.removesuffix("0.0.linear.weight")
    return heads, {name: (prefix + name.removeprefix(_PREFIX),) for name, _ in heads.named_parameters()}


def _capture(heads: _Heads, width: int, shorten: bool) -> Any:
    spec = TensorSpec(shape=(1, width), dtype="float32")
    return capture(heads, name=_GRAPH, inputs={"hidden_state": spec}, outputs=("tokens",), shorten=False)
