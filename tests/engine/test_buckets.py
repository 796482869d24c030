"""The only choice of a bucket."""

from __future__ import annotations

import pytest

from optimum_neuron.engine import choose_bucket, smallest_bucket
from optimum_neuron.engine.packing import chunk_length
from optimum_neuron.errors import ShapeError


@pytest.mark.parametrize(("size", "bucket"), [(1, 16), (16, 16), (17, 64), (64, 64), (65, None)])
def test_smallest_bucket_that_fits(size, bucket):
    assert smallest_bucket(size, (16, 64)) == smallest_bucket(size, {64: "b", 16: "a"}) == bucket


def test_choice_has_its_reason():
    choice = choose_bucket(20, (16, 64), subject="The prompt", measure="20 tokens", hint="Shorten it.")
    assert (choice.value, choice.reason) == (64, "smallest bucket that holds 20 tokens")
    assert [(row.candidate, row.reason) for row in choice.rejected] == [("16", "less than 20 tokens")]
    assert choose_bucket(16, (16, 64), subject="The prompt", measure="16 tokens", hint="").rejected == ()


@pytest.mark.parametrize(
    ("num_left", "room", "expected"), [(2, 99, 16), (1, 99, 8), (16, 16, 16), (16, 15, 8), (16, 8, 8), (16, 7, 1)]
)
def test_chunks_fit_and_have_at_most_eight_times_the_tokens(num_left, room, expected):
    assert chunk_length([8, 16], num_left=num_left, room=room) == expected
    assert chunk_length([16, 32], num_left=1, room=room) == (16 if room >= 16 else 1), "the shortest is always taken"


def test_input_beyond_largest_bucket_is_refused():
    with pytest.raises(ShapeError) as error:
        choose_bucket(65, (16, 64), subject="The prompt", measure="65 tokens", hint="Shorten it.")
    assert error.value.details == {"size": 65, "buckets": [16, 64]} and error.value.hint == "Shorten it."
