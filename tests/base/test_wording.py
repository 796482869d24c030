"""Numbers as people read them."""

from __future__ import annotations

import pytest

from optimum_neuron.base.wording import counted, listed, number, size, time_span


def test_counts_have_singular_or_plural_noun():
    counts = [counted(n, "request") for n in (0, 1, 2, 1500)]
    assert counts == ["0 requests", "1 request", "2 requests", "1,500 requests"]
    assert counted(1, "copy", "copies") == "1 copy" and counted(2, "copy", "copies") == "2 copies"


def test_long_lists_end_with_the_number_of_others():
    assert [listed(list("abc"), most) for most in (4, 3, 2)] == ["a, b, c", "a, b, c", "a, b, and 1 more"]
    assert listed(list("abc"), 1, separator="; ") == "a; and 2 more" and listed([], 1) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(11330.0, "11,330"), (0.123456, "0.1235"), (0.0, "0"), (1e-6, "1e-06"), (-2.5, "-2.5"), (3.0, "3")]
    + [(float("inf"), "inf"), (float("nan"), "nan")],
)
def test_numbers_have_four_digits_and_no_powers_of_ten(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(11.33, "11.3 s"), (0.00821, "8.21 ms"), (4.03e-5, "40.3 us"), (90, "90 s"), (600, "10 min"), (86400, "24 h")],
)
def test_time_spans_have_a_fitting_unit(seconds, text):
    assert time_span(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1024**3, "1.0 GiB"), (2**60, "1048576.0 TiB")],
)
def test_sizes_have_binary_unit(num_bytes, text):
    assert size(num_bytes) == text
