"""Vision-language models generate the tokens of transformers; inputs that do not fit the graphs are errors."""

from __future__ import annotations

import functools
import json
import logging
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, DynamicCache, TextStreamer

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForImageTextToText
from optimum_neuron.errors import ConfigError, ModelError, ShapeError, WeightsError
from optimum_neuron.exporters.validation import FLOAT32_TOLERANCE, compare
from optimum_neuron.upstream.cache_argument import CACHE
from tests.image_text import (
    IMAGE,
    IMAGE_TOKEN_ID,
    LENGTH,
    MAX_IMAGES,
    SHAPES,
    SMALL,
    TINY,
    VOCABULARY,
    ask,
    save_tiny_image_text,
    tiny_image,
    tiny_prompts,
)
from tests.modeling import common
from tests.raising import raises

GREEDY = {"do_sample": False, "max_new_tokens": 12}
TOKENS = 4
"""Tokens of an image of the tiny Idefics3."""


class Trio:
    """A compiled model, the original and their processor."""

    def __init__(self, folder: Any, **options: Any) -> None:
        self.folder = folder
        self.compiled = NeuronModelForImageTextToText.from_pretrained(folder, export=True, **{**SHAPES, **options})
        self.original = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        self.processor = AutoProcessor.from_pretrained(folder)

    def check(self, inputs: dict[str, Any], **options: Any) -> list[Any]:
        """Generate with both, from the same seed, and require the same tokens."""
        result, expected = common.both((self.compiled, self.original), inputs, **options)
        assert result == expected
        return result


@pytest.fixture(scope="module")
def trios(tmp_path_factory):
    """Return a function that makes the trio of an architecture, once each."""
    folder = tmp_path_factory.mktemp("image_text")
    return functools.cache(lambda name: Trio(save_tiny_image_text(folder / name, name)))


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.full(days=7, by="trio")) for name in TINY])
def trio(request, trios):
    return trios(request.param)


@pytest.fixture
def idefics3(trios):
    return trios("idefics3")


@pytest.fixture
def llava(trios):
    return trios("llava")


@pytest.mark.parametrize("rows", [1, 2, 5], ids="{}_rows".format)
def test_greedy_matches_transformers(trio, rows):
    # No token twice: a random model would repeat itself.
    result = trio.check(tiny_prompts(trio.processor, rows), eos_token_id=None, no_repeat_ngram_size=1, **GREEDY)
    assert len({token for row in result for token in row[-12:]}) > 2, "the tokens must be able to differ"


def test_beams_match_transformers(trio):
    trio.check(tiny_prompts(trio.processor, 3), num_beams=3, do_sample=False, max_new_tokens=6)


def test_logits_match_transformers_and_depend_on_image(trio):
    inputs = tiny_prompts(trio.processor, 3)
    with torch.no_grad():
        expected = trio.original(**inputs)
    actual = trio.compiled(**inputs)
    real = inputs["attention_mask"].bool()
    error = compare("logits", actual.logits[real], expected.logits[real], tolerance=FLOAT32_TOLERANCE)
    assert error.ok and error.sqnr_db > 80 and error.top1_agreement == 1, str(error)
    assert type(actual) is type(expected)
    features = trio.original.get_image_features(**{k: v for k, v in inputs.items() if k.startswith("pixel")})
    assert actual.keys() == expected.keys()
    own = actual.image_outputs.pooler_output if "image_outputs" in actual else [actual.image_hidden_states]
    torch.testing.assert_close(torch.cat(list(own)), torch.cat(list(features.pooler_output)), atol=1e-4, rtol=0)
    other = trio.compiled(**inputs | {"pixel_values": inputs["pixel_values"].flip(-1)})
    assert (other.logits - actual.logits)[0, -1].abs().max() > 1e-2
    torch.testing.assert_close(other.logits[1][real[1]], actual.logits[1][real[1]])  # it has no image


def test_prompts_with_images_are_compared(trio):
    assert any("with 2 images" in error.output for error in trio.compiled.prepared.validation)


def test_text_without_images_matches_transformers(trio):
    trio.check(ask(trio.processor, ["hello there", "you"], [[], []]), **GREEDY)


@pytest.mark.full(days=4)
@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "temperature": 0.7, "top_k": 10},
        {"do_sample": True, "num_return_sequences": 3},
        {"num_beams": 4, "num_return_sequences": 2, "no_repeat_ngram_size": 2},
        {"do_sample": False, "use_cache": False, "suppress_tokens": [IMAGE_TOKEN_ID]},
        {"do_sample": False, "repetition_penalty": 1.3},
        {"do_sample": False, "stop_strings": ["zz"]},
    ],
    ids=lambda options: "+".join(options),
)
@pytest.mark.parametrize("name", ["idefics3", "llava"])
def test_ways_to_generate(name, options, trios):
    trio = trios(name)
    if "stop_strings" in options:
        options = options | {"tokenizer": trio.processor.tokenizer}
    trio.check(tiny_prompts(trio.processor, 3), max_new_tokens=8, **options)


