"""`optimum-cli neuron breakeven`."""

from __future__ import annotations

LINE = ("neuron", "breakeven", "--engineer-days", "10", "--day-rate", "800", "--instance", "inf2.xlarge")


def test_json_has_inputs_and_results(cli):
    result = cli(*LINE, "--runs-per-month", "1000", "--gpu-price", "5", "--json")
    assert result.code == 0 and result.json["simulated"] is True and result.json["pays"] is True
    assert result.json["engineer_days"] == 10 and result.json["gpu_price_usd_per_h"] == 5
    assert result.json["months"] == result.json["port_usd"] / result.json["saving_usd_per_month"]


def test_table_shows_every_input_and_formula(cli):
    result = cli(*LINE, "--inferences-per-month", "2e8", "--gpu-price", "1.2", "--throughput", "90")
    assert result.code == 0 and "simulated" in result.stdout and "the port pays after" in result.stdout
    for output in ("engineer days", "$800.00", "200,000,000", "$0.7582 an hour", "$1.20 an hour", "port / saving"):
        assert output in result.stdout
    assert "assumed: 90 inferences a second on both" in result.stdout


def test_cheaper_gpu_is_reported(cli):
    result = cli(*LINE, "--runs-per-month", "100", "--gpu-price", "0.5")
    assert result.code == 0 and "the port never pays: the GPU is cheaper by $25.82 a month" in result.stdout
    assert cli(*LINE, "--runs-per-month", "100", "--gpu-price", "0.5", "--quiet").stdout == "never (simulated)\n"


def test_conflicting_and_missing_workloads_are_usage_errors(cli):
    both = cli(*LINE, "--gpu-price", "5", "--runs-per-month", "1", "--inferences-per-month", "1")
    assert both.code == 2 and "not allowed with argument" in both.stderr
    assert cli(*LINE, "--gpu-price", "5").code == 2
    assert cli(*LINE, "--gpu-price", "five", "--runs-per-month", "1").code == 2


def test_numbers_below_zero_and_missing_prices_are_refused(cli):
    result = cli(*LINE, "--gpu-price", "-5", "--runs-per-month", "1")
    assert result.code == 1 and "gpu_price=-5.0 is no number above 0" in result.stderr
    unpriced = cli(*LINE[:-1], "trn2.48xlarge", "--gpu-price", "5", "--runs-per-month", "1")
    assert unpriced.code == 1 and "Pass --price" in unpriced.stderr
