"""Compiles a list of models into the cache, several at once: on a Ray cluster, or in processes of this machine.

    jobs = read_jobs("models.yaml")
    warmed = warm_cache(jobs, cache_url="s3://bucket/neffs")
    warmed.num_compiled, warmed.failures

A model that is in the cache is not compiled again, so a run that was interrupted goes on where it was. A job that fails
does not end the others.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib.util
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import env
from ..base.core import Choice
from ..errors import ConfigError, NeuronError, nearest
from ..files.documents import read_document
from ..options.option import absolute_source, absolute_url

MEMORY_OF_WORKER_BYTES = 2 * 2**30
"""Memory that a process should have: most models are captured without their weights."""
_OF_JOB = ("model", "task", "instance", "options")
_OF_FILE = ("models", "defaults")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmJob:
    """One compile."""

    model: str
    """Folder, id on the Hub, or name in `optimum_neuron.checkpoints`."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """As for `main_export`, with `task` and `instance_type`."""

    @property
    def label(self) -> str:
        """Its options in words."""
        return ", ".join(f"{name}={value}" for name, value in sorted(self.options.items()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmResult:
    """The end of a job."""

    job: WarmJob
    result: str
    """"hit", "compiled", or "failed"."""
    reason: str = ""
    """Why it is a hit or had to be compiled."""
    seconds: float = 0.0
    error: Mapping[str, Any] | None = None
    """Parts of the error, as `NeuronError.to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**dataclasses.asdict(self.job), **dataclasses.asdict(self), "job": self.job.label}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Warmed:
    """All jobs, in their order."""

    results: tuple[WarmResult, ...]
    workers: Choice[str]

    def count(self, result: str) -> int:
        """Return how many jobs ended in this way."""
        return sum(one.result == result for one in self.results)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Errors of one kind together, with the jobs that have them."""
        kinds: dict[tuple[str, str], dict[str, Any]] = {}
        for one in self.results:
            if one.error is not None:
                key = (str(one.error["type"]), str(one.error.get("code")))
                kind = kinds.setdefault(key, {**one.error, "jobs": []})
                kind["jobs"].append({"model": one.job.model, "job": one.job.label, "message": one.error["message"]})
        return list(kinds.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "workers": self.workers.to_dict(),
            "hits": self.count("hit"),
            "compiled": self.count("compiled"),
            "failed": self.count("failed"),
            "results": [one.to_dict() for one in self.results],
            "failures": self.failures,
        }


def read_jobs(path: str | Path) -> list[WarmJob]:
    """Read a list of models from a YAML or JSON file.

    Each entry has `model`, and may have `task`, `options`, and `instance`, a name or a list of names; `defaults` has
    options of all entries.

    Example:
        ```python
        from pathlib import Path
        from optimum_neuron.exporters import read_jobs

        Path("models.yaml").write_text(
            "defaults: {batch_size: 1}\\n"
            "models:\\n"
            "- {model: smollm2, instance: [inf2, trn1], options: {sequence_length: 2048}}"
        )
        assert [job.options["instance_type"] for job in read_jobs("models.yaml")] == ["inf2", "trn1"]
        ```
    """
    data = read_document(Path(path))
    models = data if isinstance(data, list) else data.get("models") if isinstance(data, dict) else None
    problems = [] if isinstance(data, list) else [_unknown("the file", data, _OF_FILE)]
    defaults = data.get("defaults") or {} if isinstance(data, dict) else {}
    jobs: list[WarmJob] = []
    for number, entry in enumerate(models if isinstance(models, list) else [], start=1):
        if isinstance(entry, dict) and isinstance(entry.get("model"), str):
            problems.append(_unknown(f"entry {number}", entry, _OF_JOB))
            jobs += _jobs_of(entry, defaults)
        else:
            problems.append(f"entry {number} has no model")
    if found := [problem for problem in problems if problem]:
        lines = "\n".join(f"  {problem}" for problem in found)
        hint = f"An entry has {', '.join(_OF_JOB)}."
        raise ConfigError(f"{path} cannot be used:\n{lines}", hint=hint, option="config", value=str(path))
    if not jobs:
        message = f"{path} has no list of models."
        raise ConfigError(message, hint="Pass a list `models`.", option="config", value=str(path))
    return jobs


def _jobs_of(entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[WarmJob]:
    options = {**defaults, **(entry.get("options") or {})}
    options |= {"task": entry["task"]} if entry.get("task") else {}
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    instances = entry.get("instance")
    for instance in instances if isinstance(instances, list) else [instances]:
        chosen = {} if instance is None else {"instance_type": instance}
        yield WarmJob(model=entry["model"], options=options | chosen)


def _unknown(what: str, fields: object, known: Sequence[str]) -> str:
    wrong = [str(name) for name in fields if name not in known] if isinstance(fields, dict) else []
    return f"{what} has the unknown field {wrong[0]!r}{nearest(wrong[0], known) or '.'}" if wrong else ""


def warm_cache(
    jobs: Sequence[WarmJob],
    *,
    cache_url: str | None = None,
    num_workers: int | None = None,
    ray_address: str | None = None,
    on_done: Callable[[WarmResult], None] = lambda result: None,
) -> Warmed:
    """Compile models into the cache, unless they are there.

    Args:
        jobs: see `read_jobs`.
        cache_url: folder or fsspec URL; None for NEURON_COMPILE_CACHE_URL.
        num_workers: jobs at once; None for all CPUs of a Ray cluster, or as many as this machine has memory for.
        ray_address: a Ray cluster; None for one that runs on this machine, else processes.
        on_done: called with each result as it comes.
    """
    cluster = _cluster(ray_address)
    if cluster is not None:
        workers = Choice(value=f"Ray at {cluster}", reason="a cluster runs" if ray_address is None else "ray_address")
        results = _on_ray(jobs, cache_url, num_workers, on_done)
    else:
        count = _num_workers(num_workers)
        workers = Choice(value=f"{count.value} processes", reason=count.reason)
        results = _in_processes(jobs, cache_url, count.value, on_done)
    return Warmed(results=tuple(results[number] for number in range(len(jobs))), workers=workers)


def run_job(job: WarmJob, cache_url: str | None) -> WarmResult:
    """Compile one model; an error is a result."""
    from .cached import fill_cache

    env.silence_progress()
    started = time.perf_counter()
    try:
        added = fill_cache(job.model, cache_url=cache_url, **job.options)
        facts = {"result": "hit" if added["result"] == "hit" else "compiled", "reason": added["reason"]}
    except NeuronError as error:
        facts = {"result": "failed", "error": error.to_dict()}
    except Exception as error:  # noqa: BLE001  # other models are compiled all the same
        logging.getLogger(__name__).error("%s cannot be compiled.", job.model, exc_info=error)
        parts = {"type": type(error).__name__, "code": "unexpected", "message": str(error)[:1000], "hint": ""}
        facts = {"result": "failed", "error": parts}
    return WarmResult(job=job, seconds=time.perf_counter() - started, **facts)


def _run_elsewhere(job: WarmJob, model: str, cache_url: str) -> WarmResult:
    """Compile a model that has another path in this process; the result has the job as it was given."""
    return dataclasses.replace(run_job(dataclasses.replace(job, model=model), cache_url), job=job)


def _num_workers(num_workers: int | None) -> Choice[int]:
    if num_workers is not None:
        return Choice(value=num_workers, reason=f"num_workers={num_workers}")
    import psutil

    num_cpus = len(os.sched_getaffinity(0))
    room = int(psutil.virtual_memory().available // MEMORY_OF_WORKER_BYTES)
    reason = f"{num_cpus} CPUs, and memory for {room} at once"
    return Choice(value=max(min(num_cpus, room), 1), reason=reason)


def _in_processes(
    jobs: Sequence[WarmJob], cache_url: str | None, num_workers: int, on_done: Callable[[WarmResult], None]
) -> dict[int, WarmResult]:
    """Run jobs in processes; those that were left when one died run again, each in a process of its own."""
    results = _in_pool(dict(enumerate(jobs)), cache_url, num_workers, on_done)
    for number, job in enumerate(jobs):
        if number not in results:
            results |= _in_pool({number: job}, cache_url, 1, on_done)
        if number not in results:
            parts = {"message": "The process died, perhaps for lack of memory.", "hint": "Pass fewer num_workers."}
            error = {"type": "ProcessDied", "code": "process_died", **parts}
            results[number] = WarmResult(job=job, result="failed", error=error)
            on_done(results[number])
    return results


def _in_pool(
    jobs: Mapping[int, WarmJob], cache_url: str | None, num_workers: int, on_done: Callable[[WarmResult], None]
) -> dict[int, WarmResult]:
    results: dict[int, WarmResult] = {}
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(num_workers, len(jobs)), mp_context=context) as pool:
        futures = {pool.submit(run_job, job, cache_url): number for number, job in jobs.items()}
        try:
            for future in concurrent.futures.as_completed(futures):
                if isinstance(future.exception(), concurrent.futures.BrokenExecutor):
                    break
                results[futures[future]] = future.result()
                on_done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def no_ray_cluster(address: str, error: Exception) -> ConfigError:
    """Return the error for an address that Ray cannot connect to."""
    message = f"Ray cannot connect to a cluster at {address}: {' '.join(str(error).split())[:200]}"
    hint = "Start one with: ray start --head. If it asks for a token, set RAY_AUTH_MODE=token."
    return ConfigError(message, hint=hint, option="ray_address", value=address)


def _cluster(address: str | None) -> str | None:
    """Connect to a Ray cluster; return its address, or None if there is none and none is named."""
    if importlib.util.find_spec("ray") is None:
        if address is None:
            return None
        hint = "Install it with: pip install 'optimum-neuron-sim[ray]'"
        raise ConfigError("ray_address needs the package ray.", hint=hint, packages=["ray"])
    import ray

    if ray.is_initialized():
        return str(ray.get_runtime_context().gcs_address)
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        if address is None:
            return None
        raise no_ray_cluster(address, error) from error
    return str(ray.get_runtime_context().gcs_address)


def _on_ray(
    jobs: Sequence[WarmJob], cache_url: str | None, num_workers: int | None, on_done: Callable[[WarmResult], None]
) -> dict[int, WarmResult]:
    """Run jobs as tasks of a cluster, which runs a task again if its machine dies."""
    import ray

    task = ray.remote(num_cpus=1, max_retries=2)(_run_elsewhere)
    cache_url = absolute_url(cache_url or env.compile_cache_url())  # the cluster has another folder and environment
    waiting, results = list(enumerate(jobs)), dict[int, WarmResult]()
    running: dict[Any, tuple[int, WarmJob]] = {}
    most = num_workers or len(jobs)
    while waiting or running:
        while waiting and len(running) < most:
            number, job = waiting.pop(0)
            running[task.remote(job, absolute_source(job.model), cache_url)] = (number, job)
        (done, *_), _ = ray.wait(list(running), num_returns=1)
        number, job = running.pop(done)
        try:
            result = ray.get(done)
        except ray.exceptions.RayError as error:
            parts = {"type": type(error).__name__, "code": "process_died", "message": str(error)[:500], "hint": ""}
            result = WarmResult(job=job, result="failed", error=parts)
        results[number] = result
        on_done(result)
    return results
