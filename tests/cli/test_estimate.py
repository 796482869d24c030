"""`optimum-cli neuron estimate` and `estimate-training`."""

from __future__ import annotations

from optimum_neuron.simulator.quantity import QUANTITIES


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
    told = cli("neuron", "estimate-training", str(checkpoint), "--sequence_length", "64", "--json").json
    assert {"weights", "gradients", "optimizer", "activations"} <= told["hbm_bytes"].keys()