def test_prompt_lookup_candidates_are_checked_together(idefics3):
    idefics3.check(tiny_prompts(idefics3.processor, 1), prompt_lookup_num_tokens=3, **GREEDY)


@pytest.mark.full(days=2)
@pytest.mark.parametrize("name", ["idefics3", "llava"])
def test_model_in_memory(name, trios):
    trio = trios(name)
    compiled_model = NeuronModelForImageTextToText.from_model(trio.original, **SHAPES)
    inputs = tiny_prompts(trio.processor, 3)
    assert torch.equal(compiled_model(**inputs).logits, trio.compiled(**inputs).logits)


def test_image_is_encoded_once_for_all_beams(idefics3, monkeypatch):
    loaded_class, graphs = type(idefics3.compiled.loaded), []
    run = loaded_class.run
    monkeypatch.setattr(loaded_class, "run", lambda self, graph, *rest: graphs.append(graph) or run(self, graph, *rest))
    idefics3.compiled.generate(**tiny_prompts(idefics3.processor, 1), num_beams=4, max_new_tokens=3)
    assert graphs.count("encode_image") == 1


def test_tokens_are_streamed(llava, capsys):
    inputs = tiny_prompts(llava.processor, 1)
    result = llava.compiled.generate(**inputs, **GREEDY, streamer=TextStreamer(llava.processor.tokenizer))
    assert capsys.readouterr().out.strip() == llava.processor.tokenizer.decode(result[0]).strip()


