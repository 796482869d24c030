"""The report is a table for people and plain data for tools."""

import json
import logging

import torch

from optimum_neuron.compiler import tally


def compile_one():
    function = torch.compile(lambda x: x @ x, backend="neuronx", options={"optlevel": "1", "target": "trn2"})
    function(torch.eye(4, device="neuron"))


def test_every_graph_has_reasons_and_estimate():
    compile_one()
    (graph,) = torch.neuron.compile_report().graphs
    assert (graph.frame, graph.kind, graph.num_calls, graph.why) == ("0/0", "inference", 1, "first call")
    assert graph.target.value == "trn2" and graph.target.reason and graph.host_code.reason.startswith("optlevel 1")
    assert graph.estimate.num_flops == {"float32": 128} and graph.compile_s > 0
    report = torch.neuron.compile_report()
    data = report.to_dict()
    assert json.loads(json.dumps(data)) == data and data["simulated"] and data["num_recompiles"] == 0
    lines = str(report).splitlines()
    assert lines[0].startswith("simulated target trn2") and lines[1].split()[:2] == ["frame", "kind"]
    assert lines[2].split()[:3] == ["0/0", "inference", "1"]


def test_graphs_are_logged_when_compiled(caplog):
    with caplog.at_level(logging.INFO, logger="optimum_neuron.device.dynamo"):
        compile_one()
    assert "first call" in caplog.text


def test_graphs_are_recorded_for_a_counting_process(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_COMPILE_RECORDS", str(tmp_path))
    compile_one()
    assert tally.read(tmp_path) == [tally.Record(kind="torch.compile", name="0/0 inference", was_compiled=True)]


def test_reset_of_dynamo_forgets():
    compile_one()
    torch._dynamo.reset()
    report = torch.neuron.compile_report()
    assert report.graphs == () and str(report) == "no graph"
