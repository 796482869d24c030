"""Every way to generate returns the tokens of transformers; settings that are fixed at export are errors."""

from __future__ import annotations

import functools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from transformers import (
    AutoTokenizer,
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
    set_seed,
)

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.modeling.cache import NeuronCache
from optimum_neuron.upstream.cache_argument import CACHE
from tests.modeling import common
from tests.modeling.common import random_ids
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES

NUM_NEW = 20
GREEDY = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
LENGTH = SHAPES["sequence_length"]


def inputs_of(rows: int, columns: int = 7, padding: int = 0) -> dict[str, torch.Tensor]:
    """Random prompts; the last row is padded on the left."""
    ids, mask = random_ids(rows, columns), torch.ones(rows, columns, dtype=torch.long)
    mask[-1, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture
def both(model, original):
    """Generate with the compiled model and with the original, and return both results."""

    def generate(rows: int = 1, columns: int = 7, padding: int = 0, **options: Any) -> tuple[Any, Any]:
        options = {**GREEDY, "max_new_tokens": NUM_NEW, **options}
        results = []
        for runner in (model, original):
            set_seed(0)
            results.append(runner.generate(**inputs_of(rows, columns, padding), **options))
        return results[0], results[1]

    return generate


@pytest.fixture
def equal(both):
    """Generate with both, require the same tokens, and return them."""

    def check(**options: Any) -> torch.Tensor:
        actual, expected = both(**options)
        assert actual.tolist() == expected.tolist()
        return actual

    return check


PROMPTS: list[dict[str, Any]] = [
    *({"rows": rows} for rows in (1, 2, 3, 5)),  # fewer and more than compiled
    *({"rows": 2, "columns": columns} for columns in (1, 15, 16, 17)),  # around a bucket
    *({"rows": 2, "padding": padding} for padding in (1, 6)),
    # Padding uses no slot: of 60 columns, the longest row has 8 real ones and 40 new ones, so 48 slots suffice.
    {"rows": 1, "columns": 20, "padding": 12, "max_new_tokens": 40},
    {"rows": 2, "padding": 3, "use_cache": False},
    {"prompt_lookup_num_tokens": 3},
    {"generation_config": GenerationConfig(num_beams=2, repetition_penalty=1.1)},
]


@pytest.mark.parametrize("options", PROMPTS, ids=lambda options: "+".join(options))
def test_greedy(equal, options):
    options = {"rows": 1, "columns": 7, "max_new_tokens": NUM_NEW, **options}
    assert equal(**options).shape == (options["rows"], options["columns"] + options["max_new_tokens"])


def test_right_padding_generates_like_no_padding(model):
    padded = inputs_of(1, 10)
    padded["attention_mask"][:, 6:] = 0
    options = {**GREEDY, "max_new_tokens": NUM_NEW}
    actual = model.generate(**padded, **options)[:, 10:]
    ids = padded["input_ids"][:, :6]
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, 6:]
    assert torch.equal(actual, expected)


SAMPLING: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_k": 10, "top_p": 0.9},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"typical_p": 0.8, "min_p": 0.01, "epsilon_cutoff": 1e-4},
    {"min_new_tokens": 5, "bad_words_ids": [[7], [8]], "suppress_tokens": [9]},
    {"num_return_sequences": 3},
]


@pytest.mark.parametrize("options", SAMPLING, ids=lambda options: "+".join(options) or "plain")
def test_sampling_draws_same_tokens_from_same_seed(equal, options):
    equal(rows=2, padding=2, do_sample=True, **options)


def test_sampling_depends_on_seed(model):
    inputs, output = inputs_of(1), []
    for seed in (0, 1):
        set_seed(seed)
        output.append(model.generate(**inputs, do_sample=True, max_new_tokens=NUM_NEW, pad_token_id=0).tolist())
    assert output[0] != output[1]


BEAMS: list[dict[str, Any]] = [
    {"num_beams": 2},
    {"rows": 2, "num_beams": 3, "num_return_sequences": 2},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "eos_token_id": 5},
    {"num_beams": 2, "do_sample": True},
]


@pytest.mark.parametrize("options", BEAMS, ids=lambda options: "+".join(options))
def test_beams(equal, options):
    equal(**options)


def test_compiled_model_checks_drafts_of_another(model, original, equal):
    for assistant in (original, model):
        assert equal(assistant_model=assistant).shape == (1, 7 + NUM_NEW)


