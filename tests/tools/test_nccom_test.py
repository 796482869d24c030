"""`nccom-test`: simulated all-reduces from the constants of the performance model; everything else is an error."""

from __future__ import annotations

import argparse
import json

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import all_reduce_s, choose_machine
from optimum_neuron.tools import nccom_test
from optimum_neuron.tools.nccom_test import COLLECTIVES, num_bytes, sizes_of


def result(capsys, *words):
    assert nccom_test.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_times_match_performance_model(capsys):
    data = result(capsys, "-r", "2", "-b", "1KB", "-e", "1MB", "-f", "4", "--instance", "inf2.xlarge", "allr")
    machine = choose_machine("inf2.xlarge")
    assert [row["size_bytes"] for row in data["sizes"]] == [4**power * 1024 for power in range(6)]
    for row in data["sizes"]:
        seconds = all_reduce_s(row["size_bytes"], machine.rates, machine.fitted, num_chips=1)
        assert row["time_us"]["value"] == pytest.approx(1e6 * seconds)
        assert row["time_us"]["low"] < row["time_us"]["value"] < row["time_us"]["high"]
        assert row["algbw_gb_per_s"] == pytest.approx(row["busbw_gb_per_s"])  # of two cores
    assert data["simulated"] and data["notes"] and data["target"] == "inf2"


def test_more_chips_take_longer_and_buffer_holds_whole_elements(capsys):
    one, two = (
        result(capsys, "-r", cores, "-b", "1023", "-d", "bf16", "--instance", "inf2.24xlarge", "allr")["sizes"][0]
        for cores in ("2", "4")
    )
    assert two["time_us"]["value"] > one["time_us"]["value"]
    assert (one["count"], one["size_bytes"]) == (511, 1022)
    assert two["busbw_gb_per_s"] == pytest.approx(1.5 * two["algbw_gb_per_s"])


def test_table_has_a_simulation_note(capsys):
    assert nccom_test.main(["allr", "-r", "2", "--instance", "trn1.2xlarge", "-n", "20", "-c"]) == 0
    output = capsys.readouterr()
    assert "simulated, not measured" in output.out and "busbw GB/s" in output.out and "33554432" in output.out
    assert "--iters, --check without an effect" in output.err


WRONG = ["-r 1", "-r 3 --instance inf2.24xlarge", "-r 2 -N 2", "-r 2 -b 2MB -e 1MB", "-r 2 --instance p5.48xlarge"]


@pytest.mark.parametrize("line", [*(f"{name} -r 2" for name in COLLECTIVES[1:]), *(f"allr {wrong}" for wrong in WRONG)])
def test_unsimulated_feature_is_an_error(line, capsys):
    assert nccom_test.main([*line.split(), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "ConfigError"


def test_sizes():
    assert [num_bytes(text) for text in ("8", "64KB", "1m", "2GB")] == [8, 2**16, 2**20, 2**31]
    for text in ("0", "x", "1TB", "-1"):
        with pytest.raises(argparse.ArgumentTypeError):
            num_bytes(text)
    assert list(sizes_of(8, 20, 4, None)) == [8, 12, 16, 20] and list(sizes_of(None, None, None, None)) == [2**25]
    assert list(sizes_of(None, 1024, None, None)) == [1024] and list(sizes_of(8, 8, None, 1)) == [8]
    for wrong in ((8, 4, None, None), (8, 16, None, 1), (1, 2**30, 1, None)):
        with pytest.raises(ConfigError):
            list(sizes_of(*wrong))
