"""`neuron-bench exec`: the times of the performance model, labelled as simulated, and errors."""

from __future__ import annotations

import json

import pytest
import torch

from optimum_neuron.profiling import profile_folder, profile_neff
from optimum_neuron.tools import bench
from optimum_neuron.tracing import trace


@pytest.fixture(scope="module")
def neff(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    trace(torch.nn.Linear(64, 32), torch.ones(4, 64), compiler_args="-O1", compiler_workdir=folder)
    return folder / "graph.neff"


def test_times_match_profile(neff, capsys):
    assert bench.main(["exec", str(neff), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (graph,), (expected,) = report["graphs"], profile_neff(neff).graphs
    assert report["simulated"] and report["target"] == "inf2" and report["assumptions"]
    assert graph["nc_latency_us"] == expected.device_us and graph["latency_us"]["value"] == expected.total_us
    assert graph["latency_us"]["low"] < expected.total_us < graph["latency_us"]["high"]
    assert graph["calls_per_s"] == pytest.approx(1e6 / expected.total_us)


def test_output_lists_simulation_assumptions_and_ignored_flags(neff, capsys):
    assert bench.main(["exec", "--enable-only-latency", "-w", "5", "-n", "50", "--fixed-nc-count", "1", str(neff)]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("times of graph.neff on one core of inf2.xlarge (inf2): simulated")
    assert "assumed: " in output.out
    for name in ("--iterations", "--warmup", "--enable-only-latency"):
        assert name in output.err
    assert "--fill" not in output.err


def test_exported_folder_has_row_for_each_graph(export_folder, capsys):
    assert bench.main(["exec", str(export_folder), "--json"]) == 0
    output = capsys.readouterr()
    names = [graph.graph for graph in profile_folder(export_folder).graphs]
    assert [graph["graph"] for graph in json.loads(output.out)["graphs"]] == names and output.err == ""


def test_other_files_and_several_cores_are_errors(tmp_path, capsys, mistyped):
    (tmp_path / "a.neff").write_bytes(b"nothing")
    assert bench.main(["exec", str(tmp_path / "a.neff")]) == 1
    assert bench.main(["exec", str(tmp_path / "none.neff")]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert "--fixed-nc-count" in mistyped(bench.main, "exec", "--fixed-nc-count", "2", str(tmp_path / "a.neff"))
