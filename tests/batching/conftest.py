"""A tiny Llama with a small pool of blocks, compiled once for the tests of this folder."""

from collections.abc import Iterator

import pytest

from optimum_neuron import NeuronModelForCausalLM
from tests.tiny import save_tiny


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NeuronModelForCausalLM]:
    """Three rows, and blocks for two whole sequences: requests give way to each other."""
    folder = save_tiny(tmp_path_factory.mktemp("llama"), "llama")
    model = NeuronModelForCausalLM.from_pretrained(
        folder,
        export=True,
        batch_size=3,
        sequence_length=48,
        continuous_batching=True,
        block_size=8,
        num_blocks=10,
        prefill_chunk_size=16,
        decode_buckets=(20, 48),
        extend_length=4,
        speculation=True,
        hidden_state_layers=(1, 2, 3),
        optlevel="1",
        torch_dtype="float32",
    )
    yield model
    model.close()
