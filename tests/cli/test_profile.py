"""`optimum-cli neuron profile`."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def run(cli, exported):
    return lambda *words: cli("neuron", "profile", *(words or (str(exported),)))


def test_people_read_the_bottlenecks(run, exported):
    ran = run(str(exported), "--prompt_length", "20", "--num_steps", "3", "--top", "4")
    assert ran.code == 0 and "simulated" in ran.stdout.splitlines()[0]
    assert "operators, all calls: the first 4 of" in ran.stdout
    for word in ("operator", "module", "source", "engine", "share", "bound by", "model.layers.*", "launch", "DMA"):
        assert word in ran.stdout
    assert "assumed: ran prefill_48, 3 x decode_48" in ran.stdout and "note: not in it" in ran.stdout
    assert "next: optimum-cli neuron profile --html report.html" in ran.stderr


def test_json_has_every_row(run, exported):
    told = run(str(exported), "--json").json
    rows = told["operators"]
    assert told["simulated"] is True and len(rows) == told["num_rows"]
    assert sum(row["time_us"] for row in rows) == pytest.approx(told["device_us"])
    assert {"operator", "module_path", "source_line", "engine", "time_us", "share", "bound"} <= rows[0].keys()
    assert told["total_us"].keys() == {"value", "low", "high"} and told["assumptions"] and told["notes"]
    assert len(run(str(exported), "--json", "--top", "2").json["operators"]) == 2


def test_quiet_prints_the_device_time(run, exported):
    ran = run(str(exported), "--quiet")
    assert ran.stdout.endswith(" ms (simulated)\n") and ran.stdout.count("\n") == 1


def test_files_are_written(run, exported, tmp_path):
    trace, page = tmp_path / "trace.json", tmp_path / "report.html"
    ran = run(str(exported), "--perfetto", str(trace), "--html", str(page))
    assert ran.code == 0 and f"wrote {page}" in ran.stdout and "ui.perfetto.dev" in ran.stdout
    assert json.loads(trace.read_text())["otherData"]["simulated"] is True
    assert page.read_text().startswith("<!doctype html>")


def test_a_script_and_its_arguments(run, exported, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\n"
        "from optimum_neuron import NeuronModelForCausalLM\n"
        f"model = NeuronModelForCausalLM.from_pretrained({str(exported)!r})\n"
        "model.generate(torch.ones(2, 4, dtype=torch.long), max_new_tokens=2)\n"
        "print('arguments', sys.argv[1:])\n"
    )
    ran = run("--top", "3", "--", str(script), "--fast", "1")
    assert ran.code == 0 and "arguments ['--fast', '1']" in ran.stdout and "profile of script.py" in ran.stdout
    assert f"-- {script} --fast 1" in ran.stderr
    told = run(str(script), "--json")
    assert told.json["name"] == "script.py" and "arguments []" in told.stderr


def test_the_exit_code_of_a_script_is_kept(run, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.exit(7)\n")
    ran = run(str(script))
    assert ran.code == 7 and ran.stdout == "" and "ended with exit code 7" in ran.stderr


def test_the_neff_of_a_folder_is_profiled_with_its_folder(run, exported):
    words = ("--prompt_length", "20", "--num_steps", "3", "--json")
    found, expected = (run(str(path), *words).json for path in (exported / "model.neuron", exported))
    # What this host takes between calls is measured.
    assert found["graphs"] == expected["graphs"] and found["device_us"] == expected["device_us"]


def test_a_neff_alone_is_profiled_with_weights_of_zeros(run, exported, tmp_path):
    shutil.copy(exported / "model.neuron", tmp_path / "graph.neff")
    found, expected = run(str(tmp_path / "graph.neff"), "--json").json, run(str(exported), "--json").json
    assert found["name"] == "graph.neff" and found["device_us"] == pytest.approx(expected["device_us"])
    assert any("auto-cast none" in line for line in found["assumptions"])
    (tmp_path / "other.neff").write_bytes(b"not a program")
    assert run(str(tmp_path / "other.neff")).code == 1


def test_what_cannot_run_is_refused(run, tmp_path, checkpoint, exported):
    script = tmp_path / "script.py"
    script.write_text("print('nothing')\n")
    for words, message in (
        ([str(tmp_path / "missing")], "does not exist"),
        ([str(checkpoint)], "neuron_config.json, model.neuron missing"),
        ([str(script), "--num_steps", "3"], "is not an exported folder"),
        ([str(exported), "more"], "takes no arguments"),
        ([str(exported), "--prompt_length", "99"], "compiled for 16, 48 tokens"),
        ([str(script)], "no simulated core"),
    ):
        ran = run(*words)
        assert ran.code == 1 and message in ran.stderr and "Traceback" not in ran.stderr, words
        assert "next: " in ran.stderr


def test_files_that_cannot_be_written_are_refused_together_before_anything_runs(run, exported, tmp_path):
    there = tmp_path / "there.html"
    there.write_text("mine")
    ran = run(str(exported), "--html", str(there), "--perfetto", str(tmp_path / "no_folder" / "trace.json"))
    assert ran.code == 1 and "there.html exists" in ran.stderr and "there is no folder" in ran.stderr
    assert there.read_text() == "mine"
    same = str(tmp_path / "same")
    assert "both files have the same name" in run(str(exported), "--html", same, "--perfetto", same).stderr
