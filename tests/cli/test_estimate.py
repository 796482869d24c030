"""`optimum-cli neuron estimate` and `estimate-training`."""

from __future__ import annotations

from optimum_neuron.cli.estimate import priced, shown
from optimum_neuron.simulator import QUANTITIES


def test_json_has_each_quantity_with_its_interval(cli, checkpoint):
    result = cli(
        "neuron", "estimate", str(checkpoint), "--instance", "inf2.xlarge", "--sequence_length", "64", "--json"
    )
    assert result.code == 0 and result.json["simulated"] is True
    for name in QUANTITIES:
        assert result.json[name].keys() == {"value", "low", "high", "limited_by"}


def test_table_says_simulated(cli, checkpoint):
    result = cli("neuron", "estimate", str(checkpoint), "--instance", "trn2.3xlarge", "--batch", "2")
    assert result.code == 0 and "simulated" in result.stdout and "assumed: serving stack" in result.stdout
    assert "pass --price" in result.stdout


def test_compare_and_optimize(cli, checkpoint):
    result = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2", "--optimize", "latency")
    assert result.code == 0 and "simulated" in result.stdout and "best: " in result.stdout
    listed = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2", "--compare", "--json")
    assert listed.json["best"]["value"].startswith("inf2.xlarge")


def test_error_names_nearest_instance(cli, checkpoint):
    result = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2.xlage")
    assert result.code == 1 and "did you mean 'inf2.xlarge'" in result.stderr


def test_training(cli, checkpoint):
    result = cli("neuron", "estimate-training", str(checkpoint), "--sequence_length", "64")
    assert result.code == 0 and "simulated" in result.stdout and "layout: TP=1 PP=1 DP=32" in result.stdout
    assert "price per million tokens" in result.stdout and "usd_per_1m_tokens" not in result.stdout
    data = cli("neuron", "estimate-training", str(checkpoint), "--sequence_length", "64", "--json").json
    assert {"weights", "gradients", "optimizer", "activations"} <= data["hbm_bytes"].keys()


def test_table_has_readable_units_and_price_basis(cli, checkpoint):
    result = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2.xlarge", "--sequence_length", "64")
    assert "price per million output tokens" in result.stdout and "1 request arrives alone" in result.stdout
    assert "time to first token, ms" not in result.stdout and "e+0" not in result.stdout
    ranked = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2", "--compare", "--sequence_length", "64")
    assert "per million output tokens" in ranked.stdout.splitlines()[2]


def test_quantities_are_written_with_unit_of_their_name():
    result = [shown("ttft_ms", 11330.0), shown("usd_per_1m", 0.5), shown("mfu", 0.1234), shown("hbm_bytes", 2**30)]
    assert result == ["11.3 s", "$0.5", "12.3 %", "1.0 GiB"]
    assert priced({"tokens_per_s": None}) == "requests" != priced({"tokens_per_s": {"value": 1.0}})
