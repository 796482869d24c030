"""`optimum-cli neuron estimate` and `estimate-training`."""

from __future__ import annotations

import argparse
import dataclasses
import inspect

import pytest

from optimum_neuron.cli.arguments import options_from
from optimum_neuron.cli.estimate import EstimateCommand, priced, shown
from optimum_neuron.simulator import KEYWORDS, QUANTITIES, EstimateRequest, estimate


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


def test_every_keyword_follows_from_the_request():
    fields = {field.name: field for field in dataclasses.fields(EstimateRequest)}
    signature = inspect.signature(estimate).parameters
    parser = argparse.ArgumentParser(allow_abbrev=False)
    EstimateCommand.add_arguments(parser)
    flags = {action.dest: action for action in parser._actions}
    for name in KEYWORDS:
        assert signature[name].default == fields[name].default and f"        {name}: " in estimate.__doc__
        assert flags[name].help and flags[name].default is None
    assert {"export", "source", "speculation"}.isdisjoint(KEYWORDS)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("--batch", "auto"), {"batch_size": "auto"}),
        (("--batch_size", "4", "--speculation_length", "3"), {"batch_size": 4, "num_speculative_tokens": 3}),
        (("--guidance_scale", "1.5", "--auto_cast", "none"), {"guidance_scale": 1.5, "auto_cast": "none"}),
        (("--text_batch_size", "10"), {"text_batch_size": 10}),
    ],
)
def test_flags_have_the_types_of_their_fields(words, options):
    parser = argparse.ArgumentParser()
    EstimateCommand.add_arguments(parser)
    assert options_from(parser.parse_args(["model", *words]), without=("model",)) == options