def test_compiled_model_drafts_for_another(model, original):
    options = {**GREEDY, "max_new_tokens": NUM_NEW}
    result = original.generate(**inputs_of(1), assistant_model=model, **options)
    assert torch.equal(result, original.generate(**inputs_of(1), **options))


def test_scores_and_logits(both):
    options = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True, "repetition_penalty": 1.2}
    result, target = both(rows=3, **options)
    assert type(result) is type(target) and isinstance(result[CACHE], NeuronCache)
    assert torch.equal(result.sequences, target.sequences)
    for kind in ("scores", "logits"):
        assert len(result[kind]) == NUM_NEW
        for step, expected in zip(result[kind], target[kind], strict=True):
            assert step.shape == (3, NUM_BYTE_TOKENS)
            torch.testing.assert_close(step, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("num_more", [1, 5, 12], ids="{}_more".format)
def test_continuing_from_cache_of_earlier_call(model, original, num_more):
    """Fewer tokens than a compiled chunk, and more than one chunk."""
    options = {**GREEDY, "max_new_tokens": 6}
    first = model.generate(**inputs_of(2, padding=2), return_dict_in_generate=True, **options)
    ids = torch.cat([first.sequences, random_ids(2, num_more, seed=1)], 1)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    result = model.generate(ids, attention_mask=mask, **{CACHE: first[CACHE]}, **options)
    assert torch.equal(result, original.generate(ids, attention_mask=mask, **options))


class EndAfter(StoppingCriteria):
    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)


class Only(LogitsProcessor):
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        masked = torch.full_like(scores, -torch.inf)
        masked[:, 40:50] = scores[:, 40:50]
        return masked


def test_stopping_criteria_and_processors_of_user(equal):
    stops = StoppingCriteriaList([EndAfter(12)])
    assert equal(rows=2, stopping_criteria=stops).shape == (2, 12)
    new = equal(rows=2, logits_processor=LogitsProcessorList([Only()]))[:, 7:]
    assert ((new >= 40) & (new < 50)).all()


def test_rows_end_at_their_end_token(both, equal):
    free, _ = both(rows=2)
    end = free[0, 12].item()
    result = equal(rows=2, eos_token_id=end)
    first = result[0, 7:].tolist().index(end)
    assert first <= 5 and set(result[0, 8 + first :].tolist()) <= {0}


def test_stop_strings(both, equal, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    free, _ = both()
    text = tokenizer.decode(free[0, 12:13])
    assert equal(stop_strings=[text], tokenizer=tokenizer).shape[1] <= 13


def test_streaming_from_another_thread(model, original, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    inputs = tokenizer("stream this", return_tensors="pt")
    streams = []
    for runner in (model, original):
        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)
        options = {**inputs, **GREEDY, "max_new_tokens": NUM_NEW, "streamer": streamer}
        thread = threading.Thread(target=runner.generate, kwargs=options)
        thread.start()
        streams.append(list(streamer))
        thread.join()
    assert streams[0] == streams[1] and len(streams[0]) > 1


def test_concurrent_threads(model, original):
    """Each call has its own state on the device."""
    prompts = [random_ids(rows, 8, seed=rows) for rows in (1, 2, 3, 4)]

    def run(runner: Any, ids: torch.Tensor) -> torch.Tensor:
        return runner.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_NEW, **GREEDY)

    with ThreadPoolExecutor(len(prompts)) as pool:
        results = list(pool.map(functools.partial(run, model), prompts))
    assert all(torch.equal(actual, run(original, ids)) for actual, ids in zip(results, prompts, strict=True))


def test_generation_stops_at_cache_end_with_a_warning(model, original, caplog):
    inputs = inputs_of(2, 10, padding=3)
    with caplog.at_level(logging.WARNING, logger="optimum_neuron"):
        result = model.generate(**inputs, max_new_tokens=1000, **GREEDY)
    assert f"limited to {LENGTH - 10} new tokens instead of 1000" in caplog.text
    assert torch.equal(result, original.generate(**inputs, max_new_tokens=LENGTH - 10, **GREEDY))