@pytest.mark.parametrize("length", [4, 5, 24, 25, LENGTH])
def test_prompts_around_bucket(idefics3, length):
    ids = torch.arange(50, 50 + length)[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if length > 4:
        inputs["input_ids"][0, 1 : 1 + TOKENS] = IMAGE_TOKEN_ID
        inputs["pixel_values"] = torch.randn(1, 1, 3, IMAGE, IMAGE, generator=torch.Generator().manual_seed(length))
    with torch.no_grad():
        expected = idefics3.original(**inputs).logits
    torch.testing.assert_close(idefics3.compiled(**inputs).logits, expected, atol=1e-4, rtol=0)
    last = idefics3.compiled(**inputs, logits_to_keep=1).logits
    torch.testing.assert_close(last, expected[:, -1:], atol=1e-4, rtol=0)


def test_padding_on_right(idefics3):
    inputs = tiny_prompts(idefics3.processor, 3, padding_side="right")
    real = inputs["attention_mask"].bool()
    assert not real[:, -1].all()
    with torch.no_grad():
        expected = idefics3.original(**inputs).logits
    torch.testing.assert_close(idefics3.compiled(**inputs).logits[real], expected[real], atol=1e-4, rtol=0)


def test_padding_patches_are_masked(idefics3):
    inputs = tiny_prompts(idefics3.processor, 1)
    inputs["pixel_attention_mask"][..., : IMAGE // 2] = 0
    with torch.no_grad():
        expected = idefics3.original(**inputs).logits
    actual = idefics3.compiled(**inputs).logits
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)
    inputs["pixel_attention_mask"][:] = 1
    assert (idefics3.compiled(**inputs).logits - actual).abs().max() > 1e-3


def test_split_image_is_its_tiles(tmp_path):
    folder = save_tiny_image_text(tmp_path / "split", "idefics3")
    processor = AutoProcessor.from_pretrained(folder)
    processor.image_processor.size, processor.image_processor.do_image_splitting = {"longest_edge": 2 * IMAGE}, True
    processor.save_pretrained(folder)
    trio = Trio(folder, **SMALL | {"max_num_images": None})
    assert trio.compiled.max_num_images == 2 * 2 + 1
    inputs = ask(trio.processor, ["<image>?"], [[tiny_image(0)]])
    assert inputs["pixel_values"].shape[:2] == (1, 5)
    trio.check(inputs, **GREEDY)


def test_several_images(tmp_path):
    trio = Trio(save_tiny_image_text(tmp_path / "batched", "llava"), **SMALL, image_batch_size=2)
    trio.check(tiny_prompts(trio.processor, 3), **GREEDY)  # three images


def test_loss_matches_transformers(idefics3):
    inputs = tiny_prompts(idefics3.processor, 3, padding_side="right")
    inputs["labels"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    with torch.no_grad():
        expected = idefics3.original(**inputs).loss
    actual = idefics3.compiled(**inputs)
    torch.testing.assert_close(actual.loss, expected, atol=1e-4, rtol=0)
    assert torch.equal(idefics3.compiled(**inputs, return_dict=False)[1], actual.logits)


def test_precomputed_features(llava):
    inputs = tiny_prompts(llava.processor, 3)
    expected = llava.compiled(**inputs).logits
    features = llava.compiled.get_image_features(inputs.pop("pixel_values"))
    assert torch.equal(llava.compiled(**inputs, mm_encoder_outputs={"image": features}).logits, expected)


def test_saved_model_is_loaded_again(trio, tmp_path):
    trio.compiled.save_pretrained(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert {"model.neuron", "model.safetensors", "neuron_config.json", "processor_config.json"} <= names
    loaded_model = NeuronModelForImageTextToText.from_pretrained(tmp_path / "saved")
    inputs = tiny_prompts(AutoProcessor.from_pretrained(tmp_path / "saved"), 3)
    assert torch.equal(loaded_model.generate(**inputs, **GREEDY), trio.compiled.generate(**inputs, **GREEDY))
    assert loaded_model.neuron_config == trio.compiled.neuron_config
    with raises(ConfigError, differences=["max_num_images=9, compiled with 3"]):
        NeuronModelForImageTextToText.from_pretrained(tmp_path / "saved", max_num_images=9)
    with raises(ModelError, task="image-text-to-text"):
        NeuronModelForCausalLM.from_pretrained(tmp_path / "saved")


def test_weights_are_replaced_without_compiling(tmp_path):
    trio = Trio(save_tiny_image_text(tmp_path / "first", "llava"))
    inputs = tiny_prompts(trio.processor, 3)
    before = trio.compiled.generate(**inputs, **GREEDY)
    other = save_tiny_image_text(tmp_path / "other", "llava", seed=1)
    config = json.loads((other / "config.json").read_text())
    config["text_config"] |= {"_name_or_path": "somewhere", "attention_dropout": 0.1}  # no graph depends on these
    (other / "config.json").write_text(json.dumps(config))
    trio.compiled.replace_weights(other)
    actual = trio.compiled.generate(**inputs, **GREEDY)
    expected = AutoModelForImageTextToText.from_pretrained(other, dtype=torch.float32).generate(**inputs, **GREEDY)
    assert torch.equal(actual, expected)
    assert not torch.equal(before, actual)


def test_weights_of_another_vision_tower_are_refused(idefics3, tmp_path):
    vision = TINY["idefics3"][1]["vision_config"] | {"hidden_act": "relu"}
    with raises(WeightsError) as error:
        idefics3.compiled.replace_weights(save_tiny_image_text(tmp_path / "other", "idefics3", vision_config=vision))
    (problem,) = error.value.details["problems"]
    assert problem.startswith("vision_config=")


def test_generation_stops_at_cache_end_with_warning(idefics3, caplog):
    with caplog.at_level(logging.WARNING):
        inputs = tiny_prompts(idefics3.processor, 1)
        result = idefics3.compiled.generate(**inputs, do_sample=False, max_new_tokens=90, eos_token_id=None)
    assert result.shape == (1, LENGTH)
    assert f"sequence_length={LENGTH}" in caplog.text


PIXELS = torch.zeros(1, 1, 3, IMAGE, IMAGE) + 0.5
IDS = torch.tensor([[60, *[IMAGE_TOKEN_ID] * TOKENS, 61]])
MANY_IDS = torch.tensor([[60, *[IMAGE_TOKEN_ID] * TOKENS * (MAX_IMAGES + 1)]])
MANY_PIXELS = PIXELS.repeat(1, MAX_IMAGES + 1, 1, 1, 1)
SWAPPED_IDS = torch.cat((IDS, torch.full((1, 6), 60)))
SWAPPED_PIXELS = torch.cat((torch.zeros_like(PIXELS), PIXELS))
FLAT_PIXELS = torch.zeros(1, 1, 3, 20, 24)
MASK, SQUARE = {"pixel_attention_mask": torch.ones(1, 1, IMAGE, IMAGE)}, [3, IMAGE, IMAGE]
TWICE = {"pixel_values": PIXELS, "mm_encoder_outputs": {"image": 1}}


def unequal(row: int, num_tokens: int, num_features: int) -> str:
    return f"Row {row} has {num_tokens} image tokens and {num_features} features"


MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "other_size": ({"pixel_values": FLAT_PIXELS}, {"shape": list(FLAT_PIXELS.shape), "expected": SQUARE}),
    "other_channels": ({"pixel_values": PIXELS[:, :, :1]}, {"expected": SQUARE}),
    "other_rank": ({"pixel_values": PIXELS[0]}, {"shape": [1, *SQUARE]}),
    "no_images": ({"pixel_values": PIXELS[:, :0]}, {"shape": [1, 0, *SQUARE]}),
    "integers": ({"pixel_values": PIXELS.long()}, {"dtype": "torch.int64"}),
    "mask_of_other_pixels": (
        {"pixel_values": PIXELS, "pixel_attention_mask": torch.ones(1, 1, 8, 8)},
        {"shape": [1, 1, 8, 8], "expected": [1, 1, IMAGE, IMAGE]},
    ),
    "more_images_than_compiled": (
        {"input_ids": MANY_IDS, "pixel_values": MANY_PIXELS},
        {"num_images": {0: MAX_IMAGES + 1}, "max_num_images": MAX_IMAGES},
    ),
    "fewer_tokens": ({"input_ids": IDS[:, 2:], "pixel_values": PIXELS}, {"problems": [unequal(0, 3, 4)]}),
    "no_image": ({}, {"problems": ["The prompts have 4 image tokens and 0 features"]}),
    "no_tokens": ({"input_ids": torch.tensor([[60, 61]]), "pixel_values": PIXELS}, {"problems": [unequal(0, 0, 4)]}),
    "the_image_of_another_row": (
        {"input_ids": SWAPPED_IDS, "pixel_values": SWAPPED_PIXELS},
        {"problems": [unequal(0, 4, 0), unequal(1, 0, 4)]},
    ),
    "too_long": ({"input_ids": torch.full((1, LENGTH + 1), 60)}, {"sequence_length": LENGTH}),
    "no_such_token": ({"input_ids": torch.tensor([[VOCABULARY]])}, {"token": VOCABULARY}),
}
UNSUPPORTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "host_cache": ({CACHE: DynamicCache()}, {}),
    "attentions": ({"output_attentions": True}, {"options": ["output_attentions"]}),
    "videos": ({"mm_encoder_outputs": {"video": 1}}, {"keys": ["video"]}),
    "a_mask_alone": (MASK, {"arguments": ["pixel_attention_mask"]}),
    "images_twice": (TWICE, {"arguments": ["pixel_values", "mm_encoder_outputs"]}),
}


@pytest.mark.parametrize("case", [*MISFITS, *UNSUPPORTED])
def test_misfit_inputs(idefics3, case):
    inputs, details = (MISFITS | UNSUPPORTED)[case]
    with raises(ShapeError if case in MISFITS else ConfigError, **details):
        idefics3.compiled(**{"input_ids": IDS, **inputs})


def test_inputs_unsupported_by_llava(llava):
    with raises(ShapeError, input="pixel_attention_mask"):
        llava.compiled(IDS, pixel_values=PIXELS[0], pixel_attention_mask=torch.ones(1, IMAGE, IMAGE))
    num_tokens = llava.compiled.prepared.metadata["image_tokens"]
    with raises(ShapeError, image_tokens=num_tokens):
        llava.compiled(IDS, pixel_values=PIXELS)
    torn = torch.tensor([[IMAGE_TOKEN_ID] * (num_tokens + 1), [IMAGE_TOKEN_ID] * (num_tokens - 1) + [60] * 2])
    with raises(ShapeError, problems=[f"Row {row} has {num_tokens + d} image tokens" for row, d in ((0, 1), (1, -1))]):
        llava.compiled(torn, pixel_values=PIXELS[0].repeat(2, 1, 1, 1))


@pytest.mark.full(days=2)
def test_prompt_beyond_buckets_is_refused(tmp_path):
    trio = Trio(save_tiny_image_text(tmp_path / "short", "idefics3"), prefill_buckets=(8, 24))
    with raises(ShapeError, size=25, buckets=[8, 24]):
        trio.compiled(torch.full((1, 25), 60))


def test_images_with_cache_are_refused(idefics3):
    cache = idefics3.compiled(IDS, pixel_values=PIXELS)[CACHE]
    mask = torch.ones(1, 2 * IDS.shape[1], dtype=torch.long)
    with raises(ConfigError, arguments=[CACHE]):
        idefics3.compiled(IDS, attention_mask=mask, pixel_values=PIXELS, **{CACHE: cache})


def test_unknown_keywords_are_refused(idefics3):
    with pytest.raises(TypeError, match="image_sizes"):
        idefics3.compiled(IDS, image_sizes=1)
    with pytest.raises(ValueError, match="image_sizes"):
        idefics3.compiled.generate(IDS, image_sizes=1)
    with raises(ConfigError, options=["max_num_image"]):
        NeuronModelForImageTextToText.from_pretrained(idefics3.folder, export=True, max_num_image=2)
