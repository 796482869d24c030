"""`neuron-explorer capture` and `view`: a NEFF or an exported folder in, simulated times out, and errors."""

from __future__ import annotations

import json

import pytest
import torch

from optimum_neuron.profiling import profile_folder
from optimum_neuron.tools import neuronx_cc, profile
from optimum_neuron.tools.profile import neuron_profile
from optimum_neuron.tracing import trace


@pytest.fixture(scope="module")
def neff(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    torch.export.save(torch.export.export(module, (torch.rand(2, 8),)), folder / "model.pt2")
    words = ["compile", str(folder / "model.pt2"), "--target", "inf2", "-O1", "--output", str(folder / "model.neff")]
    assert neuronx_cc.main(words) == 0
    return folder / "model.neff"


@pytest.fixture
def session(neff, tmp_path, capsys):
    file = tmp_path / "profile.ntff"
    assert profile.main(["capture", "-n", str(neff), "-s", str(file)]) == 0
    assert "simulated" in capsys.readouterr().out
    return file


def test_neff_tables_have_labels(neff, session, capsys):
    assert profile.main(["view", "--disable-ui", "-n", str(neff), "-s", str(session)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("profile of model.neff on inf2.xlarge (inf2): simulated")
    assert "aten.linear" in output and "assumed: ran graph on inputs of zeros" in output


def test_summary_and_whole_profile_are_json_with_target_and_assumptions(session, tmp_path, capsys):
    assert neuron_profile(["view", "-s", str(session), "--output-format", "summary-json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["simulated"] and summary["machines"][0]["target"] == "inf2" and summary["assumptions"]
    assert sum(row["time_us"] for row in summary["operators"]) == pytest.approx(summary["device_us"])
    output = tmp_path / "out.json"
    words = ["view", "-d", str(tmp_path), "--output-format=json", "--output-file", str(output)]
    assert profile.main(words) == 0 and capsys.readouterr().out == ""
    whole = json.loads(output.read_text())
    assert whole["simulated"] and whole["graphs"][0]["operators"] and len(whole["calls"]) == 1


def test_trace_matches_neuron_profile(session, capsys):
    assert profile.main(["view", "-s", str(session), "--output-format", "perfetto"]) == 0
    assert json.loads(capsys.readouterr().out)["traceEvents"]


def test_exported_folder_is_captured_under_real_tools_name(export_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert profile.main(["capture", "-n", str(export_folder)]) == 0
    assert profile.main(["view", "--output-format", "summary-json", "-n", str(export_folder)]) == 0
    graphs = json.loads(capsys.readouterr().out.partition("\n")[2])["graphs"]
    expected = profile_folder(export_folder).graphs
    assert [(one["graph"], one["num_calls"], one["device_us"]) for one in graphs] == [
        (one.graph, one.num_calls, one.device_us) for one in expected
    ]


@pytest.mark.parametrize("content", [None, b"\x80NTFF", b"[]", b"{}", b'{"simulated": true}', b"[" * 100_000])
def test_invalid_profile_is_error_without_traceback(content, tmp_path, capsys):
    file = tmp_path / "profile.ntff"
    if content is not None:
        file.write_bytes(content)
    assert profile.main(["view", "-s", str(file)]) == 1
    output = capsys.readouterr().err
    assert output.startswith("error: ") and str(file) in output and "Traceback" not in output


def test_foreign_profile_and_several_profiles_are_errors(session, tmp_path, capsys):
    assert profile.main(["view", "-n", "other.neff", "-s", str(session)]) == 1
    assert "model.neff" in capsys.readouterr().err
    (tmp_path / "pid_1").mkdir()
    (tmp_path / "pid_1" / "profile.json").write_bytes(session.read_bytes())
    assert profile.main(["view", "-d", str(tmp_path)]) == 1
    assert "2 profiles" in capsys.readouterr().err
    assert profile.main(["view", "-d", str(tmp_path / "none")]) == 1


def test_uncapturable_input_is_an_error(neff, export_folder, tmp_path, monkeypatch, capsys):
    assert profile.main(["capture", "-n", str(tmp_path / "none.neff")]) == 1
    assert profile.main(["capture", "-n", str(neff), "-s", str(tmp_path / "none" / "profile.ntff")]) == 1
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn2.48xlarge")
    assert profile.main(["capture", "-n", str(neff), "-s", str(tmp_path / "profile.ntff")]) == 1
    assert "Traceback" not in capsys.readouterr().err and not (tmp_path / "profile.ntff").exists()


def test_weights_next_to_neff_change_no_time(tmp_path, capsys):
    lines = []
    for name, inlined in (("beside", False), ("inside", True)):
        options = {"compiler_workdir": tmp_path / name, "inline_weights_to_neff": inlined}
        trace(torch.nn.Linear(4, 4), torch.ones(1, 4), compiler_args="-O1", **options)
        neff, session = tmp_path / name / "graph.neff", tmp_path / name / "profile.ntff"
        assert profile.main(["capture", "-n", str(neff), "-s", str(session)]) == 0
        capsys.readouterr()
        assert profile.main(["view", "-s", str(session), "--output-format", "summary-json"]) == 0
        lines.append(json.loads(capsys.readouterr().out)["graphs"])
    assert lines[0] == lines[1]


def test_unknown_formats_are_errors(mistyped):
    assert "summary-json" in mistyped(profile.main, "view", "--output-format", "parquet")
