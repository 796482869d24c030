"""Objectives are read from text, and decide which requests count."""

from __future__ import annotations

import math

import pytest

from optimum_neuron.batching import SimulatedTimes
from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import parse_slo
from optimum_neuron.simulator.capacity.slo import SLO

TIMES = SimulatedTimes(arrival_s=1.0, start_s=1.0, first_token_s=1.5, end_s=2.5, num_tokens=11)


def test_units_and_names():
    assert parse_slo("ttft=500,tpot=0.05s, latency=2s") == SLO(ttft_ms=500, tpot_ms=50, e2el_ms=2000)
    assert parse_slo("ttft:500 tpot:50", attainment=0.9) == SLO(ttft_ms=500, tpot_ms=50, attainment=0.9)


@pytest.mark.parametrize("text", ["", "ttft", "ttft=", "ttft=0", "ttft=-1", "ttft=1h", "tft=5", "=5"])
def test_wrong_limits(text):
    with pytest.raises(ConfigError) as error:
        parse_slo(text)
    assert error.value.details["option"] == "slo"


@pytest.mark.parametrize("share", [0, -1, 1.01, math.nan])
def test_wrong_share(share):
    with pytest.raises(ConfigError):
        parse_slo("ttft=1", attainment=share)


def test_limits_of_a_request():
    assert SLO(ttft_ms=500, tpot_ms=100, e2el_ms=1500).is_kept_by(TIMES)
    assert SLO(ttft_ms=499, tpot_ms=99, e2el_ms=1500).broken_by(TIMES) == ["ttft", "tpot"]
    assert SLO(ttft_ms=500).broken_by(TIMES, slower=1.1) == ["ttft"]
    one_token = SimulatedTimes(arrival_s=0.0, first_token_s=0.1, end_s=0.1, num_tokens=1)
    assert SLO(tpot_ms=1).is_kept_by(one_token)


def test_longest_time_of_a_request_that_keeps_them():
    assert SLO(ttft_ms=100, tpot_ms=10).longest_ms(11) == 200
    assert SLO(ttft_ms=100).longest_ms(11) == math.inf and SLO(e2el_ms=7).longest_ms(11) == 7
