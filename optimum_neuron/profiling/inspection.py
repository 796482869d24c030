"""Profiles a whole process, as NEURON_RT_INSPECT_ENABLE=1 asks: recording begins with the first program that is loaded,
and the profile is written when the process ends.

The folder (NEURON_RT_INSPECT_OUTPUT_DIR, by default `output`) gets one subfolder for each process, with `profile.json`,
`trace.json` for ui.perfetto.dev, and `report.html`. They are the options of `optimum-cli neuron profile`: simulated.

    NEURON_RT_INSPECT_ENABLE=1 NEURON_RT_INSPECT_OUTPUT_DIR=profiles python generate.py
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
from pathlib import Path

from .perfetto import trace_json
from .recorder import Recorder, record
from .report import page

logger = logging.getLogger(__name__)


@functools.cache
def inspect_process(folder: Path) -> None:
    """Record this process from now on, and write its profile below `folder` when it ends; later calls do nothing."""
    stack = contextlib.ExitStack()
    recorder = stack.enter_context(record(Path(sys.argv[0]).name or "python"))
    # As in child.py: at exit, before functions that others registered earlier, torch among them.
    atexit.register(_leave, folder.absolute(), os.getpid(), recorder, stack)


def write_profile(folder: Path, recorder: Recorder) -> None:
    """Write the profile of a recording in its three forms into a folder, which is made."""
    profile = recorder.profile()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.json").write_text(profile.to_json(), encoding="utf-8")
    (folder / "trace.json").write_text(trace_json(profile), encoding="utf-8")
    (folder / "report.html").write_text(page(profile), encoding="utf-8")


def _leave(folder: Path, pid: int, recorder: Recorder, stack: contextlib.ExitStack) -> None:
    with stack:
        if os.getpid() != pid or not recorder.num_calls:  # a forked child has recorded nothing
            return
        place = folder / f"pid_{pid}"
        try:
            write_profile(place, recorder)
        except OSError as error:
            logger.warning("The profile of NEURON_RT_INSPECT_ENABLE is not written to %s: %s", place, error)
            return
        logger.info("profile written to %s", place)
