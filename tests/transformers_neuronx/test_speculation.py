"""Drafts and targets of `transformers_neuronx` against transformers: greedy tokens, padding, filters of draws."""

import pytest
import torch
from transformers import AutoModelForCausalLM, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.transformers_neuronx import (
    FusedSpeculativeDecoder,
    GenerationConfig,
    GreedyTokenAcceptor,
    LlamaForSampling,
    NeuronAutoModelForCausalLM,
    NeuronConfig,
    SpeculativeGenerator,
)
from tests import eagle, tiny
from tests.raising import raises

pytestmark = pytest.mark.full(days=2, by="file")

OPTIONS = {"batch_size": 1, "n_positions": [48], "context_length_estimate": 16, "tp_degree": 1, "amp": "f32"}
SETTINGS = {"top_k": 20, "top_p": 0.9, "temperature": 0.7}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny.save_tiny(tmp_path_factory.mktemp("target"), "llama", num_hidden_layers=2)


@pytest.fixture(scope="module")
def reference(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def models(checkpoint, tmp_path_factory):
    """A draft and a target, compiled without speculation."""
    small = tiny.save_tiny(tmp_path_factory.mktemp("draft"), "llama", num_hidden_layers=1, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_CC_FLAGS", "-O1")
        draft = NeuronAutoModelForCausalLM.from_pretrained(small, **OPTIONS)
        generation = GenerationConfig(do_sample=False, dynamic=True)
        config = NeuronConfig(on_device_generation=generation, on_device_embedding=True)
        target = LlamaForSampling.from_pretrained(checkpoint, **OPTIONS, neuron_config=config)
        draft.to_neuron()
        target.to_neuron()
        FusedSpeculativeDecoder(draft, target, 3).to_neuron()
    yield draft, target
    draft.compiled.close()
    target.compiled.close()


def prompts(num_rows, num_columns):
    return torch.randint(3, tiny.VOCABULARY, (num_rows, num_columns), generator=torch.Generator().manual_seed(0))


def greedy(reference, ids, length):
    return reference.generate(ids, attention_mask=torch.ones_like(ids), max_length=length, do_sample=False)


class Streamer:
    def __init__(self):
        self.parts, self.has_ended = [], False

    def put(self, tokens):
        self.parts.append(tokens)

    def end(self):
        self.has_ended = True


@pytest.mark.full(days=3)
def test_a_compiled_target_learns_to_check(models, reference):
    ids, streamer = prompts(1, 6), Streamer()
    tokens = FusedSpeculativeDecoder(*models, 3).sample(ids, sequence_length=18, streamer=streamer)
    assert torch.equal(tokens, greedy(reference, ids, 18))
    assert torch.equal(streamer.parts[0], ids) and torch.equal(torch.cat(streamer.parts, 1), tokens)
    assert streamer.has_ended
    drawn = SpeculativeGenerator(*models, 3).sample(ids, 12, eos_token_id=-1)
    assert drawn.shape == (1, 12)


def test_rows_have_padding_on_either_side(models, reference):
    ids, mask = prompts(3, 9), torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = mask[2, :4] = 0
    generator = SpeculativeGenerator(*models, 3, GreedyTokenAcceptor())
    tokens = generator.sample(ids, 16, attention_mask=mask, eos_token_id=-1, pad_token_id=0)
    assert torch.equal(tokens[:1], greedy(reference, ids[:1], 16))
    assert torch.equal(tokens[1:2], greedy(reference, ids[1:2, :6], 16))
    alone = greedy(reference, ids[2:, 4:], 12)
    assert torch.equal(tokens[2:, 4:], alone)
    with raises(ShapeError, expected=[3, 9]):
        generator.sample(ids, 16, attention_mask=mask[:, :5])
    with raises(ShapeError, expected=[3, 9]):
        generator.sample(ids, 16, start_ids=torch.tensor([1, 1, 1]), attention_mask=mask)
    with raises(ConfigError, option="streamer"):
        generator.sample(ids, 16, streamer=Streamer())
    with raises(ConfigError, option="sequence_length"):
        generator.sample(ids, 8)


def test_drawn_tokens_are_those_that_the_filters_of_transformers_leave(models, reference):
    decoder = FusedSpeculativeDecoder(*models, 3)
    decoder.draft.neuron_config.on_device_generation = decoder.draft._generation = GenerationConfig(dynamic=True)
    decoder.update_generation_config(GenerationConfig(do_sample=True, dynamic=True, **SETTINGS))
    ids = prompts(1, 6)
    filters = (TemperatureLogitsWarper(0.7), TopKLogitsWarper(20), TopPLogitsWarper(0.9))
    torch.manual_seed(0)
    answers = [decoder.sample(ids, sequence_length=10)[0] for _ in range(15)]
    assert len({tuple(answer.tolist()) for answer in answers}) > 5
    for answer in answers:
        with torch.no_grad():
            logits = reference(answer[None]).logits[0]
        for place in range(6, len(answer)):
            left = logits[place - 1 : place].clone()
            for one in filters:
                left = one(answer[None, :place], left)
            assert left[0, answer[place]] > -torch.inf
    probabilities = decoder.target.generation_sampling.probabilities(logits[5:6])
    left = logits[5:6].clone()
    for one in filters:
        left = one(ids, left)
    torch.testing.assert_close(probabilities, left.softmax(-1))


def test_a_draft_has_the_tokens_of_the_target(models, tmp_path):
    wider = tiny.save_tiny(tmp_path, "llama", num_hidden_layers=1, vocab_size=128)
    with raises(ConfigError, draft=128):
        SpeculativeGenerator(LlamaForSampling.from_pretrained(wider, **OPTIONS), models[1], 3)


def eagle_models(checkpoint, folder, generation):
    """A target and its EAGLE draft."""
    sides = {"padding_side": "right", "on_device_generation": generation}
    config = NeuronConfig(is_eagle_draft=True, has_pre_attention_norm=False, **sides)
    draft = NeuronAutoModelForCausalLM.from_pretrained(folder, **OPTIONS, neuron_config=config)
    config = NeuronConfig(is_eagle_target=True, **sides)
    return draft, NeuronAutoModelForCausalLM.from_pretrained(checkpoint, **OPTIONS, neuron_config=config)


def test_an_eagle_draft_changes_no_token(checkpoint, reference, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    config, tensors = eagle.first_draft(reference.config)
    tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
    tensors |= {"lm_head.weight": reference.lm_head.weight.detach().clone()}
    folder = eagle.saved(config, tensors, tmp_path / "draft")
    generation = GenerationConfig(do_sample=True, top_k=20, temperature=0.7, deterministic=True, dynamic=True)
    draft, target = eagle_models(checkpoint, folder, generation)
    with raises(ConfigError, option="is_eagle_target"):
        FusedSpeculativeDecoder(draft, LlamaForSampling.from_pretrained(checkpoint, **OPTIONS), 4)
    draft.to_neuron()
    target.to_neuron()
    with raises(ConfigError, model="LlamaForSampling"):
        draft.sample(prompts(1, 6), 12)
    decoder = FusedSpeculativeDecoder(draft, target, 4)
    with raises(ConfigError, option="is_eagle_draft"):
        decoder.sample(prompts(1, 6), sequence_length=12)
    decoder.to_neuron()
    ids, mask = prompts(2, 6), torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    drawn = decoder.sample(ids, attention_mask=mask, sequence_length=16)
    for row, length in ((0, 6), (1, 4)):
        tokens = ids[row : row + 1, :length]
        while tokens.shape[1] < 16:
            with torch.no_grad():
                scores = TopKLogitsWarper(20)(tokens, reference(tokens).logits[:, -1] / 0.7)
            likely = scores.softmax(-1).sort(descending=True)
            place = (likely.values.cumsum(-1) < 0.5).sum(-1, keepdim=True)
            tokens = torch.cat([tokens, likely.indices.gather(1, place)], 1)
            if int(tokens[0, -1]) == reference.config.eos_token_id:
                break
        assert drawn[row, : tokens.shape[1]].tolist() == tokens[0].tolist()
    assert target.compiled.last_speculation.draft == "EAGLE draft"
    decoder.update_generation_config(GenerationConfig(do_sample=False, dynamic=True))
    assert torch.equal(decoder.sample(ids[:1], sequence_length=16), greedy(reference, ids[:1], 16))
    target.compiled.close()


def test_only_eagle_drafts_of_the_first_generation_are_taken(checkpoint, reference, tmp_path):
    config = eagle.draft_config(reference.config)
    folder = eagle.saved(config, eagle.draft_tensors(config), tmp_path)
    draft, _ = eagle_models(checkpoint, folder, GenerationConfig())
    with raises(ConfigError, option="is_eagle_draft"):
        draft.to_neuron()
