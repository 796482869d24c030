"""A sample of the architectures of `docs/decoders.md`, and the script that measures all of them."""

from __future__ import annotations

import dataclasses
import json
import re
import sys

import pytest
import transformers

from tests.models import coverage
from tests.models.coverage import STUDY
from tests.study import Result, main

EXACT = ("llama", "gptj", "bart", "bloom", "deepseek_v2", "jetmoe", "llama4_text", "xmod")
REFUSED = ("cpmant", "reformer")


@pytest.mark.full(days=14)
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
    page = STUDY.page.read_text()
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
def test_a_process_that_dies_or_hangs_is_a_result(measure, words):
    result = dataclasses.replace(STUDY, measure=measure).measure_apart("llama", 1.0)
    assert result.name == "llama" and result.outcome == "crash" and words in result.reason


def test_results_are_kept_and_not_measured_again(monkeypatch, tmp_path, capsys):
    counted = tmp_path / "calls"

    def measured(name):
        with counted.open("a") as file:  # in another process
            file.write(f"{name} ")
        return Result(name=name, outcome="exact", path="generic", max_diff=1e-6)

    page, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    study = dataclasses.replace(STUDY, measure=measured, names=lambda: ["bart", "bloom", "llama"], page=page)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["coverage", "--results", str(results), *words])
        main(study, description=None)

    run("bloom")
    assert counted.read_text().split() == ["bloom"] and "| not measured | 2 |" in page.read_text()
    run()
    assert counted.read_text().split() == ["bloom", "bart", "llama"] and "| exact | 3 |" in page.read_text()
    assert "| bart | exact | generic | 1.0e-06 |" in page.read_text()
    run("llama")
    assert counted.read_text().split()[3:] == ["llama"] and len(results.read_text().splitlines()) == 4
    assert json.loads(results.read_text().splitlines()[0])["name"] == "bloom"
    with pytest.raises(SystemExit):
        run("lama")
    assert "lama" in capsys.readouterr().err
