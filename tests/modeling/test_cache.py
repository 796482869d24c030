"""The device-resident cache as `generate` and users handle it."""

from __future__ import annotations

import gc
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.modeling.cache import NeuronCache
from optimum_neuron.upstream.cache_argument import CACHE
from tests.tiny import NUM_BYTE_TOKENS

IDS = torch.randint(3, NUM_BYTE_TOKENS, (5, 9), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def fill(model):
    """Run a prompt and return its cache."""

    def run(ids: torch.Tensor) -> NeuronCache:
        return model(ids, use_cache=True)[CACHE]

    return run


def following(model, ids, cache=None):
    """Logits of the last token, after the cached ones."""
    return model(ids, **{CACHE: cache}, logits_to_keep=1).logits[:, 0]


def same(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def test_columns_and_length(model, fill, original):
    cache = fill(IDS[:2])
    assert (cache.get_seq_length(), cache.columns, cache.num_rows) == (9, 9, 2)
    assert len(cache) == original.config.num_hidden_layers
    following(model, IDS[:2, :1], cache)
    assert cache.get_seq_length() == 10
    cache.reset()
    assert cache.get_seq_length() == 0


def test_crop_drops_newest_columns(model, fill):
    cache = fill(IDS[:1])
    cache.crop(-4)
    assert cache.is_croppable and cache.get_seq_length() == 5
    same(following(model, IDS[1:2, :3], cache), following(model, torch.cat([IDS[:1, :5], IDS[1:2, :3]], 1)))


def test_rows_can_be_exchanged_across_sets_of_state(model, fill):
    cache = fill(IDS)
    assert len(list(cache.sequences.groups())) == 3, "five rows of a model compiled for two"
    order = torch.tensor([4, 4, 0, 3, 1])
    cache.reorder_cache(order)
    same(following(model, IDS[:, :1], cache), following(model, torch.cat([IDS[order], IDS[:, :1]], 1)))


def test_rows_can_be_repeated_and_selected(model, fill):
    cache = fill(IDS[:3])
    cache.batch_repeat_interleave(2)
    expected = IDS[:3].repeat_interleave(2, 0)
    assert cache.num_rows == 6
    same(following(model, expected[:, :1], cache), following(model, torch.cat([expected, expected[:, :1]], 1)))
    cache.batch_select_indices(torch.tensor([5, 0]))
    ids = torch.cat([expected[[5, 0]], expected[[5, 0], :1], IDS[3:5, :1]], 1)
    same(following(model, IDS[3:5, :1], cache), following(model, ids))


def test_another_number_of_rows_is_refused(model, fill):
    cache = fill(IDS[:2])
    with pytest.raises(ShapeError) as error:
        model(IDS[:3, :1], **{CACHE: cache})
    assert error.value.details == {"num_rows": 3, "num_cached": 2}
    same(following(model, IDS[:2, :1], cache), following(model, torch.cat([IDS[:2], IDS[:2, :1]], 1)))


def test_cache_of_another_model_is_refused(model, export_folder, fill):
    other = NeuronModelForCausalLM.from_pretrained(export_folder)
    with pytest.raises(ConfigError) as error:
        other(IDS[:2, :1], **{CACHE: fill(IDS[:2])})
    assert error.value.details == {"option": CACHE, "model": model.loaded.claim.model}


def test_cache_is_read_only(fill):
    with pytest.raises(TypeError, match="writes its cache inside the graph"):
        fill(IDS[:1]).update(torch.zeros(1), torch.zeros(1), 0)


def test_nan_is_cleared_after_request(checkpoint, export_folder, tmp_path):
    """A masked slot counts 0 times its value, and 0 times NaN is NaN: used state must not go to the next request."""
    folder = shutil.copytree(checkpoint, tmp_path / "spoilt")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][5] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    model.replace_weights(folder)
    short, spoilt = IDS[:2, :5], IDS[:2].repeat(1, 3)
    spoilt[:, -1] = 5  # at a slot beyond the bucket that the short prompt fills
    options = {"attention_mask": torch.ones_like(short), "do_sample": False, "max_new_tokens": 6, "pad_token_id": 0}
    expected = model.generate(short, **options)
    assert model(spoilt).logits[:, -1].isnan().all()
    gc.collect()
    assert torch.equal(model.generate(short, **options), expected)
