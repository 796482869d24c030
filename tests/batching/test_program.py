"""A program with blocks: its memory, estimate, profile and folder, and what cannot be one."""

import copy

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError
from optimum_neuron.kinds.multimodal.image import NeuronImageTextConfig
from optimum_neuron.options.configuration import NeuronConfig
from optimum_neuron.profiling import calls_of
from optimum_neuron.simulator import estimate
from optimum_neuron.upstream.cache_argument import CACHE

BATCHED = {"continuous_batching": True}


def test_memory_estimate_and_profile_count_pools_and_chunks(model, tmp_path):
    program = model.loaded.program
    pools = [spec.shape for name, spec in program.states.items() if name.startswith("key_cache")]
    assert pools == [(10, 2, 8, 8)] * 3
    assert model.loaded.need.kv_cache == 2 * 3 * 10 * 2 * 8 * 8 * 4
    assert calls_of(program, prompt_length=33, num_steps=1) == [
        *("prefill_20", "prefill_48", "prefill_48_of_8", "decode_48")
    ]
    model.save_pretrained(tmp_path)
    estimated = estimate(str(tmp_path), sequence_length=48, output_length=8)
    assert estimated.memory["kv_cache"] == model.loaded.need.kv_cache
    with NeuronModelForCausalLM.from_pretrained(tmp_path) as loaded:
        outputs = [one.generate_batch([[5, 6]], max_new_tokens=4, do_sample=False) for one in (model, loaded)]
        assert outputs[0]["req_0"].generated_tokens == outputs[1]["req_0"].generated_tokens


def test_generate_has_all_modes(model):
    ids = torch.tensor([[5, 6, 7, 8] * 5, [0] * 17 + [9, 10, 11]])
    mask = (ids > 0).long()
    greedy = model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
    assert torch.equal(
        greedy[:, 20:23], model.generate(ids, attention_mask=mask, max_new_tokens=3, do_sample=False)[:, 20:]
    )
    looked_up = model.generate(ids[:1], prompt_lookup_num_tokens=2, max_new_tokens=6, do_sample=False)
    assert torch.equal(looked_up, greedy[:1])
    beams = model.generate(ids, attention_mask=mask, num_beams=3, max_new_tokens=6, do_sample=False)
    alone = model.generate(ids[1:], attention_mask=mask[1:], num_beams=3, max_new_tokens=6, do_sample=False)
    assert torch.equal(beams[1:, : alone.shape[1]], alone)


@pytest.mark.parametrize(
    "options",
    [
        {"block_size": 8},
        {"num_blocks": 8},
        BATCHED | {"prefill_buckets": (8, 16), "prefill_chunk_size": 32},
        BATCHED | {"block_size": 0},
    ],
)
def test_options_that_contradict_each_other(options):
    with pytest.raises(ConfigError):
        NeuronConfig(**options)


def test_sizes_have_defaults_and_hold_one_sequence():
    config = NeuronConfig(batch_size=3, sequence_length=100, **BATCHED).resolve(max_position_embeddings=200)
    assert (config.block_size, config.num_blocks, config.prefill_chunk_size) == (32, 13, 100)
    assert config.prefill_buckets == (50, 100)
    with pytest.raises(ConfigError) as excinfo:
        NeuronConfig(sequence_length=100, num_blocks=4, **BATCHED).resolve(max_position_embeddings=200)
    assert excinfo.value.details["least"] == 5


def test_images_are_refused():
    with pytest.raises(ConfigError):
        NeuronImageTextConfig(**BATCHED)


def test_copies_of_a_cache_continue_one_prefix(model):
    """transformers' recipe for a system prompt: fill a cache once, and copy it for each continuation."""
    prefix, settings = torch.tensor([[*range(40, 61)]]), {"max_new_tokens": 6, "do_sample": False}
    cache = model(prefix, use_cache=True)[CACHE]
    num_charges = len(model.loaded.charges)
    for more in ([5, 6], [7], [8, 9, 10]):
        ids = torch.cat([prefix, torch.tensor([more])], 1)
        copied = copy.deepcopy(cache)
        assert len(model.loaded.charges) == num_charges + 1
        tokens = model.generate(ids, **{CACHE: copied}, **settings)
        assert torch.equal(tokens, model.generate(ids, **settings))
        del copied
    assert cache.get_seq_length() == 21


@pytest.mark.full(days=6)
@pytest.mark.parametrize(
    "sizes",
    [
        {"prefill_buckets": (24, 48)},  # a prompt is one chunk
        {"prefill_buckets": (8, 32), "decode_buckets": (6, 20, 48)},  # ends of prompts, and chunks that none reaches
        {"prefill_buckets": (8, 16), "decode_buckets": (20, 40, 48), "num_blocks": 7},  # a row at a time
    ],
)
def test_every_graph_of_chunks_is_validated(export, checkpoint_of_model, sizes):
    validated = export(checkpoint_of_model, **sizes)
    assert validated.prepared.validation and all(error.ok for error in validated.prepared.validation)


@pytest.mark.full(days=2)
def test_chunks_of_recurrent_states_are_validated(export):
    assert all(error.ok for error in export("mamba", prefill_buckets=(24, 48)).prepared.validation)
