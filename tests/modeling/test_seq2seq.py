"""Encoder-decoders generate the tokens of transformers; inputs that do not fit the compiled graphs are errors."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from optimum_neuron import NeuronModelForMaskedLM, NeuronModelForSeq2SeqLM
from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from optimum_neuron.modeling.cache import NeuronCache
from optimum_neuron.upstream.cache_argument import CACHE
from tests.modeling import common
from tests.raising import raises
from tests.seq2seq import SHAPES, SOURCE, TARGET, TINY, VOCABULARY, save_tiny_seq2seq

GREEDY = {"do_sample": False, "num_beams": 1, "max_new_tokens": TARGET - 2}


def sources(rows: int, columns: int, padding: int = 0, *, side: str = "right", filler: int = 1) -> dict[str, Any]:
    """Random sources; the last row is padded."""
    ids = torch.randint(3, VOCABULARY, (rows, columns), generator=torch.Generator().manual_seed(rows))
    mask = torch.ones_like(ids)
    if padding:
        mask[-1, slice(columns - padding, None) if side == "right" else slice(padding)] = 0
    return {"input_ids": ids.masked_fill(mask == 0, filler), "attention_mask": mask}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Return a function that makes a compiled model and the original of an architecture, once each."""

    @functools.cache
    def make(model_type):
        folder = save_tiny_seq2seq(tmp_path_factory.mktemp("seq2seq") / model_type, model_type)
        model = NeuronModelForSeq2SeqLM.from_pretrained(folder, export=True, **SHAPES)
        return model, AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()

    return make


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.full(days=7, by="pair")) for name in TINY])
def pair(request, pairs):
    return pairs(request.param)


@pytest.fixture
def model(pairs):
    return pairs("bart")[0]


@pytest.fixture
def original(pairs):
    return pairs("bart")[1]


def check(model, original, inputs: dict[str, Any], **options: Any) -> list[Any]:
    """Generate with both, from the same seed, and require the same tokens."""
    result, expected = common.both((model, original), inputs, **options)
    assert result == expected
    return result


@pytest.mark.parametrize("rows", [1, 2, 5], ids="{}_rows".format)
def test_greedy_matches_transformers(pair, rows):
    model, original = pair
    filler = original.config.pad_token_id
    # No token twice: the tied head of a random model would repeat the one that it is given.
    options = {**GREEDY, "eos_token_id": None, "no_repeat_ngram_size": 1}
    result = check(model, original, sources(rows, 11, 4, filler=filler), **options)
    assert len({token for row in result for token in row}) > 3, "the tokens must be able to differ"


def test_beams_match_transformers(pair):
    model, original = pair
    inputs = sources(2, 7, 3, filler=original.config.pad_token_id)
    check(model, original, inputs, num_beams=3, do_sample=False, max_new_tokens=8)


@pytest.mark.parametrize("columns", [1, 8, 9, SOURCE], ids="{}_tokens".format)
def test_sources_around_bucket(model, original, columns):
    check(model, original, sources(2, columns), **GREEDY)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side(model, original, side):
    check(model, original, sources(3, 10, 6, side=side), **GREEDY)


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "temperature": 0.7, "top_k": 10},
        {"do_sample": True, "num_return_sequences": 3},
        {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5, "no_repeat_ngram_size": 2},
        {"num_beams": 2, "do_sample": True},
        {"do_sample": False, "use_cache": False},
        {"do_sample": False, "repetition_penalty": 1.3},
    ],
    ids=lambda options: "+".join(options),
)
def test_ways_to_generate(model, original, options):
    check(model, original, sources(2, 9, 2), max_new_tokens=8, **options)


def test_started_target_is_continued(model, original):
    prefix = torch.tensor([[2, 17, 30], [2, 41, 5]])
    inputs = sources(2, 9) | {"decoder_input_ids": prefix}
    result = check(model, original, inputs, do_sample=False, num_beams=1, max_new_tokens=5)
    assert [row[:3] for row in result] == prefix.tolist()


