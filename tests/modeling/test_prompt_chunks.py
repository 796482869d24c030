"""Prompts that are read in chunks without continuous batching, compared with transformers."""

from __future__ import annotations

import logging

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronConfig, NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError
from optimum_neuron.kinds.multimodal.image import NeuronImageTextConfig
from optimum_neuron.options.decoder_options import extend_lengths
from tests.modeling.common import same
from tests.raising import raises
from tests.tiny import SHAPES, VOCABULARY, save_tiny

LENGTH = 48
OPTIONS = SHAPES | {"prefill_buckets": None, "decode_buckets": (LENGTH,), "prefill_chunk_size": 16, "extend_length": 4}
FAMILIES = ("lfm2", "llama", "mistral")
"""Layers that see all tokens, layers that keep a window, and layers with a state."""


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.full(days=3, by="pair")) for name in FAMILIES]
)
def pair(request, tmp_path_factory):
    """A compiled model, which was validated, and the original."""
    folder = save_tiny(tmp_path_factory.mktemp("chunks") / request.param, request.param)
    model = NeuronModelForCausalLM.from_pretrained(folder, export=True, **OPTIONS)
    yield model, AutoModelForCausalLM.from_pretrained(folder)
    model.close()


def test_graphs_are_of_chunks(pair):
    graphs = set(pair[0].model.graphs)
    assert graphs == {"prefill_16", "score_16", "extend_4", "extend_16", f"decode_{LENGTH}"}
    assert pair[0].neuron_config.prefill_chunk_size == 16


@pytest.mark.parametrize("columns", [7, 16, 17, 20, 33, 44])
def test_prompts_of_any_length(pair, columns, monkeypatch):
    model, original = pair
    generator = torch.Generator().manual_seed(columns)
    ids, mask = torch.randint(3, VOCABULARY, (2, columns), generator=generator), torch.ones(2, columns).long()
    mask[1, : columns // 3] = 0
    called = []
    step = model._decoder.step
    monkeypatch.setattr(
        model._decoder, "step", lambda group, graph, *rest: called.append(graph) or step(group, graph, *rest)
    )
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = original(ids, attention_mask=mask, position_ids=positions).logits[:, -1]
    same(model(ids, attention_mask=mask, logits_to_keep=1).logits[:, -1], expected)
    left = max(columns - 16, 0)
    assert called == ["extend_16"] * (left // 16) + ["extend_4" if left % 16 < 2 else "extend_16"] * (left % 16 > 0)
    options = {"do_sample": False, "max_new_tokens": 3, "pad_token_id": 0, "eos_token_id": None}
    texts = [one.generate(input_ids=ids, attention_mask=mask, **options).tolist() for one in pair]
    assert texts[0] == texts[1]


def test_lengths_that_chunks_do_not_divide(tmp_path):
    folder = save_tiny(tmp_path / "llama", "llama")
    shapes = {"sequence_length": 40, "decode_buckets": (40,)}
    options = OPTIONS | shapes | {"disable_validation": True}
    ids = torch.randint(3, VOCABULARY, (1, 39), generator=torch.Generator().manual_seed(0))
    with NeuronModelForCausalLM.from_pretrained(folder, export=True, **options) as model, torch.no_grad():
        same(model(ids).logits, AutoModelForCausalLM.from_pretrained(folder)(ids).logits)


def test_chunk_of_a_whole_sequence_is_one_piece():
    config = NeuronConfig(sequence_length=64, prefill_chunk_size=1024).resolve(max_position_embeddings=128)
    assert (config.prefill_chunk_size, extend_lengths(config), config.prefill_buckets) == (64, (8,), (64,))


def test_zero_is_no_chunk():
    configs = [NeuronConfig(sequence_length=512, **more) for more in ({}, {"prefill_chunk_size": 0})]
    first, second = (config.resolve(max_position_embeddings=512) for config in configs)
    assert first == second and first.prefill_chunk_size == 0 and first.prefill_buckets == (128, 512)


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"speculation": True}, {"option": "prefill_chunk_size", "value": 16}),
        ({"prefill_buckets": (8, 32)}, {"option": "prefill_buckets", "chunk_size": 16}),
        ({"prefill_chunk_size": -1}, {"option": "prefill_chunk_size", "value": -1}),
        ({"prefill_chunk_size": False}, {"option": "prefill_chunk_size", "value": False}),
    ],
)
def test_contradictions_are_refused(options, details):
    with raises(ConfigError, **details):
        NeuronConfig(**{"prefill_chunk_size": 16, **options})


def test_prompts_with_images_are_in_one_piece():
    with raises(ConfigError, option="prefill_chunk_size", value=16):
        NeuronImageTextConfig(prefill_chunk_size=16)


@pytest.mark.parametrize(
    ("model_type", "options", "expected"),
    [
        ("llama", {"sequence_length": 1024}, 0),
        ("llama", {"sequence_length": 1025}, 1024),
        ("llama", {}, 1024),
        ("llama", {"sequence_length": 2048, "prefill_chunk_size": 0}, 0),
        ("llama", {"sequence_length": 2048, "prefill_chunk_size": 256}, 256),
        ("llama", {"sequence_length": 2048, "prefill_buckets": (128, 2048)}, 0),
        ("gemma3_text", {"sequence_length": 2048}, 0),
    ],
)
def test_automatic_value(tmp_path, caplog, model_type, options, expected):
    folder = save_tiny(tmp_path / "model", model_type, max_position_embeddings=4096)
    with caplog.at_level(logging.INFO, logger="optimum_neuron.modeling.two_step"):
        config = NeuronModelForCausalLM.get_neuron_config(folder, tensor_parallel_size=1, **options)
    assert config.prefill_chunk_size == expected
    assert bool(caplog.records) == (expected == 1024)


@pytest.mark.parametrize(("input_length", "num_computed"), [(16, 16), (17, 16 + 4), (44, 16 + 16 + 16)])
def test_estimates_count_all_chunks(pair, input_length, num_computed):
    model, _ = pair
    estimate, alone = (model.estimate(input_length=length, output_length=2) for length in (input_length, 16))
    assert estimate.padding.prefill_tokens == num_computed
    assert (estimate.ttft_ms.value > alone.ttft_ms.value) == (input_length > 16)
