"""A tiny Llama with a small pool of blocks, compiled once for the tests of this folder, and how others are exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optimum_neuron import NeuronModelForCausalLM
from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

OPTIONS = {
    "batch_size": 3,
    "sequence_length": 48,
    "continuous_batching": True,
    "block_size": 8,
    "prefill_buckets": (8, 16),
    "extend_length": 1,
    "optlevel": "1",
    "torch_dtype": "float32",
}

Export = Callable[..., NeuronModelForCausalLM]


@pytest.fixture(scope="package")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Export]:
    """Exports a model type, or a checkpoint, with the options of this folder and others."""
    models = []

    def make(source: str | Path, **options: Any) -> NeuronModelForCausalLM:
        folder = save_tiny(tmp_path_factory.mktemp(source), source) if isinstance(source, str) else source
        models.append(NeuronModelForCausalLM.from_pretrained(folder, export=True, **OPTIONS | options))
        return models[-1]

    yield make
    for model in models:
        model.close()


@pytest.fixture(scope="package")
def checkpoint_of_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of `model`, with a tokenizer."""
    folder = save_tiny(tmp_path_factory.mktemp("llama"), "llama", vocab_size=NUM_BYTE_TOKENS)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="package")
def model(export: Export, checkpoint_of_model: Path) -> NeuronModelForCausalLM:
    """Three rows, and blocks for two whole sequences: requests give way to each other."""
    options = {"num_blocks": 10, "decode_buckets": (20, 48)}
    drafts = {"extend_length": 4, "speculation": True, "hidden_state_layers": (1, 2, 3)}
    return export(checkpoint_of_model, **options, **drafts)
