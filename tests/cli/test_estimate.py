"""`optimum-cli neuron estimate` and `estimate-training`."""

from __future__ import annotations

from optimum_neuron.cli import priced, shown
from optimum_neuron.simulator import QUANTITIES


def test_json_has_each_quantity_with_its_interval(cli, checkpoint):
    ran = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2.xlarge", "--sequence_length", "64", "--json")
    assert ran.code == 0 and ran.json["simulated"] is True
    for name in QUANTITIES:
        assert ran.json[name].keys() == {"value", "low", "high", "limited_by"}


def test_people_read_that_it_is_simulated(cli, checkpoint):
    ran = cli("neuron", "estimate", str(checkpoint), "--instance", "trn2.3xlarge", "--batch", "2")
    assert ran.code == 0 and "simulated" in ran.stdout and "assumed: serving stack" in ran.stdout
    assert "pass --price" in ran.stdout


def test_compare_and_optimize(cli, checkpoint):
    ran = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2", "--optimize", "latency")
    assert ran.code == 0 and "simulated" in ran.stdout and "best: " in ran.stdout
    listed = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2", "--compare", "--json")
    assert listed.json["best"]["value"].startswith("inf2.xlarge")


def test_a_refusal_names_the_nearest_instance(cli, checkpoint):
    ran = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2.xlage")
    assert ran.code == 1 and "did you mean 'inf2.xlarge'" in ran.stderr


def test_training(cli, checkpoint):
    ran = cli("neuron", "estimate-training", str(checkpoint), "--sequence_length", "64")
    assert ran.code == 0 and "simulated" in ran.stdout and "layout: TP=1 PP=1 DP=32" in ran.stdout
    assert "price per million tokens" in ran.stdout and "usd_per_1m_tokens" not in ran.stdout
    told = cli("neuron", "estimate-training", str(checkpoint), "--sequence_length", "64", "--json").json
    assert {"weights", "gradients", "optimizer", "activations"} <= told["hbm_bytes"].keys()


def test_people_read_units_that_fit_and_what_a_price_is_for(cli, checkpoint):
    ran = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2.xlarge", "--sequence_length", "64")
    assert "price per million output tokens" in ran.stdout and "1 request arrives alone" in ran.stdout
    assert "time to first token, ms" not in ran.stdout and "e+0" not in ran.stdout
    ranked = cli("neuron", "estimate", str(checkpoint), "--instance", "inf2", "--compare", "--sequence_length", "64")
    assert "per million output tokens" in ranked.stdout.splitlines()[2]


def test_quantities_are_written_with_the_unit_of_their_name():
    found = [shown("ttft_ms", 11330.0), shown("usd_per_1m", 0.5), shown("mfu", 0.1234), shown("hbm_bytes", 2**30)]
    assert found == ["11.3 s", "$0.5", "12.3 %", "1.0 GiB"]
    assert priced({"tokens_per_s": None}) == "requests" != priced({"tokens_per_s": {"value": 1.0}})
