"""The dynamic programming is compared with trying every choice of buckets."""

from __future__ import annotations

import itertools
import random

import pytest

from optimum_neuron import suggest_buckets
from optimum_neuron.errors import ConfigError
from tests.raising import raises


def padding(lengths, buckets):
    return sum(min(bucket for bucket in buckets if bucket >= length) - length for length in lengths)


def least_padding(lengths, num_buckets, multiple_of):
    sizes = sorted({-(-length // multiple_of) * multiple_of for length in lengths})
    choices = (c for c in itertools.combinations(sizes, min(num_buckets, len(sizes))) if c[-1] == sizes[-1])
    return min(padding(lengths, buckets) for buckets in choices)


@pytest.mark.parametrize("multiple_of", [1, 8])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_choice_pads_less(seed, multiple_of):
    draw = random.Random(seed)
    lengths = [draw.choice([draw.randint(1, 12), draw.randint(1, 200)]) for _ in range(30)]
    advice = suggest_buckets(lengths, max_buckets=4, multiple_of=multiple_of)
    for num_buckets, option in enumerate(advice.options, 1):
        assert len(option.buckets) == num_buckets
        assert option.padding_tokens == padding(lengths, option.buckets)
        assert option.padding_tokens == least_padding(lengths, num_buckets, multiple_of)
        assert all(bucket % multiple_of == 0 for bucket in option.buckets)
        assert option.waste == option.padding_tokens / sum(lengths)


def test_never_more_buckets_than_lengths():
    advice = suggest_buckets([5, 5, 9], max_buckets=6)
    assert [option.buckets for option in advice.options] == [(9,), (5, 9)]
    assert advice.options[-1].padding_tokens == 0


def test_rounding_merges_lengths_and_one_bucket_is_longest_sequence():
    assert suggest_buckets([5, 7, 60], multiple_of=8).buckets == (8, 64)
    advice = suggest_buckets([3, 1, 4, 1, 5], max_buckets=1)
    assert (advice.buckets, advice.longest, advice.num_sequences) == ((5,), 5, 5)


def test_advice_shows_the_cost_of_fewer_buckets():
    choice = suggest_buckets([10, 20, 40], max_buckets=2).choice
    assert (choice.value, choice.reason) == ("20,40", "least padding: 14.3% of the real tokens")
    assert [(lost.candidate, lost.reason) for lost in choice.rejected] == [("40", "71.4% padding")]


def test_large_data_set_is_exact():
    lengths = [length for length in range(1, 2001) for _ in range(3)]
    best = suggest_buckets(lengths, max_buckets=2)
    # One bucket of uniform lengths 1..n is best cut in the middle.
    assert best.buckets == (1000, 2000)


@pytest.mark.parametrize(
    ("lengths", "options", "expected"),
    [
        ([], {}, []),
        ([4, 0], {}, ["length 0"]),
        ([4, -1, True], {}, ["length -1", "length True"]),
        ([4, 2.5], {}, ["length 2.5"]),
        ([4], {"max_buckets": 0, "multiple_of": 0}, ["max_buckets=0", "multiple_of=0"]),
    ],
)
def test_all_input_errors_are_reported_together(lengths, options, expected):
    with raises(ConfigError, problems=expected):
        suggest_buckets(lengths, **options)


def test_plain_data_has_flags_to_copy():
    data = suggest_buckets([10, 20, 40], max_buckets=2).to_dict()
    assert data["flags"] == {
        "prompts of text-generation": "--prefill_buckets 20,40",
        "other tasks": "--sequence_length 20,40",
    }
    assert [option["num_buckets"] for option in data["options"]] == [1, 2]
