"""A process that compiles subprograms: one JSON job a line on stdin, one JSON answer for each on stdout.

`background.py` starts it with a low priority. In a separate process, compiling does not hold the user's Python lock,
and a crash of the compiler does not end the user's program.

    python -m optimum_neuron.compiler.lower.worker NUM_THREADS NICENESS
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import IO


def main() -> None:
    """Answer jobs until stdin closes; a line that has "end" ends a batch, which is compiled together."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever torch or the compiler print goes to stderr
    os.nice(int(sys.argv[2]))
    import torch

    from ...errors import LoweringError
    from .lower import locate
    from .unit import Job, compile_jobs

    torch.set_num_threads(int(sys.argv[1]))

    def say(**fields: object) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    for batch in _batches(sys.stdin):
        missing = []
        for job in map(Job.from_dict, batch):
            if locate(job.record) is None:
                missing.append(job)
            else:  # another process was faster
                say(done=job.name)
        failures: list[str] = []
        try:
            compile_jobs(missing, num_compilers=1, on_done=lambda job: say(done=job.name))
        except LoweringError as error:
            failures.append(str(error))
        say(end=True, failures=failures)


def _batches(lines: IO[str]) -> Iterator[list[dict[str, object]]]:
    batch: list[dict[str, object]] = []
    for line in lines:
        job = json.loads(line)
        if "end" in job:
            yield batch
            batch = []
        else:
            batch.append(job)


if __name__ == "__main__":
    main()
