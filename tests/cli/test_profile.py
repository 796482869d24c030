"""`optimum-cli neuron profile`."""

from __future__ import annotations

import json
import shutil

import pytest

from optimum_neuron.cli import Out, show_profile


@pytest.fixture
def run(cli, export_folder):
    return lambda *words: cli("neuron", "profile", *(words or (str(export_folder),)))


def test_table_shows_bottlenecks(run, export_folder):
    result = run(str(export_folder), "--prompt_length", "20", "--num_steps", "3", "--top", "4")
    assert result.code == 0 and "simulated" in result.stdout.splitlines()[0]
    assert "operators, all calls: the first 4 of" in result.stdout
    for word in ("operator", "module", "source", "engine", "share", "bound by", "model.layers.*", "launch", "DMA"):
        assert word in result.stdout
    assert "assumed: ran prefill_48, 3 x decode_48" in result.stdout and "note: not in it" in result.stdout
    assert "next: optimum-cli neuron profile --html report.html" in result.stderr


def test_json_has_every_row(run, export_folder):
    result = run(str(export_folder), "--json").json
    rows = result["operators"]
    assert result["simulated"] is True and len(rows) == result["num_rows"]
    assert sum(row["time_us"] for row in rows) == pytest.approx(result["device_us"])
    assert {"operator", "module_path", "source_line", "engine", "time_us", "share", "bound"} <= rows[0].keys()
    assert result["total_us"].keys() == {"value", "low", "high"} and result["assumptions"] and result["notes"]
    assert len(run(str(export_folder), "--json", "--top", "2").json["operators"]) == 2


def test_busiest_of_many_graphs_are_shown(run, export_folder, capfd):
    data = run(str(export_folder), "--json").json
    (graph, *_) = data["graphs"]
    data["graphs"] = [graph | {"graph": f"graph{calls}", "num_calls": calls} for calls in range(1, 6)]
    show_profile(Out("human"), data)
    output = capfd.readouterr().out
    assert all(f"graph{calls}" in output for calls in range(1, 6))
    show_profile(Out("human"), data | {"operators": data["operators"][:2]})
    output = capfd.readouterr().out
    assert "the first 2 of 5" in output and output.index("graph5") < output.index("graph4") and "graph3" not in output


def test_quiet_prints_device_time(run, export_folder):
    result = run(str(export_folder), "--quiet")
    assert result.stdout.endswith(" ms (simulated)\n") and result.stdout.count("\n") == 1


def test_files_are_written(run, export_folder, tmp_path):
    trace, page = tmp_path / "trace.json", tmp_path / "report.html"
    result = run(str(export_folder), "--perfetto", str(trace), "--html", str(page))
    assert result.code == 0 and f"wrote {page}" in result.stdout and "ui.perfetto.dev" in result.stdout
    assert json.loads(trace.read_text())["otherData"]["simulated"] is True
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.full(days=3)
def test_script_and_its_arguments(run, export_folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\n"
        "from optimum_neuron import NeuronModelForCausalLM\n"
        f"model = NeuronModelForCausalLM.from_pretrained({str(export_folder)!r})\n"
        "model.generate(torch.ones(2, 4, dtype=torch.long), max_new_tokens=2)\n"
        "print('arguments', sys.argv[1:])\n"
    )
    result = run("--top", "3", "--", str(script), "--fast", "1")
    assert result.code == 0 and "arguments ['--fast', '1']" in result.stdout and "profile of script.py" in result.stdout
    assert f"-- {script} --fast 1" in result.stderr
    data = run(str(script), "--json")
    assert data.json["name"] == "script.py" and "arguments []" in data.stderr


def test_exit_code_of_script_is_kept(run, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.exit(7)\n")
    result = run(str(script))
    assert result.code == 7 and result.stdout == "" and "ended with exit code 7" in result.stderr


def test_neff_of_folder_is_profiled_with_its_folder(run, export_folder):
    words = ("--prompt_length", "20", "--num_steps", "3", "--json")
    result, expected = (run(str(path), *words).json for path in (export_folder / "model.neuron", export_folder))
    # Host time between calls is measured.
    assert result["graphs"] == expected["graphs"] and result["device_us"] == expected["device_us"]


def test_neff_alone_is_profiled_with_weights_of_zeros(run, export_folder, tmp_path):
    shutil.copy(export_folder / "model.neuron", tmp_path / "graph.neff")
    result, expected = run(str(tmp_path / "graph.neff"), "--json").json, run(str(export_folder), "--json").json
    assert result["name"] == "graph.neff" and result["device_us"] == pytest.approx(expected["device_us"])
    assert any("auto-cast none" in line for line in result["assumptions"])
    (tmp_path / "other.neff").write_bytes(b"not a program")
    assert run(str(tmp_path / "other.neff")).code == 1


def test_unrunnable_target_is_refused(run, tmp_path, checkpoint, export_folder):
    script = tmp_path / "script.py"
    script.write_text("print('nothing')\n")
    for words, message in (
        ([str(tmp_path / "missing")], "does not exist"),
        ([str(checkpoint)], "neuron_config.json, model.neuron missing"),
        ([str(script), "--num_steps", "3"], "is not an exported folder"),
        ([str(export_folder), "more"], "takes no arguments"),
        ([str(export_folder), "--prompt_length", "99"], "compiled for 16, 48 tokens"),
        ([str(script)], "no simulated core"),
    ):
        result = run(*words)
        assert result.code == 1 and message in result.stderr and "Traceback" not in result.stderr, words
        assert "next: " in result.stderr


def test_unwritable_outputs_are_refused_together_before_the_run(run, export_folder, tmp_path):
    there = tmp_path / "there.html"
    there.write_text("mine")
    result = run(str(export_folder), "--html", str(there), "--perfetto", str(tmp_path / "no_folder" / "trace.json"))
    assert result.code == 1 and "there.html exists" in result.stderr and "there is no folder" in result.stderr
    assert there.read_text() == "mine"
    same = str(tmp_path / "same")
    assert "both files have the same name" in run(str(export_folder), "--html", same, "--perfetto", same).stderr
