"""Layers with a window or with chunks keep their newest tokens only, and write what transformers writes."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.models import build_decoder, key_value_state
from optimum_neuron.models.generic import build, ring_states
from optimum_neuron.upstream.cache_argument import CACHE
from tests.models.mixtures import MIXTURES
from tests.tiny import VOCABULARY, save_tiny, tiny_config

WINDOW, CHUNK, LENGTH = 8, 4, 64
SHAPES = {
    **{"sequence_length": LENGTH, "batch_size": 2, "prefill_buckets": (4, 32), "decode_buckets": (LENGTH,)},
    **{"extend_length": CHUNK, "torch_dtype": "float32", "optlevel": "1", "disable_validation": True},
}
LAYERS = {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
LLAMA4 = MIXTURES["llama4_text"]["llama4"][1] | {"attention_chunk_size": WINDOW}
TWO_CORES = {"instance_type": "trn1.2xlarge", "tensor_parallel_size": 2, "family": "generic"}
CASES = {
    "family": ("gemma3_text", LAYERS | {"sliding_window": WINDOW}, {}),
    "chunks": ("llama4_text", LLAMA4, {}),
    "generic, two cores": ("mistral", {"sliding_window": WINDOW, "num_hidden_layers": 2}, TWO_CORES),
}
IDS = torch.randint(3, VOCABULARY, (3, 50), generator=torch.Generator().manual_seed(5))


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.full(days=3, by="models")) for name in CASES]
)
def models(request, tmp_path_factory):
    model_type, overrides, options = CASES[request.param]
    folder = save_tiny(tmp_path_factory.mktemp("windows"), model_type, **overrides)
    original = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    compiled = NeuronModelForCausalLM.from_pretrained(folder, export=True, **SHAPES, **options)
    return SimpleNamespace(original=original, compiled=compiled, num_cores=options.get("tensor_parallel_size", 1))


@pytest.mark.full(days=4)
@pytest.mark.parametrize(
    ("num_tokens", "num_rows", "padding", "options"),
    [
        (3, 3, 0, {}),
        (12, 2, 7, {}),
        (38, 2, 5, {}),  # longer than the largest bucket
        (14, 1, 0, {"num_beams": 3}),
        (14, 1, 0, {"prompt_lookup_num_tokens": 10}),  # more than can be forgotten
    ],
    ids=["short prompt", "padded rows", "chunks of a prompt", "beams", "candidates"],
)
def test_tokens_are_those_of_transformers(models, num_tokens, num_rows, padding, options):
    ids, mask = IDS[:num_rows, :num_tokens], torch.ones(num_rows, num_tokens, dtype=torch.int64)
    mask[0, :padding] = 0
    settings = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False, "pad_token_id": 0, **options}
    actual = models.compiled.generate(ids, attention_mask=mask, **settings)[:, num_tokens:]
    for row in range(num_rows):
        # Chunks of transformers begin at other tokens where a row is padded.
        own = ids[row, mask[row] == 1][None]
        expected = models.original.generate(own, attention_mask=torch.ones_like(own), **settings)
        assert actual[row].tolist() == expected[0, own.shape[1] :].tolist()


def test_assistants_propose_no_more_than_can_be_forgotten(models):
    settings = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    for assistant in (models.original, models.compiled):
        models.original.generation_config.num_assistant_tokens = 20
        actual = models.compiled.generate(IDS[:1, :14], assistant_model=assistant, **settings)
        assert actual.tolist() == models.original.generate(IDS[:1, :14], **settings).tolist()


@pytest.fixture(scope="module")
def turns(models):
    """Logits of several calls on one cache, the cache, and the logits of transformers for the whole rows."""
    ids, mask = IDS[:2], torch.ones(2, 50, dtype=torch.int64)
    mask[0, :9], mask[1, 21:25] = 0, 0  # before the tokens of a call, and behind those of another one
    logits, cache = [], None
    expected = torch.zeros(2, 50, models.original.config.vocab_size)
    for row in range(2):
        # transformers' windows count padding between calls.
        with torch.no_grad():
            expected[row, mask[row] == 1] = models.original(ids[row, mask[row] == 1][None]).logits[0]
    for start, end in ((0, 11), (11, 12), (12, 23), (23, 29), (29, 30), (30, 50)):
        result = models.compiled(ids[:, start:end], attention_mask=mask[:, :end], **{CACHE: cache}, use_cache=True)
        logits.append(result.logits)
        cache = result[CACHE]
    return SimpleNamespace(ids=ids, mask=mask, logits=torch.cat(logits, 1), cache=cache, expected=expected)


def test_several_turns_and_scores(models, turns):
    real = turns.mask.bool()
    torch.testing.assert_close(turns.logits[real], turns.expected[real], atol=1e-4, rtol=1e-4)
    whole = models.compiled(turns.ids[:1], attention_mask=turns.mask[:1]).logits
    torch.testing.assert_close(whole[real[:1]], turns.expected[:1][real[:1]], atol=1e-4, rtol=1e-4)
    with pytest.raises(ShapeError) as error:  # in one call, the padding is a hole
        models.compiled(turns.ids, attention_mask=turns.mask)
    assert (error.value.details["row"], error.value.details["column"]) == (1, 21)


def test_as_many_tokens_can_be_forgotten_as_one_call_adds(models, turns):
    cache = copy.deepcopy(turns.cache)
    cache.crop(1 - CHUNK)
    cache.crop(-1)
    for start, end in ((50 - CHUNK, 51 - CHUNK), (51 - CHUNK, 50)):
        step = models.compiled(turns.ids[:, start:end], attention_mask=turns.mask[:, :end], **{CACHE: cache})
        torch.testing.assert_close(step.logits, turns.expected[:, start:end], atol=1e-4, rtol=1e-4)
    with pytest.raises(ConfigError) as error:
        cache.crop(-CHUNK - 1)
    assert error.value.details == {"num_tokens": CHUNK + 1, "num_forgettable": CHUNK}
    assert cache.get_seq_length() == 50
    cache.crop(-50)
    prompt = models.compiled(turns.ids[:, 22:40], **{CACHE: cache})
    torch.testing.assert_close(prompt.logits, models.compiled(turns.ids[:, 22:40]).logits)


def test_memory_and_report_show_what_is_kept(models):
    states = models.compiled.loaded.program.states
    slots = [spec.shape[3] for name, spec in states.items() if name.startswith("key_cache")]
    config = models.original.config
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    kept = [LENGTH if kind == "full_attention" else WINDOW + CHUNK - 1 for kind in kinds]
    assert slots == kept * models.num_cores
    report = models.compiled.describe()
    assert report["windows"]["value"] == "ring" and f"with a window of {WINDOW}" in report["windows"]["reason"]
    num_elements = sum(torch.Size(spec.shape).numel() for spec in states.values())
    assert report["hbm_bytes"]["kv_cache"] == 4 * num_elements // models.num_cores


@pytest.mark.parametrize("family", [None, "generic"])
def test_windows_that_a_sequence_does_not_fill_are_left_out(family):
    config = tiny_config("gemma3_text", sliding_window=WINDOW)
    whole = build_decoder(config, dtype="float32", family=family, num_tokens=WINDOW)
    assert whole.windows is None and not whole.counts_tokens
    ring = build_decoder(config, dtype="float32", family=family, num_tokens=WINDOW + 1)
    assert ring.windows.value == "ring" and ring.counts_tokens
    assert [state[0].shape(1, WINDOW + 1, CHUNK)[3] for state in ring.states] == [WINDOW + 1] * 4


def test_code_of_a_checkpoint_keeps_every_token(monkeypatch):
    decoder = build(tiny_config("mistral", sliding_window=WINDOW))
    monkeypatch.setattr(type(decoder.model), "__module__", "transformers_modules.mine.modeling")
    states, choice = ring_states(decoder, [key_value_state(2, 8, 8)] * 3, LENGTH)
    assert choice.value == "whole" and "code that comes with a checkpoint" in choice.reason
    assert all(tensor.window is None for state in states for tensor in state)
