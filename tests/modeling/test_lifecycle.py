"""Resources of a model, their release, and no growth over many calls."""

from __future__ import annotations

import copy
import gc
import threading

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSeq2SeqLM, NeuronModelForSequenceClassification
from optimum_neuron.errors import CoreBusyError
from optimum_neuron.hardware import resolve_instance
from optimum_neuron.runtime import held_cores, ledger
from optimum_neuron.upstream.cache_argument import CACHE
from tests import seq2seq
from tests.encoders import VOCABULARY, save_tiny_encoder
from tests.footprint import footprint
from tests.tiny import NUM_BYTE_TOKENS

IDS = torch.randint(3, NUM_BYTE_TOKENS, (20, 9), generator=torch.Generator().manual_seed(3))
OPTIONS = {"do_sample": False, "max_new_tokens": 2, "pad_token_id": 0, "eos_token_id": None}
MAX_GROWTH_BYTES = 512 * 2**10
"""The heap moves by a few pages between calls; one set of state that is kept for every call is far more."""


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))


def used(model):
    return [
        ledger(loaded_model.claim.instance, core).used_by_owner().get(loaded_model.claim.model, {})
        for loaded_model in model.copies.loaded
        for core in loaded_model.claim.core_ids
    ]


def generate(model, rows, **options):
    ids = IDS[:rows]
    return model.generate(ids, attention_mask=torch.ones_like(ids), **{**OPTIONS, **options})


@pytest.fixture
def own(export_folder):
    """A model of one test: nothing else is charged to it."""
    with NeuronModelForCausalLM.from_pretrained(export_folder) as model:
        yield model


def test_large_batch_state_is_released(own):
    before = used(own)
    assert generate(own, 20).shape == (20, 11)
    gc.collect()
    assert used(own) == before


def test_state_held_by_cache_stays_charged(own):
    before, need = used(own)[0]["kv_cache"], own.loaded.need.kv_cache
    cache = own(IDS, use_cache=True)[CACHE]
    assert used(own)[0]["kv_cache"] == before + 9 * need, "twenty rows of a model compiled for two"
    del cache
    gc.collect()
    assert used(own)[0]["kv_cache"] == before


@pytest.mark.full(days=4)
def test_memory_is_stable_over_200_mixed_generations(own):
    kinds = [
        {"rows": 1},
        {"rows": 5, "max_new_tokens": 1},
        {"rows": 2, "num_beams": 3},
        {"rows": 9},
        {"rows": 1, "prompt_lookup_num_tokens": 2, "max_new_tokens": 4},
        {"rows": 3, "do_sample": True, "num_return_sequences": 2},
        {"rows": 20, "max_new_tokens": 1},
        {"rows": 2, "use_cache": False},
    ]
    for kind in kinds:
        generate(own, **kind)
    hbm, before = used(own), footprint()
    for index in range(200):
        generate(own, **kinds[index % len(kinds)])
    after = footprint()
    assert used(own) == hbm and after.num_descriptors <= before.num_descriptors
    assert after.num_tensors <= before.num_tensors and after.num_threads <= before.num_threads
    assert after.resident_bytes - before.resident_bytes <= MAX_GROWTH_BYTES


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy], ids=["deepcopy", "copy"])
def test_copied_cache_is_independent(own, copied):
    """As prefix caching does it: one prompt, whose cache is copied for each request."""
    prefix, rows = IDS[:3, :5], IDS[:3, 5:]
    cache, before = own(prefix, use_cache=True)[CACHE], used(own)[0]
    copied_cache = copied(cache)
    assert used(own)[0]["weights"] == before["weights"]
    assert used(own)[0]["kv_cache"] == before["kv_cache"] + 2 * own.loaded.need.kv_cache
    logits = own(rows, **{CACHE: copied_cache}).logits
    assert (cache.columns, copied_cache.columns) == (5, 9)
    torch.testing.assert_close(logits, own(IDS[:3]).logits[:, 5:], atol=1e-4, rtol=0)
    torch.testing.assert_close(own(rows, **{CACHE: cache}).logits, logits)


def test_prefix_is_shared_by_generations(own, original):
    prefix = own(IDS[:1, :5], use_cache=True)[CACHE]
    for row in (0, 1):
        ids = torch.cat([IDS[:1, :5], IDS[row : row + 1, 5:]], 1)
        result = own.generate(ids, **{CACHE: copy.deepcopy(prefix)}, **OPTIONS)
        assert torch.equal(result, original.generate(ids, **OPTIONS))


def test_close_frees_core_and_memory_and_later_calls_are_errors(export_folder):
    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    cache = model(IDS, use_cache=True)[CACHE]
    instance = model.loaded.claim.instance
    model.close()
    model.close()
    assert held_cores(instance) == [] and used(model) == [{}]
    for call in (
        lambda: model(IDS[:2]),
        lambda: model(IDS[:, :1], **{CACHE: cache}),
        lambda: generate(model, 2),
        lambda: copy.deepcopy(cache),
        lambda: model.replace_weights(export_folder),
    ):
        with pytest.raises(CoreBusyError) as closed:
            call()
        assert closed.value.details["closed"]


def test_context_manager_closes_model_after_error(export_folder):
    with pytest.raises(ZeroDivisionError), NeuronModelForCausalLM.from_pretrained(export_folder) as model:
        assert len(held_cores(model.loaded.claim.instance)) == 1
        1 / 0  # noqa: B018
    assert held_cores(model.loaded.claim.instance) == []


@pytest.mark.full(days=2)
def test_encoder_decoder_closes(tmp_path):
    folder = seq2seq.save_tiny_seq2seq(tmp_path / "t5", "t5")
    with NeuronModelForSeq2SeqLM.from_pretrained(folder, export=True, **seq2seq.SHAPES) as model:
        before = used(model)
        model.generate(IDS[:5] % seq2seq.VOCABULARY, max_new_tokens=2, num_beams=2)
        gc.collect()
        assert used(model) == before
    assert held_cores(model.loaded.claim.instance) == []
    with pytest.raises(CoreBusyError):
        model.generate(IDS[:1] % seq2seq.VOCABULARY, max_new_tokens=2)


def test_copies_on_several_cores_close_with_their_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-1")
    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    ids = IDS[:4, :8] % VOCABULARY

    def threads():
        return [thread for thread in threading.enumerate() if thread.name.startswith("NeuronCore")]

    num_threads = len(threads())
    options = {"batch_size": 1, "sequence_length": 8, "optlevel": "1", "data_parallel_mode": "all"}
    with NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **options) as model:
        model(ids)
        assert len(threads()) == num_threads + 2 and len(held_cores(resolve_instance().value)) == 2
    assert len(threads()) == num_threads and held_cores(resolve_instance().value) == []
    with pytest.raises(CoreBusyError):
        model(ids)
    assert len(threads()) == num_threads
