"""Medusa heads of a checkpoint propose tokens; the result is that of plain decoding."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from transformers import set_seed

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, WeightsError
from optimum_neuron.modeling import MedusaHeads
from tests.modeling.common import random_ids
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES

NUM_HEADS, NUM_NEW = 3, 24
OPTIONS = {"max_new_tokens": NUM_NEW, "pad_token_id": 0, "eos_token_id": None}


def inputs_of(seed: int) -> dict[str, torch.Tensor]:
    ids = random_ids(1, 8, seed=seed)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture(scope="module")
def speculating(checkpoint):
    options = {**SHAPES, "speculation": True, "disable_validation": True}
    with NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **options) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def folder(original, tmp_path_factory):
    """Heads that are trained on what the model writes, in seconds."""
    torch.manual_seed(0)
    prompts = random_ids(48, 8, seed=0)
    ids = original.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=False, **OPTIONS)
    with torch.no_grad():
        hidden = original.model(ids).last_hidden_state[:, 7:]
    width = hidden.shape[-1]
    heads = nn.ModuleList(
        nn.ModuleList(
            [nn.ModuleDict({"linear": nn.Linear(width, width)}), nn.Linear(width, NUM_BYTE_TOKENS, bias=False)]
        )
        for _ in range(NUM_HEADS)
    )
    optimizer = torch.optim.Adam(heads.parameters(), lr=2e-2)
    for _ in range(80):
        loss = torch.zeros(())
        for number, (layer, projection) in enumerate(heads):
            x = hidden[:, : -2 - number]
            logits = projection(x + F.silu(layer["linear"](x)))
            loss = loss + F.cross_entropy(logits.flatten(0, 1), ids[:, 9 + number :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("heads")
    save_file(heads.state_dict(), path / "medusa_lm_head.safetensors")
    return path


@pytest.fixture(scope="module")
def heads(speculating, folder):
    loaded = MedusaHeads.from_pretrained(folder, speculating)
    yield loaded
    loaded.close()


@pytest.mark.full(days=4)
@pytest.mark.parametrize("settings", [{"do_sample": False}, {"do_sample": True, "temperature": 0.5}], ids=str)
def test_tokens_are_those_of_plain_decoding(speculating, heads, settings):
    for seed in (0, 1, 100):
        results = []
        for more in ({"assistant_model": heads}, {}):
            set_seed(seed)
            results.append(speculating.generate(**inputs_of(seed), **OPTIONS, **settings, **more).tolist())
        assert results[0] == results[1]
        assert speculating.last_speculation.draft == "Medusa heads"


def test_trained_heads_are_accepted(speculating, heads):
    speculating.generate(**inputs_of(0), **OPTIONS, do_sample=False, assistant_model=heads)
    assert heads.num_heads == NUM_HEADS
    assert speculating.last_speculation.acceptance_rate > 0.2


def test_heads_and_models_that_do_not_fit(folder, model, speculating, heads, tmp_path):
    with raises(ConfigError, option="speculation"):
        MedusaHeads.from_pretrained(folder, model)
    for name in ("weight", "1.0.linear.weight"):
        save_file({name: torch.zeros(1)}, tmp_path / "model.safetensors")
        with raises(WeightsError, folder=str(tmp_path)):
            MedusaHeads.from_pretrained(tmp_path, speculating)
    with raises(ConfigError, option="assistant_model"):
        speculating.generate(random_ids(2, 5), **OPTIONS, assistant_model=heads)
