"""`optimum-cli neuron calibrate` and `compare-run`: tables, the written file, and errors without a traceback."""

from __future__ import annotations

import json

import pytest

from tests.tiny import tiny_config


@pytest.fixture
def measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_config("llama", architectures=["LlamaForCausalLM"]).save_pretrained("llama")
    rows = ["llama,inf2.xlarge,1,64,20,3.0", "llama,inf2.xlarge,2,64,30,3.1"]
    (tmp_path / "measured.csv").write_text(
        "\n".join(("model,instance,batch_size,sequence_length,ttft_ms,tpot_ms", *rows))
    )
    return "measured.csv"


def test_calibrated_constants_are_written_and_used(cli, measured, tmp_path):
    result = cli("neuron", "calibrate", measured, "--output", "mine.json", "--json")
    assert result.code == 0 and result.json["simulated"] is True and result.json["output"] == "mine.json"
    assert [value["origin"] for value in result.json["values"]][::2] == ["measured.csv, row 1", "measured.csv, row 2"]
    assert {row["metric"] for row in result.json["errors"]} == {"ttft_ms", "tpot_ms"}
    options = ("llama", "--instance", "inf2.xlarge", "--sequence_length", "64", "--constants", "mine.json")
    estimate = cli("neuron", "estimate", *options, "--json")
    assert estimate.json["tpot_ms"]["value"] == pytest.approx(result.json["values"][1]["after"])
    assert cli("neuron", "compare-run", measured, "--constants", "mine.json", "--quiet").stdout.endswith(
        "% (simulated)\n"
    )
    assert json.loads((tmp_path / "mine.json").read_text())["calibrated_on"] == [measured]


def test_tables_name_runs_constants_and_phases(cli, measured):
    shown = cli("neuron", "calibrate", measured)
    assert shown.code == 0 and "median errors" in shown.stdout and "scale.decoder.tpot_ms" in shown.stdout
    assert "--output mine.json" in shown.stderr
    compared = cli("neuron", "compare-run", measured)
    assert compared.code == 0 and "measured.csv, row 2" in compared.stdout and "ttft_ms" in compared.stdout
    assert "simulated" in compared.stdout and "constants version" in compared.stdout


def test_slips_are_errors_and_write_nothing(cli, measured, tmp_path):
    (tmp_path / "slip.csv").write_text("model,batch_siez,tpot_ms\nllama,1,3\n")
    result = cli("neuron", "calibrate", "slip.csv", "--output", "mine.json", "--json")
    assert result.code == 1 and result.json["error"]["details"]["columns"] == ["batch_siez"]
    wrong = cli("neuron", "calibrate", measured, "--instance", "trn1.2xlarge", "--json")
    assert wrong.code == 1 and len(wrong.json["error"]["details"]["problems"]) == 2
    assert not (tmp_path / "mine.json").exists()
    folder = cli("neuron", "calibrate", measured, "--output", "missing/mine.json", "--json")
    assert folder.code == 1 and folder.json["error"]["details"]["path"] == "missing/mine.json"
