"""EAGLE drafts of the first generation guess as transformers' layer does; results are those of plain decoding."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, WeightsError
from optimum_neuron.modeling import EagleDraft, hidden_layers_of
from tests.modeling.common import random_ids
from tests.raising import raises
from tests.tiny import SHAPES


@pytest.fixture(scope="module")
def num_layers(original):
    return original.config.num_hidden_layers


@pytest.fixture(scope="module")
def speculating(checkpoint, num_layers):
    options = {**SHAPES, "speculation": True, "hidden_state_layers": (num_layers,), "disable_validation": True}
    with NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **options) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def config(original):
    return LlamaConfig(**{**original.config.to_dict(), "num_hidden_layers": 1})


class Reference(torch.nn.Module):
    """The network without a cache: a layer of transformers, with or without its first norm."""

    def __init__(self, config, original, *, has_input_norm) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size)
        layer = LlamaDecoderLayer(config, 0)
        if not has_input_norm:
            layer.input_layernorm = torch.nn.Identity()
        self.layers = torch.nn.ModuleList([layer])
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        self.rotary, self.others = LlamaRotaryEmbedding(config), [original]

    def guesses(self, ids_T, hidden_TD, number):
        """A chain of guesses behind tokens, each of which follows a normalized hidden state of the decoder."""
        ids_T, found, model = ids_T.clone(), [], self.others[0]
        for _ in range(number):
            x = self.fc(torch.cat([model.model.embed_tokens(ids_T), hidden_TD], -1))[None]
            angles = self.rotary(x, torch.arange(len(ids_T))[None])
            mask = torch.full((len(ids_T),) * 2, -torch.inf).triu(1)[None, None]
            out = self.layers[0](x, attention_mask=mask, position_embeddings=angles)
            out_D = (out[0] if isinstance(out, tuple) else out)[0, -1:]
            found.append(int(model.lm_head(out_D).argmax()))
            ids_T, hidden_TD = torch.cat([ids_T, torch.tensor(found[-1:])]), torch.cat([hidden_TD, out_D])
        return found


def saved(config, reference, folder, prefix="", **others):
    config.save_pretrained(folder)
    tensors = {f"{prefix}{name}": tensor for name, tensor in reference.state_dict().items() if "rotary" not in name}
    save_file(tensors | others, folder / "model.safetensors")
    return folder


@pytest.mark.full(days=6)
@torch.no_grad()
@pytest.mark.parametrize("has_input_norm", [False, True])
def test_guesses_are_those_of_the_network_without_a_cache(
    speculating, original, config, num_layers, tmp_path, has_input_norm
):
    reference = Reference(config, original, has_input_norm=has_input_norm)
    folder = saved(config, reference, tmp_path, "model." if has_input_norm else "")
    assert hidden_layers_of(folder, num_layers) == (num_layers,)
    draft = EagleDraft.from_pretrained(folder, speculating)
    ids = random_ids(1, 24, seed=5)
    found = []
    hook = original.model.norm.register_forward_hook(lambda module, inputs, output: found.extend([*inputs, output]))
    original(ids)
    hook.remove()
    raw_TD, normed_TD = found[0][0], found[1][0]
    sequence, read = draft.begin(), 0
    for end in (9, 10, 14, 22):  # a prompt, then checks of which so many tokens stay
        expected = reference.guesses(ids[0, 1 : end + 1], normed_TD[:end], draft.num_candidates)
        assert sequence.propose(ids[:, : end + 1], raw_TD[read:end]) == expected
        read = end
    options = {"max_new_tokens": 20, "pad_token_id": 0, "eos_token_id": None, "do_sample": False}
    prompt = {"input_ids": ids[:, :8], "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    tokens = speculating.generate(**prompt, **options, assistant_model=draft)
    assert torch.equal(tokens, original.generate(**prompt, **options))
    assert speculating.last_speculation.draft == "EAGLE draft" and speculating.last_speculation.num_candidates > 0
    draft.close()


def test_drafts_that_do_not_fit(speculating, model, original, config, num_layers, tmp_path):
    reference = Reference(config, original, has_input_norm=False)
    folder = saved(config, reference, tmp_path / "draft")
    with raises(ConfigError, option="speculation"):
        EagleDraft.from_pretrained(folder, model)
    with raises(WeightsError, unknown=["layers.1.mlp.up_proj.weight"]):
        EagleDraft.from_pretrained(
            saved(config, reference, tmp_path / "two", **{"layers.1.mlp.up_proj.weight": torch.zeros(1)}), speculating
        )
    with raises(WeightsError, path=str(tmp_path)):
        hidden_layers_of(tmp_path, num_layers)