def test_prompt_filling_the_cache_is_refused(model):
    ids = random_ids(1, LENGTH)
    mask, options = torch.ones_like(ids), {"pad_token_id": 0, "max_new_tokens": 4}
    with raises(ShapeError, length=LENGTH, sequence_length=LENGTH):
        model.generate(ids, attention_mask=mask, **options)
    assert model.generate(ids[:, 1:], attention_mask=mask[:, 1:], **options).shape == (1, LENGTH)


FIXED: list[tuple[dict[str, Any], type[Exception], dict[str, Any]]] = [
    ({"output_attentions": True}, ConfigError, {"options": ["output_attentions"]}),
    ({"output_hidden_states": True}, ConfigError, {"options": ["output_hidden_states"]}),
    ({"cache_implementation": "static"}, ConfigError, {"option": "cache_implementation", "value": "static"}),
    ({"assistant_early_exit": 1}, ConfigError, {"option": "assistant_early_exit", "value": 1}),
    ({CACHE: DynamicCache()}, ConfigError, {}),
    ({"attention_mask": torch.ones(1, 1, 7, 7)}, ValueError, {}),
    ({"inputs_embeds": torch.zeros(1, 7, 32)}, ConfigError, {"argument": "inputs_embeds"}),
    ({"cache_implementation": "paged"}, ConfigError, {}),
    ({"no_such_option": 1}, ValueError, {}),
]


@pytest.mark.parametrize(("options", "error", "details"), FIXED, ids=lambda value: None)
def test_options_fixed_at_export(model, options, error, details):
    with raises(error, **details):
        fixed = {"max_new_tokens": 4, "pad_token_id": 0, "return_dict_in_generate": True}
        model.generate(**{**inputs_of(1), **fixed, **options})


def test_continuous_batching_is_error(model):
    for start in (lambda: model.generate_batch([[5, 6]]), lambda: model.init_continuous_batching()):
        with raises(ConfigError, option="continuous_batching", value=False):
            start()


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_token_ids_of_other_whole_numbers(model, original, dtype):
    options = {**GREEDY, "max_new_tokens": 4}
    result = model.generate(random_ids(2, 7).clamp(max=255).to(dtype), **options)
    assert result.tolist() == original.generate(random_ids(2, 7).clamp(max=255), **options).tolist()


def test_inputs_on_device(model, original):
    options = {**GREEDY, "max_new_tokens": 4}
    expected = original.generate(**inputs_of(2, padding=2), **options)
    actual = model.generate(
        **{name: tensor.to("neuron") for name, tensor in inputs_of(2, padding=2).items()}, **options
    )
    assert actual.device.type == "cpu" and torch.equal(actual, expected)


# Prompts that are longer than every compiled bucket.


@pytest.fixture(scope="module")
def short(checkpoint):
    """A model whose largest bucket is a third of its sequence."""
    shapes = {**SHAPES, "prefill_buckets": (8, 16), "extend_length": 4}
    return NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, disable_validation=True, **shapes)


LONG: list[dict[str, Any]] = [
    {},
    {"prompt_lookup_num_tokens": 3},
    {"num_beams": 3},
    {"do_sample": True, "num_return_sequences": 2},
    {"prefill_chunk_size": 10},
    {"prefill_chunk_size": 30, "prompt_lookup_num_tokens": 3},
    {"use_cache": False},
]


@pytest.mark.parametrize("options", LONG, ids=lambda options: "+".join(options) or "greedy")
def test_prompts_longer_than_largest_bucket(short, original, options):
    # One row for prompt lookup; otherwise the last row is shorter than the bucket.
    inputs = inputs_of(1, 37) if "prompt_lookup_num_tokens" in options else inputs_of(3, 37, padding=29)
    actual, expected = common.both((short, original), inputs, **{**GREEDY, "max_new_tokens": 5, **options})
    assert actual == expected


@pytest.mark.parametrize("keep", [0, 1, 30])
@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_of_prompts_longer_than_largest_bucket(short, original, keep, side):
    ids, mask = random_ids(2, 37), torch.ones(2, 37, dtype=torch.long)
    mask[1, slice(0, 25) if side == "left" else slice(12, 37)] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = original(ids, attention_mask=mask, position_ids=positions).logits[:, -keep:]
    actual = short(ids, attention_mask=mask, logits_to_keep=keep).logits
    real = mask[:, -keep:].bool()
    torch.testing.assert_close(actual[real], expected[real], atol=1e-4, rtol=0)
