"""The published decoders are predicted as docs/fidelity.md says, and its statistics are correct."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools/fidelity"))

from cases import Case, Row, cases, model_config, read_rows
from report import Scored, by_configuration, family_coverage, interval, left_out_coverage, most_within, pair_order

from optimum_neuron.simulator import constants, estimate

ROWS = read_rows()


def scored(published: float, prediction: float, *, model: str = "llama-2-7b", date: str = "2025-01-01") -> Scored:
    plain = next(row for row in ROWS if row.category == "decoder")
    row = Row(**{**vars(plain), "model": model, "date": date, "value": published})
    return Scored(case=Case(row=row, predict=lambda _: prediction), predicted=prediction, blind=prediction)


@pytest.mark.parametrize(("metric", "goal"), [("tpot_ms", 0.09), ("ttft_ms", 0.15), ("tokens_per_s", 0.06)])
def test_shipped_constants_predict_published_decoders(metric, goal):
    rows = [r for r in ROWS if r.category == "decoder" and r.metric == metric and not r.instance.startswith("trn2")]
    errors = [abs(case.predict(constants()) / case.row.value - 1) for case in cases(rows)]
    assert len(errors) > 40 and np.median(errors) <= goal
    assert np.mean(np.array(errors) <= 0.25) >= 0.8


def test_long_prompt_over_many_chips_is_predicted_with_its_published_options():
    """Sequence parallelism and buckets that end at 12,288: without them the prediction was 2.2 times the value."""
    rows = [row for row in ROWS if row.model == "llama-3.3-70b" and row.metric in ("ttft_ms", "tpot_ms")]
    errors = {case.row.metric: case.predict(constants()) / case.row.value - 1 for case in cases(rows)}
    assert abs(errors["ttft_ms"]) < 0.15 and abs(errors["tpot_ms"]) < 0.05


def test_model_whose_publisher_ran_out_of_memory_may_not_fit():
    (row,) = [row for row in ROWS if row.category == "beyond-memory" and row.metric == "tpot_ms"]
    assert not list(cases([row]))
    fits = {}
    for batch_size in (row.batch // 2, row.batch):
        fits[batch_size] = estimate(
            model_config(row.model),
            instance=row.instance,
            tensor_parallel_size=row.cores,
            batch_size=batch_size,
            sequence_length=row.sequence_length,
        ).fit
    assert fits == {32: "fits", 64: "may not fit"}


def test_pairs_are_ordered_when_far_apart():
    assert pair_order([(1.0, 1.0), (1.05, 0.5), (2.0, 3.0)]) == (2, 2)
    assert pair_order([(1.0, 3.0), (2.0, 1.0)]) == (0, 1)


def test_configuration_counts_once_with_its_median():
    group = [
        scored(value, 2.0, date=day) for value, day in ((1.0, "2025-01-01"), (3.0, "2025-02-01"), (8.0, "2025-03-01"))
    ]
    assert by_configuration(group) == [(3.0, 2.0)]
    assert len(by_configuration([*group, scored(1.0, 1.0, model="llama-2-13b")])) == 2


FAMILIES = ("llama-2-7b", "llama-2-13b", "qwen3-8b")


def test_interval_leaves_out_the_largest_errors():
    ratios = [0.1, 0.5, *(1 + 0.01 * number for number in range(15)), 1.25, 9.0]
    low, high = interval([scored(ratio, 1.0) for ratio in ratios])
    assert (low, high) == pytest.approx((1 / 1.25, 1.25))  # the 16th of 19 errors
    assert interval([scored(ratio, 1.0) for ratio in (1.1, 2.0)]) == pytest.approx((0.5, 2.0))


def test_one_guess_for_values_of_one_configuration():
    values = [scored(value, 0.0) for value in (240.0, 242.0, 380.0, 480.0)]
    assert most_within(values) == 3  # 300 ms is within 25 % of all but the last
    assert most_within([*values, scored(1.0, 0.0, model="qwen3-8b")]) == 4


@pytest.mark.parametrize("number", [9, 18, 76, 95])
def test_conformal_intervals_hold_their_level(number):
    # Vovk, Gammerman and Shafer 2005: of independent values, at least 80 %, and not many more.
    chance = np.random.default_rng(0)
    values = np.exp(0.2 * chance.standard_normal(number))
    group = [scored(value, 1.0, model=FAMILIES[one % 3]) for one, value in enumerate(values)]
    assert 0.75 <= left_out_coverage(group) <= 0.9


def test_family_is_within_interval_of_others():
    families = ("llama-2-7b", "llama-2-13b", "llama-2-70b", "qwen3-8b")
    alike = [scored(value, 1.0, model=model) for model in families for value in (0.9, 1.0, 1.1)]
    assert family_coverage(alike) == 1.0
    assert family_coverage(alike[:3]) is None
    apart = [*alike[:9], *(scored(5.0, 1.0, model="qwen3-8b") for _ in range(3))]
    assert family_coverage(apart) == pytest.approx(9 / 12)
