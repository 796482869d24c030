"""A list of models is compiled in processes; hits, compiles, and failures are told apart."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import types

import pytest

from optimum_neuron.base.core import Choice
from optimum_neuron.errors import ConfigError
from optimum_neuron.exporters import Warmed, WarmJob, read_jobs, warm, warm_cache
from optimum_neuron.exporters.warm import WarmResult

OPTIONS = {"batch_size": 1, "sequence_length": 16, "optlevel": "1"}
YAML = """
defaults: {batch_size: 1}
models:
- {model: a, task: text-generation, instance: [inf2, trn1], options: {prefill_buckets: [8, 16]}}
- {model: b, options: {batch_size: 2}}
"""


def test_entries_become_jobs(tmp_path):
    (tmp_path / "models.yaml").write_text(YAML)
    jobs = read_jobs(tmp_path / "models.yaml")
    common = {"batch_size": 1, "task": "text-generation", "prefill_buckets": (8, 16)}
    assert [job.options for job in jobs] == [
        {**common, "instance_type": "inf2"},
        {**common, "instance_type": "trn1"},
        {"batch_size": 2},
    ]
    (tmp_path / "models.json").write_text(json.dumps([{"model": "a"}]))
    assert read_jobs(tmp_path / "models.json") == [WarmJob(model="a")]


@pytest.mark.parametrize(
    "text", ["", "[", "models: []", "models: [a]", "models: [{modle: a}]", "modles: []", "models: [{model: a, x: 1}]"]
)
def test_wrong_files(tmp_path, text):
    (tmp_path / "models.yaml").write_text(text)
    for name in ("models.yaml", "missing.json"):
        with pytest.raises(ConfigError) as error:
            read_jobs(tmp_path / name)
        assert error.value.details["option"] == "config"


def test_errors_of_one_kind_are_together():
    def failed(model, kind):
        error = {"type": kind, "code": "x", "message": f"{model} fails", "hint": ""}
        return WarmResult(job=WarmJob(model=model), result="failed", error=error)

    results = (failed("a", "ModelError"), failed("b", "ConfigError"), failed("c", "ModelError"))
    warmed = Warmed(results=results, workers=Choice(value="1", reason="a test"))
    assert [[job["model"] for job in kind["jobs"]] for kind in warmed.failures] == [["a", "c"], ["b"]]
    assert warmed.to_dict()["failed"] == 3


@pytest.mark.full(days=6)
def test_models_are_compiled_once(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "_cluster", lambda address: None)
    jobs = [
        WarmJob(model=str(checkpoint), options=OPTIONS),
        WarmJob(model=str(tmp_path / "missing")),
        WarmJob(model=str(checkpoint), options={**OPTIONS, "batch_sise": 2}),
    ]
    seen = []
    first = warm_cache(jobs, cache_url=str(tmp_path / "cache"), num_workers=1, on_done=seen.append)
    assert [one.result for one in first.results] == ["compiled", "failed", "failed"] and len(seen) == 3
    assert {kind["type"] for kind in first.failures} == {"ModelError", "ConfigError"}
    again = warm.run_job(jobs[0], str(tmp_path / "cache"))
    assert again.result == "hit"


def test_a_process_that_dies_fails_its_job_only(monkeypatch):
    monkeypatch.setattr(warm, "run_job", run_or_die)
    results = warm._in_processes([WarmJob(model="dies"), WarmJob(model="lives")], None, 2, lambda result: None)
    assert results[0].error["code"] == "process_died" and results[1].result == "hit"


def test_command_shows_results_and_exits_1_for_a_failure(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "_cluster", lambda address: None)
    monkeypatch.setattr(warm, "run_job", run_or_die)
    path = tmp_path / "models.yaml"
    path.write_text("models: [{model: dies}, {model: lives}]")
    words = ("neuron", "cache", "warm", str(path), "--num_workers", "2")
    shown = cli(*words)
    assert shown.code == 1 and "1 hit, 0 compiled, 1 failed" in shown.stdout
    assert any({"lives", "hit"} <= set(line.split()) for line in shown.stdout.splitlines()) and "dies" in shown.stdout
    assert f"cache warm {path}" in shown.stderr, "the next command"
    assert [job["model"] for kind in cli(*words, "--json").json["failures"] for job in kind["jobs"]] == ["dies"]
    path.write_text("models: [{model: lives}]")
    quiet = cli(*words, "--quiet")
    assert quiet.code == 0 and quiet.stdout.split()[:2] == ["1", "hits,"]


def run_or_die(job, cache_url):
    if job.model == "dies":
        os._exit(9)
    return WarmResult(job=job, result="hit")


def test_a_cluster_is_given_paths_that_hold_in_any_folder(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    seen = []

    class Ref:
        """Result of a task, which runs at once in another folder."""

        def __init__(self, function, *arguments):
            seen.append(arguments[2])
            with contextlib.chdir(tmp_path):
                self.result = function(*arguments)

    def remote(**options):
        return lambda function: types.SimpleNamespace(remote=functools.partial(Ref, function))

    ray = types.SimpleNamespace(
        remote=remote,
        wait=lambda running, num_returns: (running, []),
        get=lambda ref: ref.result,
        exceptions=types.SimpleNamespace(RayError=OSError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(warm, "_cluster", lambda address: "here")
    jobs = [WarmJob(model=f"./{checkpoint.name}", options=OPTIONS), WarmJob(model="./missing", options=OPTIONS)]
    warmed = warm_cache(jobs, cache_url="neffs")
    assert [one.result for one in warmed.results] == ["compiled", "failed"]
    assert [one.job for one in warmed.results] == jobs
    assert seen == [str(checkpoint.parent / "neffs")] * 2 and (checkpoint.parent / "neffs").is_dir()
