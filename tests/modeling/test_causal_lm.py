"""`forward`, its buckets, and its errors; generation is in `test_generate.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.upstream.cache_argument import CACHE
from tests.modeling.common import random_ids, same
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES

LENGTH = SHAPES["sequence_length"]
OUTPUTS = ["output_attentions", "output_hidden_states"]


@pytest.fixture(scope="module")
def expected(original):
    """Logits of the original, without gradients."""

    def run(*arguments: Any, **options: Any) -> torch.Tensor:
        with torch.no_grad():
            return original(*arguments, **options)

    return run


@pytest.mark.parametrize(("rows", "columns"), [*((2, n) for n in (1, 15, 16, 17, LENGTH)), (1, 9), (3, 9), (4, 9)])
def test_logits_of_prompts_of_every_bucket_and_of_fewer_and_more_rows_than_compiled(model, expected, rows, columns):
    ids = random_ids(rows, columns)
    same(model(ids).logits, expected(ids).logits)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_padding_on_either_side(model, expected, side, dtype):
    ids, mask = random_ids(3, 10), torch.ones(3, 10, dtype=torch.long)
    mask[1, slice(0, 4) if side == "left" else slice(6, 10)] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    target = expected(ids, attention_mask=mask, position_ids=positions).logits
    actual = model(ids, attention_mask=mask.to(dtype), position_ids=positions).logits
    same(actual[mask.bool()], target[mask.bool()])


def test_tokens_one_by_one_through_cache(model, expected):
    ids = random_ids(2, 12)
    target, cache, result = expected(ids).logits, None, []
    for start, stop in ((0, 5), (5, 6), (6, 9), (9, 12)):
        output = model(ids[:, start:stop], **{CACHE: cache}, use_cache=True)
        cache = output[CACHE]
        result.append(output.logits)
    same(torch.cat(result, 1), target)


def test_padded_tokens_added_to_cache(model, expected):
    """The second row adds two real tokens, the first three; then both go on."""
    ids, mask = random_ids(2, 11), torch.ones(2, 11, dtype=torch.long)
    mask[1, 6] = 0
    cache = model(ids[:, :6], use_cache=True)[CACHE]
    actual = model(ids[:, 6:9], attention_mask=mask[:, :9], **{CACHE: cache}, logits_to_keep=2).logits
    target = expected(ids, attention_mask=mask, position_ids=mask.cumsum(1) - 1).logits
    same(actual, target[:, 7:9])
    same(model(ids[:, 9:], attention_mask=mask, **{CACHE: cache}).logits, target[:, 9:])


def test_last_slots_are_filled_near_cache_end(model, expected):
    ids = random_ids(2, LENGTH)
    cache = model(ids[:, :43], use_cache=True)[CACHE]
    same(model(ids[:, 43:], **{CACHE: cache}).logits, expected(ids).logits[:, 43:])


NAMED = [torch.tensor([0, 3]), torch.tensor([8]), torch.tensor(2), torch.arange(9) > 6]


@pytest.mark.parametrize("keep", [1, 3, *NAMED])
def test_logits_to_keep_as_number_and_tensor(model, expected, keep):
    ids = random_ids(2, 9)
    same(model(ids, logits_to_keep=keep).logits, expected(ids, logits_to_keep=keep).logits)
    result, target = model(ids, labels=ids, logits_to_keep=keep), expected(ids, labels=ids)
    same(result.loss, target.loss)
    same(result.logits, target.logits[:, -keep:] if isinstance(keep, int) else target.logits[:, keep])


def test_inputs_of_int32_and_on_device(model, expected):
    ids = random_ids(2, 9)
    for inputs in (ids.int(), ids.to("neuron"), ids.int().to("neuron")):
        actual = model(inputs, attention_mask=torch.ones_like(inputs), inputs_embeds=None).logits
        assert actual.device.type == "cpu"
        same(actual, expected(ids).logits)
    with raises(ShapeError, devices={"input 0": "meta"}):
        model(ids.to("meta"))


def test_loss_matches_transformers(model, expected):
    ids = random_ids(3, 10)
    labels = ids.clone()
    labels[0, :4], labels[2, 7:] = -100, -100
    result, target = model(ids, labels=labels, logits_to_keep=2), expected(ids, labels=labels)
    same(result.loss, target.loss)
    same(result.logits, target.logits[:, -2:])


def test_shapes_of_answer(model):
    ids = random_ids(1, 4)
    output = model(ids)
    assert isinstance(output, CausalLMOutputWithPast) and output.logits.shape == (1, 4, NUM_BYTE_TOKENS)
    assert model.config.use_cache and output.get(CACHE) is not None
    assert model(ids, use_cache=False).get(CACHE) is None
    logits, cache = model(ids, return_dict=False)
    assert torch.equal(logits, output.logits) and cache.columns == 4


def test_smallest_bucket_is_chosen_with_reasons(model):
    choice = model.choose_bucket(17)
    assert choice.value == 48 and choice.reason == "smallest bucket that holds 17 tokens"
    assert [(r.candidate, r.reason) for r in choice.rejected] == [("16", "less than 17 tokens")]
    assert model.choose_bucket(16).rejected == ()
    with pytest.raises(ShapeError) as error:
        model.choose_bucket(49)
    assert error.value.details == {"size": 49, "buckets": [16, 48]}


MISFITS: list[tuple[dict[str, Any], type[Exception], dict[str, Any]]] = [
    ({"input_ids": torch.ones(1, LENGTH + 1).long()}, ShapeError, {"length": LENGTH + 1, "sequence_length": LENGTH}),
    ({"input_ids": torch.ones(2, 0).long()}, ShapeError, {"input": "input_ids", "shape": [2, 0]}),
    ({"input_ids": torch.ones(7).long()}, ShapeError, {"input": "input_ids", "shape": [7]}),
    ({"input_ids": torch.ones(1, 7)}, ShapeError, {"input": "input_ids", "dtype": "float32"}),
    ({"input_ids": [[5, 6]]}, ShapeError, {"input": "input_ids"}),
    ({"input_ids": torch.full((1, 7), NUM_BYTE_TOKENS)}, ShapeError, {"token": NUM_BYTE_TOKENS}),
    ({"input_ids": torch.full((1, 7), -1)}, ShapeError, {"token": -1}),
    ({"attention_mask": torch.ones(1, 3)}, ShapeError, {"shape": [1, 3], "expected": [1, 7]}),
    ({"attention_mask": torch.ones(1, 1, 7, 7)}, ShapeError, {"shape": [1, 1, 7, 7], "expected": [1, 7]}),
    ({"attention_mask": torch.full((1, 7), 15)}, ShapeError, {"input": "attention_mask", "value": 15}),
    ({"labels": torch.ones(1, 3).long()}, ShapeError, {"input": "labels", "shape": [1, 3]}),
    ({"labels": torch.full((1, 7), NUM_BYTE_TOKENS)}, ShapeError, {"input": "labels", "token": NUM_BYTE_TOKENS}),
    ({"position_ids": torch.ones(1, 7).long()}, ShapeError, {}),
    ({CACHE: DynamicCache()}, ConfigError, {}),
    ({"output_attentions": True, "output_hidden_states": True}, ConfigError, {"options": OUTPUTS}),
    ({"inputs_embeds": torch.zeros(1, 7, 32)}, ConfigError, {"argument": "inputs_embeds"}),
    ({"no_such_option": 1}, TypeError, {}),
]


@pytest.mark.parametrize(("options", "error", "details"), MISFITS, ids=lambda value: None)
def test_unsupported_inputs(model, options, error, details):
    with raises(error, **details):
        model(**{"input_ids": random_ids(1, 7), **options})


def test_model_has_transformers_attributes(model):
    assert (model.device.type, model.dtype, model.training) == ("cpu", torch.float32, False)
    assert model.eval() is model and model.to("cpu") is model and model.to(torch.float32) is model
    assert model.can_generate() and model.main_input_name == "input_ids"
    for elsewhere in ("cuda", torch.bfloat16):
        with pytest.raises(ConfigError):
            model.to(elsewhere)
