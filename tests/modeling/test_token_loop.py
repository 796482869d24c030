"""The loop of compiled steps returns what transformers' loop returns, and says why it was chosen."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, MaxTimeCriteria, StoppingCriteriaList, set_seed

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.base.core import Choice
from optimum_neuron.modeling.cache import NeuronCache
from optimum_neuron.upstream.cache_argument import CACHE
from tests.modeling.common import random_ids
from tests.tiny import SHAPES

NUM_NEW = 16
OPTIONS = {"max_new_tokens": NUM_NEW, "pad_token_id": 0, "eos_token_id": None, "do_sample": False}


class Streamer:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []

    def put(self, tokens: torch.Tensor) -> None:
        self.tokens.append(tokens.tolist())

    def end(self) -> None:
        self.tokens.append("end")


def choose_transformers(*args: Any, **kwargs: Any) -> Choice[str]:
    return Choice(value="transformers", reason="a test compares it")


@pytest.fixture
def both_loops(model, monkeypatch):
    """Generate with each loop from the same seed, and return both results and what was streamed."""

    def generate(inputs: dict[str, Any], **options: Any) -> tuple[list[Any], list[Any]]:
        results, streams = [], []
        for name in ("compiled steps", "transformers"):
            with monkeypatch.context() as patch:
                if name == "transformers":
                    patch.setattr("optimum_neuron.modeling.generation.choose_loop", choose_transformers)
                set_seed(0)
                streamer = Streamer() if options.get("num_beams", 1) == 1 else None
                results.append(model.generate(**inputs, **{**OPTIONS, **options}, streamer=streamer))
                streams.append(streamer)
                assert model.last_loop.value == name
        assert streams[0].tokens == streams[1].tokens and streams[0].tokens[-1] == "end"
        return results[0], results[1]

    return generate


def inputs_of(rows: int, side: str = "left", padding: int = 3) -> dict[str, torch.Tensor]:
    ids, mask = random_ids(rows, 9), torch.ones(rows, 9, dtype=torch.long)
    if rows > 1:
        mask[1, slice(0, padding) if side == "left" else slice(9 - padding, 9)] = 0
    return {"input_ids": ids, "attention_mask": mask}


CASES: list[tuple[int, str, dict[str, Any]]] = [
    (1, "left", {}),
    (2, "right", {}),
    (5, "left", {}),  # more rows than compiled
    (3, "left", {"do_sample": True}),
    (2, "left", {"do_sample": True, "top_k": 5, "top_p": 0.8, "temperature": 0.6, "num_return_sequences": 2}),
    (
        2,
        "left",
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 4, "eos_token_id": [5, 9, 77]},
    ),
    (2, "left", {"guidance_scale": 1.5}),
    (4, "left", {"do_sample": True, "eos_token_id": list(range(40, 80))}),  # rows end at different times
    (1, "left", {"max_length": 12, "max_new_tokens": None}),
    (2, "left", {"prefill_chunk_size": 4}),
]


@pytest.mark.parametrize(("rows", "side", "options"), CASES)
def test_results_equal_those_of_transformers_loop(both_loops, rows, side, options):
    ours, theirs = both_loops(
        inputs_of(rows, side), return_dict_in_generate=True, output_scores=True, output_logits=True, **options
    )
    assert type(ours) is type(theirs) and ours.keys() == theirs.keys()
    assert torch.equal(ours.sequences, theirs.sequences)
    for name in ("scores", "logits"):
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=0)  # the alignment of memory matters
    assert ours[CACHE].columns == theirs[CACHE].columns
    assert torch.equal(both_loops(inputs_of(rows, side), **options)[0], theirs.sequences)


def test_turns_continue_from_the_cache(both_loops, model):
    first = {name: model.generate(**inputs_of(2), **OPTIONS, return_dict_in_generate=True) for name in "ab"}
    ids = torch.cat([first["a"].sequences, random_ids(2, 4, seed=1)], 1)
    mask = torch.nn.functional.pad(inputs_of(2)["attention_mask"], (0, ids.shape[1] - 9), value=1)
    inputs = {"input_ids": ids, "attention_mask": mask}
    expected = model.generate(**inputs, **OPTIONS)
    for result in first.values():
        assert torch.equal(model.generate(**inputs, **OPTIONS, **{CACHE: result[CACHE]}), expected)
    cache = first["a"][CACHE]
    cache.crop(-(cache.columns - 9))
    again = model.generate(first["b"].sequences[:, :10], **OPTIONS, **{CACHE: cache}, attention_mask=mask[:, :10])
    assert torch.equal(again[:, :25], first["b"].sequences)


def test_stop_strings_and_time(both_loops, model, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    text = tokenizer.decode(model.generate(**inputs_of(1), **OPTIONS)[0, 14:15])
    ours, theirs = both_loops(inputs_of(1), stop_strings=[text], tokenizer=tokenizer)
    assert torch.equal(ours, theirs) and ours.shape[1] <= 15
    ended = StoppingCriteriaList([MaxTimeCriteria(1.0, initial_timestamp=time.time() - 2)])
    assert both_loops(inputs_of(2), stopping_criteria=ended)[0].shape == (2, 10)


def test_a_processor_that_raises_leaves_a_cache_that_counts_its_tokens(model):
    def fail(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] == 12:
            raise RuntimeError("stop")
        return scores

    cache = NeuronCache(model.loaded, model._signature)
    with pytest.raises(RuntimeError, match="stop"):
        model.generate(**inputs_of(1), **OPTIONS, logits_processor=[fail], **{CACHE: cache})
    assert cache.columns == 12


REASONS: list[tuple[str, dict[str, Any]]] = [
    ("cache", {"use_cache": False}),
    ("compiled", {}),
]


@pytest.mark.parametrize(("word", "options"), REASONS)
def test_choice_has_a_reason(model, word, options):
    model.generate(**inputs_of(1), **{**OPTIONS, "max_new_tokens": 2}, **options)
    assert word in str(model.last_loop)


def test_replaced_methods_are_called(model, export_folder):
    class Counting(NeuronModelForCausalLM):
        calls = 0

        def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> Any:
            Counting.calls += 1
            return super().prepare_inputs_for_generation(*args, **kwargs)

    with Counting.from_pretrained(export_folder) as counting:
        result = counting.generate(**inputs_of(1), **OPTIONS)
        assert Counting.calls == NUM_NEW and "prepare_inputs_for_generation" in counting.last_loop.reason
        assert torch.equal(result, model.generate(**inputs_of(1), **OPTIONS))
    assert SHAPES["batch_size"] == 2  # rows above and below it are in CASES
