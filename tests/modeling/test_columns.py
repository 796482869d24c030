"""Masks of every shape: what transformers computes where columns between tokens have none, and what is refused."""

from __future__ import annotations

import copy
import inspect
import itertools

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.modeling import Columns
from optimum_neuron.models import reach_of
from optimum_neuron.upstream.cache_argument import CACHE
from tests.models.tiny_decoders import tiny_decoder, tiny_decoder_config
from tests.tiny import VOCABULARY, save_tiny

WINDOW, LENGTH = 3, 7
LIMITS = {
    "mistral": {"sliding_window": WINDOW},
    "gemma3_text": {"sliding_window": WINDOW},
    "llama4_text": {"attention_chunk_size": WINDOW},
    "gpt_neo": {"window_size": WINDOW},
    "mpt": {},
    "bloom": {},
    "llama": {},
}
"""Model type to what limits its layers."""
RECURRENT = ("lfm2", "mamba2", "qwen3_next")
MASKS = torch.tensor([mask for mask in itertools.product((0, 1), repeat=LENGTH) if any(mask)])
"""Every mask of so many columns."""


def differing(model_type, limits):
    """Return which rows of `MASKS` have other logits in transformers than their tokens alone."""
    config = tiny_decoder_config(model_type)
    for name, value in limits.items():
        setattr(config, name, value)
    model = tiny_decoder(model_type, config=config)
    ids = torch.randint(3, 100, (1, LENGTH), generator=torch.Generator().manual_seed(1)).expand(len(MASKS), -1)
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    positions = {"position_ids": (MASKS.cumsum(1) - 1).clamp(min=0)} if takes_positions else {}
    differs = torch.zeros(len(MASKS), dtype=torch.bool)
    with torch.no_grad():
        logits = model(ids, attention_mask=MASKS, **positions).logits
        for length in range(1, LENGTH + 1):
            rows = MASKS.sum(1) == length
            real = MASKS[rows].bool()
            alone = model(ids[rows][real].view(-1, length)).logits
            errors = (logits[rows][real].view_as(alone) - alone).abs().amax((1, 2)) / alone.abs().max()
            assert not ((errors > 1e-5) & (errors < 1e-4)).any(), "no difference is as small as rounding"
            differs[rows] = errors > 1e-5
    return differs, model.config.get_text_config(decoder=True)


@pytest.mark.parametrize("model_type", [*LIMITS, *RECURRENT])
def test_masks_are_refused_where_transformers_differs_from_tokens_alone(model_type):
    differs, config = differing(model_type, LIMITS.get(model_type, {}))
    states, reach = ["conv_state"] if model_type in RECURRENT else [], reach_of(config)
    refused = []
    for mask in MASKS:
        try:
            Columns().check_holes(mask[None], 0, reach, states)
        except ShapeError as error:
            place = error.details["column"]
            assert not mask[place] and mask[:place].any() and mask[place:].any()
            refused.append(True)
        else:
            refused.append(False)
    assert refused == differs.tolist()
    assert any(refused) == (model_type not in ("bloom", "llama"))


# A compiled model.

SHAPES = {
    **{"sequence_length": 32, "batch_size": 2, "prefill_buckets": (16,), "decode_buckets": (32,)},
    **{"extend_length": 4, "torch_dtype": "float32", "optlevel": "1", "disable_validation": True},
}
IDS = torch.randint(3, VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(5))
OPTIONS = {"do_sample": False, "pad_token_id": 0}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = save_tiny(tmp_path_factory.mktemp("columns"), "mistral", sliding_window=6, num_hidden_layers=2)
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()


@pytest.fixture(scope="module")
def model(original):
    return NeuronModelForCausalLM.from_pretrained(original.name_or_path, export=True, **SHAPES)


def masks(*rows):
    return torch.tensor([[int(column) for column in row] for row in rows])


