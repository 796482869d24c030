"""EAGLE-3 drafts of published checkpoints guess as the paper's network does; results are those of plain decoding."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, set_seed
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ModelError, WeightsError
from optimum_neuron.modeling import EagleDraft
from tests.eagle import WIDTH, draft_config, draft_tensors, saved
from tests.modeling.common import random_ids
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES

OPTIONS = {"max_new_tokens": 20, "pad_token_id": 0, "eos_token_id": None}


def inputs_of(seed: int, num_tokens: int = 8) -> dict[str, torch.Tensor]:
    ids = random_ids(1, num_tokens, seed=seed)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture(scope="module")
def speculating(checkpoint):
    options = {**SHAPES, "speculation": True, "hidden_state_layers": (1, 2, 3), "disable_validation": True}
    with NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **options) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def config(original):
    return draft_config(original.config)


@pytest.fixture(scope="module")
def tensors(config):
    return draft_tensors(config)


@pytest.fixture(scope="module")
def folder(config, tensors, tmp_path_factory):
    return saved(config, tensors, tmp_path_factory.mktemp("eagle"))


@pytest.fixture(scope="module")
def draft(speculating, folder):
    loaded = EagleDraft.from_pretrained(folder, speculating)
    yield loaded
    loaded.close()


class Reference:
    """The network without a cache, as the paper describes it."""

    def __init__(self, config, tensors) -> None:
        self.config, self.tensors = config, tensors
        self.rotary = LlamaRotaryEmbedding(config)

    def guesses(self, ids_T, hidden_TF, number: int) -> list[int]:
        """A chain of guesses behind tokens, each of which follows hidden states of the decoder."""
        ids, x_TD, found = ids_T.tolist(), self.linear("fc", hidden_TF), []
        for _ in range(number):
            out_TD = self.layer(torch.tensor(ids), x_TD)
            logits = self.linear("lm_head", self.norm("norm", out_TD[-1:]))
            index = int(logits.argmax())
            found.append(index + int(self.tensors["d2t"][index]))
            ids, x_TD = [*ids, found[-1]], torch.cat([x_TD, out_TD[-1:]])
        return found

    def layer(self, ids_T, x_TD):
        embeds = F.embedding(ids_T, self.tensors["embed_tokens.weight"])
        both = torch.cat([self.norm("midlayer.input_layernorm", embeds), self.norm("midlayer.hidden_norm", x_TD)], -1)
        split = (self.linear(f"midlayer.self_attn.{name}_proj", both).unflatten(-1, (-1, 6)) for name in "qkv")
        query, key, value = (part.transpose(0, 1)[None] for part in split)
        query, key = apply_rotary_pos_emb(query, key, *self.rotary(value, torch.arange(len(ids_T))[None]))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x_TD = x_TD + self.linear("midlayer.self_attn.o_proj", mixed[0].transpose(0, 1).flatten(1))
        y_TD = self.norm("midlayer.post_attention_layernorm", x_TD)
        gate, up = (self.linear(f"midlayer.mlp.{name}_proj", y_TD) for name in ("gate", "up"))
        return x_TD + self.linear("midlayer.mlp.down_proj", F.silu(gate) * up)

    def linear(self, name, x):
        return F.linear(x, self.tensors[f"{name}.weight"])

    def norm(self, name, x):
        norm = LlamaRMSNorm(WIDTH, eps=self.config.rms_norm_eps)
        norm.weight.data = self.tensors[f"{name}.weight"]
        return norm(x)


@pytest.mark.full(days=4)
@pytest.mark.parametrize("settings", [{"do_sample": False}, {"do_sample": True, "temperature": 0.5}], ids=str)
def test_tokens_are_those_of_plain_decoding(speculating, draft, settings):
    for seed, num_tokens in ((0, 8), (1, 27)):
        results = []
        for more in ({"assistant_model": draft}, {}):
            set_seed(seed)
            results.append(speculating.generate(**inputs_of(seed, num_tokens), **OPTIONS, **settings, **more).tolist())
        assert results[0] == results[1]
        assert speculating.last_speculation.draft == "EAGLE-3 draft"


@torch.no_grad()
def test_guesses_are_those_of_the_network_without_a_cache(speculating, draft, original, config, tensors):
    ids = torch.cat([inputs_of(0, 9)["input_ids"], random_ids(1, 20, seed=5)], 1)
    states = original(ids, output_hidden_states=True).hidden_states
    captured = []
    hook = original.model.layers[-1].register_forward_hook(lambda *args: captured.append(args[-1]))
    original(ids)
    hook.remove()
    last = captured[0][0] if isinstance(captured[0], tuple) else captured[0]
    hidden_TF = torch.cat([states[1], states[2], last], -1)[0]
    sequence, reference = draft.begin(), Reference(config, tensors)
    read = 0
    for end in (9, 10, 14, 22, 28):  # a prompt, then checks of which so many tokens stay
        expected = reference.guesses(ids[0, 1 : end + 1], hidden_TF[:end], draft.num_candidates)
        assert sequence.propose(ids[:, : end + 1], hidden_TF[read:end]) == expected
        read = end


@torch.no_grad()
def states_handed_over(model, draft, original) -> None:
    """Check that `generate` hands over the states that transformers computes."""
    ids = torch.cat([inputs_of(0, 9)["input_ids"], random_ids(1, 20, seed=5)], 1)
    seen, sequence, mask = [], draft.begin(), torch.ones_like(ids)
    sequence.begin = lambda: sequence
    sequence.propose = lambda ids_1C, hidden_NF: seen.append(hidden_NF) or []
    sequence.config = draft.config
    mask[:, :3] = 0
    text = model.generate(ids, attention_mask=mask, **OPTIONS | {"max_new_tokens": 4}, assistant_model=sequence)
    states = original(text[:, 3:], output_hidden_states=True).hidden_states
    assert [len(hidden) for hidden in seen] == [26, 1, 1][: len(seen)]
    actual, width = torch.cat(seen), 2 * original.config.hidden_size
    torch.testing.assert_close(actual[:, :width], torch.cat(states[1:3], -1)[0, : len(actual)], atol=1e-4, rtol=0)


def test_a_draft_gets_the_states_of_transformers(speculating, draft, original):
    states_handed_over(speculating, draft, original)


@pytest.mark.full(days=4)
def test_cores_that_share_layers_hand_over_whole_states(checkpoint, original, folder):
    options = {**SHAPES, "speculation": True, "hidden_state_layers": (1, 2, 3), "tensor_parallel_size": 2}
    with NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **options) as model:
        draft = EagleDraft.from_pretrained(folder, model)
        states_handed_over(model, draft, original)
        inputs = inputs_of(1, 12)
        assert torch.equal(
            model.generate(**inputs, **OPTIONS, do_sample=False, assistant_model=draft),
            original.generate(**inputs, **OPTIONS, do_sample=False),
        )
        draft.close()
    with raises(ConfigError, option="hidden_state_layers"):
        NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **options, sequence_parallel=True)


def test_drafts_that_do_not_fit(speculating, model, folder, config, tensors, tmp_path):
    with raises(ConfigError, option="speculation"):
        EagleDraft.from_pretrained(folder, model)
    with raises(ModelError):
        EagleDraft.from_pretrained(tmp_path, speculating)
    cut = {name: tensor for name, tensor in tensors.items() if name not in ("fc.weight", "norm.weight")}
    with raises(WeightsError) as excinfo:
        EagleDraft.from_pretrained(saved(config, cut, tmp_path), speculating)
    problems = " ".join(excinfo.value.details["problems"])
    assert all(name in problems for name in ("fc.weight", "norm.weight"))
    with raises(WeightsError, unknown=["midlayer.extra", "other"]):
        unknown = {"other": torch.zeros(1), "midlayer.extra": torch.zeros(1)}
        EagleDraft.from_pretrained(saved(config, tensors | unknown, tmp_path), speculating)
    for name, wrong in (("d2t", tensors["d2t"] + NUM_BYTE_TOKENS), ("t2d", torch.zeros(3)), ("d2t", None)):
        others = {key: tensor for key, tensor in tensors.items() if key != name}
        with raises(WeightsError) as excinfo:
            EagleDraft.from_pretrained(
                saved(config, others | ({} if wrong is None else {name: wrong}), tmp_path), speculating
            )
        assert name in " ".join(excinfo.value.details["problems"])
    for option, value in (("vocab_size", 7), ("target_hidden_size", 12), ("num_hidden_layers", 2), ("mlp_bias", True)):
        changed = LlamaConfig(**{**config.to_dict(), option: value})
        with pytest.raises(ConfigError):
            EagleDraft.from_pretrained(saved(changed, tensors, tmp_path), speculating)
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), "rope_parameters": 3}))
    with raises(ModelError, file=str(tmp_path / "config.json")):
        EagleDraft.from_pretrained(tmp_path, speculating)
    changed = LlamaConfig(**{**config.to_dict(), "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}})
    with raises(ConfigError, missing=["hidden_states.0"]):
        EagleDraft.from_pretrained(saved(changed, tensors, tmp_path), speculating)


def test_layers_that_a_model_has_not(checkpoint):
    for layers in ((0, 1, 2), (1, 2, 9)):
        with raises(ConfigError, option="hidden_state_layers"):
            NeuronModelForCausalLM.from_pretrained(
                checkpoint, export=True, **SHAPES, speculation=True, hidden_state_layers=layers
            )
    with raises(ConfigError, option="hidden_state_layers"):
        NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **SHAPES, hidden_state_layers=(1, 2, 3))
