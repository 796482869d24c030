"""Compile several bodies at once in worker processes.

Workers are started early, while the model is still being captured, because importing torch and Inductor takes
as long as compiling a small body. It knows nothing of what is compiled or why.

    with LoweringPool(num_workers=2) as pool:
        pool.run([Job(body=..., level="inductor", output=path)], on_done=lambda job: ...)
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ...errors import LoweringError, refusal
from .choose import HostLevel
from .prepare import Preparation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One body to compile."""

    body: dict[str, Any]
    """As `serial.body_to_dict` returns it."""
    level: HostLevel
    """How to compile it."""
    output: Path
    """Where the package goes."""
    preparations: tuple[Preparation, ...] = ()
    """Which of its weights it will be given in another form."""

    def to_json(self) -> str:
        """One line for a worker."""
        preparations = [one.to_list() for one in self.preparations]
        fields = {"body": self.body, "level": self.level, "output": str(self.output), "preparations": preparations}
        return json.dumps(fields)


class LoweringPool:
    """Worker processes that compile bodies; start it early and close it."""

    def __init__(self, num_workers: int) -> None:
        import torch

        command = [sys.executable, "-m", f"{__package__}.worker", str(torch.get_num_threads())]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        root = str(Path(__file__).resolve().parents[3])
        self._workers = [subprocess.Popen(command, text=True, cwd=root, **pipes) for _ in range(num_workers)]

    def run(self, jobs: Sequence[Job], on_done: Callable[[Job], None] = lambda job: None) -> None:
        """Compile all jobs; `on_done` is called from a thread of this process as each one finishes.

        What `on_done` raises ends the run: jobs that have begun are finished, and the first exception is raised.

        Raises:
            LoweringError: one or more bodies failed; all of them are named.
        """
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        failures: list[str] = []
        raised: list[BaseException] = []

        def serve(worker: subprocess.Popen[str]) -> None:
            try:
                self._serve(worker, waiting, failures, on_done)
            except BaseException as error:  # a thread would only print it
                raised.append(error)
                with contextlib.suppress(queue.Empty):
                    while True:
                        waiting.get_nowait()

        threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in self._workers[: len(jobs)]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if raised:
            raise raised[0]
        if failures:
            raise LoweringError("\n".join(failures))

    @staticmethod
    def _serve(
        worker: subprocess.Popen[str],
        waiting: queue.SimpleQueue[Job],
        failures: list[str],
        on_done: Callable[[Job], None],
    ) -> None:
        assert worker.stdin is not None and worker.stdout is not None
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                worker.stdin.write(job.to_json() + "\n")
                worker.stdin.flush()
                line = worker.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                failures.append(
                    refusal(
                        asked=f"host code for {job.output.stem}",
                        found=f"the compile worker ended with exit code {worker.wait()}",
                        why="-9 means that the system ran out of memory; other codes are a crash of the compiler",
                        do="close other programs or export with -O1, which compiles nothing",
                    )
                )
                return
            answer = json.loads(line)
            if answer["ok"]:
                on_done(job)
            else:
                failures.append(answer["error"])

    def close(self) -> None:
        """End the workers, also while they compile."""
        for worker in self._workers:
            if worker.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # a dead worker did not read its last job
                    worker.stdin.close()
            worker.terminate()
            worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()

    def __enter__(self) -> LoweringPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
