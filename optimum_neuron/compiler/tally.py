"""Records of the graphs that processes compile or find in a cache, for a parent process that reports on them.

`neuron_parallel_compile` sets OPTIMUM_NEURON_COMPILE_RECORDS to a folder. Each process writes one file there, with one
line of JSON for each NEFF and for each graph of `torch.compile`.

    add(folder, "neff", "neuronxcc-2.21/MODULE_0123", was_compiled=True)
    print(read(folder))
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import Literal

logger = logging.getLogger(__name__)

Kind = Literal["neff", "torch.compile"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One NEFF, or one graph of `torch.compile`."""

    kind: Kind
    """Cache that holds it: the compile cache, or torch's caches."""
    name: str
    """Entry of the compile cache; Dynamo's frame and the kind of the graph."""
    was_compiled: bool
    """False if a cache had it."""


def add(folder: Path, kind: Kind, name: str, *, was_compiled: bool) -> None:
    """Record a graph of this process in a folder, that of `env.compile_records()`."""
    line = json.dumps(dataclasses.asdict(Record(kind=kind, name=name, was_compiled=was_compiled)))
    try:
        with open(folder / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as error:  # the parent process has ended, and its folder with it
        logger.warning("A compiled graph cannot be recorded: %s", error)


def read(folder: Path) -> list[Record]:
    """Return the records of all processes in a folder."""
    return [
        Record(**json.loads(line))
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
