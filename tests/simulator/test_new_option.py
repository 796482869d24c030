"""A new option of an estimate is one field of `EstimateRequest`: everything else follows from the field.

A fresh process reads the module of the request with one more line, and nothing else changes.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tiny import tiny_config

SCRIPT = """
import importlib.util, inspect, json, pathlib, sys

spec = importlib.util.find_spec("optimum_neuron.simulator.request")
source, before = pathlib.Path(spec.origin).read_text(), "    task: str | None = _load("
assert source.count(before) == 1
added = "    num_shelves: int | None = _load('shelves of books beside the model', ('decoder', 'single-pass'))\\n"
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
exec(compile(source.replace(before, added + before), spec.origin, "exec"), vars(module))

import argparse, torch
from optimum_neuron.cli.estimate import EstimateCommand
from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import compare, estimate

encoder, module = sys.argv[1], torch.nn.Linear(4, 4)
where, inputs = {"instance": "inf2.xlarge"}, {"example_inputs": (torch.zeros(1, 4),)}
answers = [estimate(encoder, sequence_length=16, num_shelves=number, **where).counts.value for number in (1, 1, 2)]
errors = []
for model, options in ((module, {"num_shelves": 1, **inputs}), (encoder, {"num_shelfs": 1})):
    try:
        estimate(model, **where, **options)
    except ConfigError as error:
        errors.append({"details": error.details, "text": str(error)})
parser = argparse.ArgumentParser()
EstimateCommand.parse_args(parser)
described = [(str(inspect.signature(one)), one.__doc__) for one in (estimate, compare)]
print(json.dumps({"counts": answers, "errors": errors, "described": described, "help": parser.format_help()}))
"""


@pytest.mark.full(days=4)
def test_field_makes_keyword_documentation_flag_key_and_errors(tmp_path, monkeypatch):
    tiny_config("bert", architectures=["BertForSequenceClassification"]).save_pretrained(tmp_path / "bert")
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    command = [sys.executable, "-c", SCRIPT, tmp_path / "bert"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(run.stdout)
    assert result["counts"] == ["counted", "cached", "counted"]
    for signature, documentation in result["described"]:
        assert "num_shelves: 'int | None' = None" in signature and "num_shelves: shelves of books" in documentation
    assert "--num_shelves N" in result["help"]
    without_effect, unknown = result["errors"]
    assert without_effect["details"]["options"] == ["num_shelves"]
    assert "num_shelfs" in unknown["text"] and "num_shelves" in unknown["text"]  # the nearest name
