"""A process that compiles bodies: one JSON job a line on stdin, one JSON answer a line on stdout.

Started by `pool.py`; a process of its own, so that several compile at once and a crash of the compiler takes
nothing else down. Run as `python -m optimum_neuron.compiler.lower.worker`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Answer jobs until stdin closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever torch or the compiler print goes to stderr
    import torch
    import torch._inductor.compile_fx

    from ...errors import NeuronError
    from .inductor import compile_body
    from .prepare import Preparation

    torch.set_num_threads(int(sys.argv[1]))
    for line in sys.stdin:
        job = json.loads(line)
        try:
            preparations = [Preparation.from_list(one) for one in job["preparations"]]
            compile_body(job["body"], job["level"], Path(job["output"]), preparations)
            answer: dict[str, bool | str] = {"ok": True}
        except NeuronError as error:
            answer = {"ok": False, "error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
