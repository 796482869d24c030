"""Break-even: the arithmetic by hand, each default reported, and errors for invalid numbers."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.simulator import breakeven
from tests.raising import raises

PORT = {"engineer_days": 10, "day_rate": 800, "instance": "inf2.xlarge"}
PRICE = INSTANCES["inf2.xlarge"].price_on_demand_usd_per_h


def test_runs():
    report = breakeven(**PORT, gpu_price=4, runs_per_month=100, hours_per_run=3, gpu_hours_per_run=2)
    assert report.port_usd == 8000
    assert (report.hours_per_month, report.gpu_hours_per_month) == (300, 200)
    assert report.usd_per_month == pytest.approx(300 * PRICE) and report.gpu_usd_per_month == 800
    assert report.saving_usd_per_month == pytest.approx(800 - 300 * PRICE)
    assert report.months == pytest.approx(8000 / (800 - 300 * PRICE))
    assert report.units_to_breakeven == pytest.approx(100 * report.months)
    assert report.first_year_usd == pytest.approx(12 * (800 - 300 * PRICE) - 8000)
    assert report.pays and report.simulated and report.price_source.startswith("$0.7582 an hour: ")


def test_inferences_are_billed_by_hours_of_use_at_known_throughput():
    report = breakeven(**PORT, gpu_price=4, inferences_per_month=3.6e6, throughput_per_s=10, gpu_throughput_per_s=20)
    assert (report.hours_per_month, report.gpu_hours_per_month) == pytest.approx((100, 50))
    assert report.units == "inferences" and report.to_dict()["units_per_month"] == 3.6e6


def test_without_throughput_one_machine_runs_all_month():
    report = breakeven(**PORT, gpu_price=4, inferences_per_month=730 * 3600 * 5)
    assert report.hours_per_month == report.gpu_hours_per_month == 730
    assert "5 inferences a second" in report.assumptions[0]


@pytest.mark.parametrize(
    "workload, speed, hours",
    [
        ("runs_per_month", "hours_per_run", 1000 * 2),
        ("inferences_per_month", "throughput_per_s", 1000 / 2 / 3600),
    ],
)
def test_one_throughput_applies_to_both_machines(workload, speed, hours):
    one = breakeven(**PORT, gpu_price=4, **{workload: 1000, speed: 2})
    other = breakeven(**PORT, gpu_price=4, **{workload: 1000, f"gpu_{speed}": 2})
    assert one == other and one.hours_per_month == one.gpu_hours_per_month == pytest.approx(hours)
    assert "only one of them was given" in one.assumptions[0]


@pytest.mark.parametrize(
    "gpu_price, why", [(0.5, "the GPU is cheaper by $25.82 a month"), (PRICE, "both cost the same")]
)
def test_cheaper_gpu_never_breaks_even(gpu_price, why):
    report = breakeven(**PORT, gpu_price=gpu_price, runs_per_month=100)
    assert not report.pays and report.months is None and report.units_to_breakeven is None
    assert report.verdict == f"the port never pays: {why}" and report.first_year_usd < 0


@pytest.mark.parametrize("name", ["engineer_days", "day_rate", "gpu_price", "runs_per_month", "hours_per_run"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "5"])
def test_non_positive_numbers_are_rejected_by_name(name, value):
    with pytest.raises(ConfigError) as error:
        breakeven(**{**PORT, "gpu_price": 4, "runs_per_month": 100, name: value})
    assert error.value.details["problems"] == [f"{name}={value!r} is no number above 0"]


@pytest.mark.parametrize(
    "options, problem",
    [
        ({}, "no workload"),
        ({"runs_per_month": 1, "inferences_per_month": 1}, "are both given"),
        ({"runs_per_month": 1, "gpu_throughput_per_s": 1}, "gpu_throughput_per_s is for inferences"),
        ({"inferences_per_month": 1, "hours_per_run": 1}, "hours_per_run is for runs"),
    ],
)
def test_conflicting_workloads(options, problem):
    with pytest.raises(ConfigError) as error:
        breakeven(**{**PORT, "day_rate": 0}, gpu_price=-4, **options)
    problems = error.value.details["problems"]
    assert len(problems) == 3 and problem in problems[-1], "all problems are reported at once"


def test_unpublished_price_must_be_passed():
    options = {**PORT, "instance": "trn2.48xlarge", "gpu_price": 98, "runs_per_month": 100}
    with raises(ConfigError, option="price", instance="trn2.48xlarge"):
        breakeven(**options)
    assert breakeven(**options, price=48).saving_usd_per_month == 5000