def test_forward_matches_transformers(model, original):
    inputs = sources(3, 9, 2) | {"decoder_input_ids": torch.tensor([[2, 5, 6, 7]] * 3)}
    with torch.no_grad():
        expected = original(**inputs)
    actual = model(**inputs)
    assert torch.allclose(actual.logits, expected.logits, atol=1e-4)
    real = inputs["attention_mask"].bool()
    hidden, reference = actual.encoder_last_hidden_state, expected.encoder_last_hidden_state
    assert torch.allclose(hidden[real], reference[real], atol=1e-4)
    assert torch.equal(model(**inputs, return_dict=False)[0], actual.logits)


def test_hidden_states_of_original_encoder_can_be_decoded(model, original):
    inputs = sources(2, 9)
    with torch.no_grad():
        hidden = original.get_encoder()(**inputs).last_hidden_state
    target = torch.tensor([[2], [2]])
    outputs = BaseModelOutput(last_hidden_state=hidden)
    result = model(encoder_outputs=outputs, attention_mask=inputs["attention_mask"], decoder_input_ids=target)
    with torch.no_grad():
        assert torch.allclose(result.logits, original(**inputs, decoder_input_ids=target).logits, atol=1e-4)


def test_saved_model_is_loaded_again(model, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    loaded_model = NeuronModelForSeq2SeqLM.from_pretrained(tmp_path / "saved")
    inputs = sources(2, 9, 2)
    assert torch.equal(loaded_model.generate(**inputs, **GREEDY), model.generate(**inputs, **GREEDY))
    assert loaded_model.neuron_config == model.neuron_config
    with raises(ConfigError, differences=["decoder_sequence_length=20, compiled with 12"]):
        NeuronModelForSeq2SeqLM.from_pretrained(tmp_path / "saved", decoder_sequence_length=20)
    with raises(ModelError, task="text2text-generation"):
        NeuronModelForMaskedLM.from_pretrained(tmp_path / "saved")


def test_beams_of_one_source_do_not_copy_its_keys(model):
    inputs = sources(2, 9)
    hidden = model.encoder(**inputs).last_hidden_state.repeat_interleave(2, 0)
    mask = inputs["attention_mask"].repeat_interleave(2, 0)
    target = torch.tensor([[5], [6], [7], [8]])

    def after(order: list[int]) -> NeuronCache:
        """The cache after a token of four rows, the first two of one source; row 1 is marked before it is reordered."""
        cache = model(encoder_outputs=(hidden,), attention_mask=mask, decoder_input_ids=target)[CACHE]
        for state in row(cache, 1).values():
            state.fill_(7.0)
        cache.reorder_cache(torch.tensor(order))
        return cache

    def row(cache: NeuronCache, index: int) -> dict[str, torch.Tensor]:
        place = cache.sequences._places[index]
        states = cache.sequences._sets[place.state_set]
        return {name: state[place.row] for name, state in zip(model.loaded.program.states, states, strict=True)}

    def marked(cache: NeuronCache, index: int) -> list[bool]:
        return [bool((row(cache, index)[name] == 7).all()) for name in ("self_key.0", "cross_key.0")]

    cache = after([1, 0, 2, 3])
    assert len(cache) == len(model.loaded.program.states) // 4
    assert [marked(cache, index) for index in range(4)] == [[True, True], *[[False, False]] * 3]
    cache = after([1, 1, 2, 3])
    assert marked(cache, 0) == [True, True] and marked(cache, 1) == [True, False], "its source is the same"
    cache = after([1, 0, 3, 1])
    assert marked(cache, 0) == marked(cache, 3) == [True, True], "it took the row of another source"


def test_target_stops_at_cache_end_with_a_warning(model, caplog):
    with caplog.at_level(logging.WARNING):
        result = model.generate(**sources(1, 5), do_sample=False, max_new_tokens=30, eos_token_id=None)
    assert result.shape == (1, TARGET)
    assert "decoder_sequence_length=12" in caplog.text


def test_state_is_released(model):
    sets = len(model.loaded._idle_states)
    model.generate(**sources(2, 5), **GREEDY)
    assert len(model.loaded._idle_states) >= sets


SHIFTED = {"decoder_input_ids": torch.tensor([[1, 2]]), "decoder_attention_mask": torch.tensor([[0, 1]])}

REFUSALS = {
    "source_too_long": ({"input_ids": torch.full((1, 17), 5)}, ShapeError, {"size": 17, "buckets": [8, 16]}),
    "target_too_long": ({"decoder_input_ids": torch.full((1, 13), 5)}, ShapeError, {"num_tokens": 13}),
    "no_source": ({"input_ids": None}, ShapeError, {"missing": "input_ids"}),
    "no_target": ({"decoder_input_ids": None}, ShapeError, {"missing": "decoder_input_ids"}),
    "no_such_token": (
        {"input_ids": torch.full((1, 4), VOCABULARY)},
        ShapeError,
        {"input": "input_ids", "token": VOCABULARY},
    ),
    "other_rows": ({"input_ids": torch.full((2, 4), 5)}, ShapeError, {"num_targets": 1}),
    "padded_target": (SHIFTED, ShapeError, {"option": "decoder_attention_mask"}),
    "host_cache": ({CACHE: DynamicCache()}, ConfigError, {"option": CACHE, "type": "DynamicCache"}),
    "attentions": ({"output_attentions": True}, ConfigError, {"options": ["output_attentions"]}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_misfit_inputs_are_refused(model, case):
    arguments, error, details = REFUSALS[case]
    fitting = {"input_ids": torch.full((1, 4), 5), "decoder_input_ids": torch.tensor([[2]])}
    with raises(error, **details):
        model(**fitting | arguments)


def test_sources_on_device_are_brought_to_host(model):
    ids = torch.full((1, 4), 5)
    result = model.generate(ids.to("neuron"), max_new_tokens=2)
    assert torch.equal(result, model.generate(ids, max_new_tokens=2))
    with raises(ShapeError, devices={"input 0": "meta"}):
        model.generate(ids.to("meta"), max_new_tokens=2)


def test_embeddings_are_refused(model):
    for name in ("inputs_embeds", "decoder_inputs_embeds"):
        for call in (model, model.generate):
            with raises(ConfigError, argument=name):
                call(**sources(1, 4), **{name: torch.zeros(1, 4, 32)})


def test_cache_by_name_is_refused(model):
    with raises(ConfigError, option="cache_implementation"):
        model.generate(**sources(1, 4), cache_implementation="static", max_new_tokens=4)


def test_encoder_and_decoder_can_be_called_alone(pair):
    model, original = pair
    inputs, ids = sources(2, 9, padding=3), torch.randint(3, VOCABULARY, (2, 4))
    with torch.no_grad():
        expected = original(**inputs, decoder_input_ids=ids)
    hidden = model.encoder(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
    reference = expected.encoder_last_hidden_state
    torch.testing.assert_close(hidden[:, :6], reference[:, :6], atol=1e-4, rtol=1e-4)
    arguments = {"encoder_hidden_states": hidden, "encoder_attention_mask": inputs["attention_mask"]}
    first = model.decoder(ids[:, :3], **arguments)
    torch.testing.assert_close(first.logits, expected.logits[:, :3], atol=1e-4, rtol=1e-4)
    rest = model.decoder(ids[:, 3:], **arguments, **{CACHE: first[CACHE]}, return_dict=False)
    torch.testing.assert_close(rest[0], expected.logits[:, 3:], atol=1e-4, rtol=1e-4)
    with pytest.raises(ShapeError):
        model.decoder(ids)
    with pytest.raises(ConfigError):
        model.decoder(ids, **arguments, output_hidden_states=True)


@pytest.mark.full(days=2)
def test_beams_of_export_are_default_of_generate(original, tmp_path):
    model = NeuronModelForSeq2SeqLM.from_model(original, num_beams=3, **SHAPES)
    program = model.loaded.program
    rows = {name: next(iter(graph.inputs.values())).shape[0] for name, graph in program.graphs.items()}
    assert rows == {"encode_8": 2, "encode_16": 2, "prefill_8": 6, "prefill_16": 6, "decode": 6}
    model.save_pretrained(tmp_path)
    model = NeuronModelForSeq2SeqLM.from_pretrained(tmp_path)
    options = {"do_sample": False, "max_new_tokens": TARGET - 2, "no_repeat_ngram_size": 1}
    for inputs in (sources(2, 9, padding=3), sources(5, 7)):
        expected = original.generate(**inputs, **options, num_beams=3).tolist()
        assert model.generate(**inputs, **options).tolist() == expected
    states = len(model.loaded.charges)
    model.generate(**sources(2, 9), **options)
    assert len(model.loaded.charges) == states, "the beams of a batch need one set of state"
    greedy = original.generate(**sources(1, 5), **{**options, "num_beams": 1}).tolist()
    assert model.generate(**sources(1, 5), **options, num_beams=1).tolist() == greedy


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.full(days=7, by="with_layers")) for name in TINY]
)
def with_layers(request, tmp_path_factory):
    """A model that was exported with the results of each layer, and the original."""
    folder = save_tiny_seq2seq(tmp_path_factory.mktemp("layers") / request.param, request.param)
    options = SHAPES | {"output_attentions": True, "output_hidden_states": True}
    if request.param != "bart":
        options["sequence_length"] = SOURCE  # one bucket, which takes half of the time
    model = NeuronModelForSeq2SeqLM.from_pretrained(folder, export=True, **options)
    return model, AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def test_hidden_states_match_reference(with_layers):
    model, original = with_layers
    inputs, ids = sources(3, 9), torch.randint(3, VOCABULARY, (3, 4))
    with torch.no_grad():
        expected = original(**inputs, decoder_input_ids=ids, output_attentions=True, output_hidden_states=True)
    actual = model(**inputs, decoder_input_ids=ids, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(actual.logits, expected.logits, atol=1e-4, rtol=1e-4)
    alone = model.decoder(ids, encoder_hidden_states=actual.encoder_last_hidden_state)
    assert torch.equal(alone.hidden_states[-1], actual.decoder_hidden_states[-1])
    assert torch.equal(alone.attentions[0], actual.decoder_attentions[0])
    parts = [f"{part}_{kind}" for part in ("encoder", "decoder") for kind in ("hidden_states", "attentions")]
    for name in (*parts, "cross_attentions"):
        assert len(actual[name]) == len(expected[name])
        for output, reference in zip(actual[name], expected[name], strict=True):
            torch.testing.assert_close(output, reference, atol=1e-4, rtol=1e-4)
    outputs = {error.output for error in model.prepared.validation}
    layers = [f"encoder {kind}" for kind in ("hidden_states", "attentions")]
    layers += [f"token {step} {kind}_attentions" for step in (0, 1) for kind in ("cross", "decoder")]
    assert {f"sources of {size}: {layer}" for size in model.source_buckets for layer in layers} <= outputs


def test_generate_returns_hidden_states(with_layers):
    model, original = with_layers
    options = {"output_attentions": True, "output_hidden_states": True, "return_dict_in_generate": True}
    answers = [runner.generate(**sources(2, 9), **GREEDY, **options) for runner in (model, original)]
    assert answers[0].sequences.tolist() == answers[1].sequences.tolist()
    for name in ("decoder_attentions", "cross_attentions", "decoder_hidden_states"):
        actual, expected = ([layer for step in answer[name] for layer in step] for answer in answers)
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
    assert len(answers[0].encoder_attentions) == len(answers[1].encoder_attentions)