def same(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_hole_within_window_is_as_in_transformers(model, original):
    mask = masks("1011", "1111")
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = original(IDS[:, :4], attention_mask=mask, position_ids=positions).logits
    same(model(IDS[:, :4], attention_mask=mask).logits[mask.bool()], expected[mask.bool()])
    expected = original.generate(IDS[:, :4], attention_mask=mask, max_new_tokens=3, **OPTIONS)
    assert torch.equal(model.generate(IDS[:, :4], attention_mask=mask, max_new_tokens=3, **OPTIONS), expected)
    assert model.last_loop.value == "transformers" and "holes" in model.last_loop.reason


HOLE = {"input": "attention_mask", "row": 0, "column": 1, "windows": [6], "states": []}


def test_hole_that_a_window_counts_is_an_error(model):
    with pytest.raises(ShapeError) as error:
        model(IDS[:, :8], attention_mask=masks("10111111", "11111111"))
    assert error.value.details == HOLE
    # The window gets there while tokens are added: by `generate`, and by another turn.
    with pytest.raises(ShapeError) as error:
        model.generate(IDS[:, :4], attention_mask=masks("1011", "1111"), max_new_tokens=9, **OPTIONS)
    assert error.value.details == HOLE
    cache = model(IDS[:, :4], attention_mask=masks("1011", "1111"))[CACHE]
    with pytest.raises(ShapeError) as error:
        model(IDS[:, 4:8], attention_mask=masks("10111111", "11111111"), **{CACHE: copy.deepcopy(cache)})
    assert error.value.details == HOLE
    cache.reorder_cache(torch.tensor([1, 0]))
    with pytest.raises(ShapeError) as error:
        model(IDS[:, 4:8], attention_mask=masks("11111111", "10111111"), **{CACHE: cache})
    assert error.value.details == HOLE | {"row": 1}


def alone(original, row, columns):
    """Logits of transformers for some columns of a row."""
    with torch.no_grad():
        return original(IDS[row : row + 1, columns]).logits[0]


def test_padding_on_either_side_of_turns_is_no_hole(model, original):
    mask, cache = masks("00111011111110", "11110001110111"), None
    logits = []
    for start, end in ((0, 5), (5, 10), (10, 11), (11, 14)):
        result = model(IDS[:, start:end], attention_mask=mask[:, :end], **{CACHE: cache})
        cache = result[CACHE]
        logits.append(result.logits)
    real = mask.bool()
    for row in range(2):
        same(torch.cat(logits, 1)[row, real[row]], alone(original, row, real[row].nonzero().flatten()))


def test_right_padded_prompt_goes_on(model, original):
    mask = masks("1111000", "1111111")
    tokens = model.generate(IDS[:, :7], attention_mask=mask, max_new_tokens=8, **OPTIONS)[:, 7:]
    expected = original.generate(IDS[:1, :4], attention_mask=torch.ones(1, 4), max_new_tokens=8, **OPTIONS)
    assert torch.equal(tokens[0], expected[0, 4:])


@pytest.mark.parametrize(
    ("later", "details"),
    [
        (None, {"row": 0, "column": 0, "value": 1}),
        (masks("10111111", "11111111"), {"row": 0, "column": 0, "value": 1}),
        (masks("00111111", "10111111"), {"row": 1, "column": 1, "value": 0}),
        (masks("00111111", "01101111"), {"row": 1, "column": 0, "value": 0}),
    ],
    ids=["no mask", "padding becomes a token", "token becomes padding", "tokens become padding"],
)
def test_mask_of_earlier_columns_must_stay(model, later, details):
    cache = model(IDS[:, :6], attention_mask=masks("001111", "111111"))[CACHE]
    with pytest.raises(ShapeError) as error:
        model(IDS[:, 6:8], attention_mask=later, **{CACHE: cache})
    assert error.value.details == {"input": "attention_mask", **details}


def test_newest_tokens_may_be_left_out(model, original):
    """As after `generate`, whose rows end at different columns."""
    cache = model(IDS[:, :6], attention_mask=masks("001111", "111111"))[CACHE]
    mask = masks("0011110011", "1111111111")
    cache = model(IDS[:, 6:8], attention_mask=masks("00111111", "11111111"), **{CACHE: cache})[CACHE]
    logits = model(IDS[:, 8:10], attention_mask=mask, **{CACHE: cache}).logits
    same(logits[0], alone(original, 0, [2, 3, 4, 5, 8, 9])[-2:])
    same(logits[1], alone(original, 1, list(range(10)))[-2:])


def test_newest_tokens_that_a_ring_lost_cannot_be_left_out(model):
    cache = model(IDS[:, :14])[CACHE]
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 7:14] = 0
    with pytest.raises(ConfigError) as error:
        model(IDS[:, 14:16], attention_mask=mask, **{CACHE: cache})
    assert error.value.details == {"num_tokens": 7, "num_forgettable": 4}


def test_states_count_every_token(tmp_path):
    folder = save_tiny(tmp_path, "lfm2")
    options = SHAPES | {"extend_length": 1}
    with NeuronModelForCausalLM.from_pretrained(folder, export=True, **options) as model:
        with pytest.raises(ShapeError) as error:
            model(IDS[:, :4], attention_mask=masks("1111", "1101"))
        assert error.value.details["states"] == ["conv_state"] and error.value.details["row"] == 1
        cache = model(IDS[:, :4], attention_mask=masks("0111", "1110"))[CACHE]
        with pytest.raises(ConfigError) as error:
            model(IDS[:, 4:5], attention_mask=masks("01101", "11101"), **{CACHE: cache})
        assert error.value.details == {"states": ["conv_state"]}
