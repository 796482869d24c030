"""A sample of the architectures of `docs/decoders.md`, and the script that measures all of them."""

from __future__ import annotations

import json
import re
import sys

import pytest
import transformers

from tests.models import coverage
from tests.models.coverage import Result

EXACT = ("llama", "gptj", "bart", "bloom", "deepseek_v2", "jetmoe", "llama4_text", "xmod")
REFUSED = ("cpmant", "reformer")


@pytest.mark.parametrize("architecture", EXACT)
def test_architectures_of_every_way_are_exact(architecture):
    result = coverage.measure(architecture)
    assert result.outcome == "exact", result.reason
    assert result.max_diff < 1e-3 and result.num_distinct > 1


@pytest.mark.parametrize("architecture", REFUSED)
def test_what_cannot_be_static_is_refused_with_a_reason_and_soon(architecture):
    result = coverage.measure(architecture)
    assert result.outcome == "refused" and len(result.reason) > 40
    assert result.seconds < 60


def test_an_architecture_that_transformers_does_not_run_has_no_reference():
    result = coverage.measure("musicgen")
    assert result.outcome == "no reference" and "AttributeError" in result.reason


def test_every_architecture_has_a_row_of_the_page():
    page = coverage.PAGE.read_text()
    rows = re.findall(r"^\| (\S+) \| (\S[a-z ]*) \|", page, re.MULTILINE)
    outcomes = {name: outcome for name, outcome in rows if outcome in coverage.OUTCOMES}
    if f"transformers {transformers.__version__}" in page:  # other versions have other architectures
        assert outcomes.keys() == set(coverage.names())
    assert {outcomes[name] for name in EXACT} == {"exact"} and {outcomes[name] for name in REFUSED} == {"refused"}


def crash(architecture):
    import os

    os._exit(3)


def hang(architecture):
    import time

    time.sleep(60)


@pytest.mark.parametrize(("measure", "words"), [(crash, "ended with 3"), (hang, "within 1 seconds")])
def test_a_process_that_dies_or_hangs_is_a_result(monkeypatch, measure, words):
    monkeypatch.setattr(coverage, "measure", measure)
    result = coverage.measure_apart("llama", 1.0)
    assert result.outcome == "crash" and words in result.reason


def test_results_are_kept_and_not_measured_again(monkeypatch, tmp_path, capsys):
    calls = []

    def measured(name, seconds):
        calls.append(name)
        return Result(architecture=name, outcome="exact", path="generic", max_diff=1e-6)

    monkeypatch.setattr(coverage, "measure_apart", measured)
    monkeypatch.setattr(coverage, "names", lambda: ["bart", "bloom", "llama"])
    monkeypatch.setattr(coverage, "PAGE", tmp_path / "page.md")
    file = tmp_path / "results.jsonl"

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["coverage", "--results", str(file), *words])
        coverage.main()

    run("bloom")
    assert calls == ["bloom"] and "| not measured | 2 |" in coverage.PAGE.read_text()
    run()
    assert calls == ["bloom", "bart", "llama"] and "| exact | 3 |" in coverage.PAGE.read_text()
    run("llama")
    assert calls[3:] == ["llama"] and len(file.read_text().splitlines()) == 4
    assert json.loads(file.read_text().splitlines()[0])["architecture"] == "bloom"
    with pytest.raises(SystemExit):
        run("lama")
    assert "lama" in capsys.readouterr().err
