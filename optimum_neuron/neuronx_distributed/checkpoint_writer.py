"""Writes a checkpoint's files, now or in a thread, and marks it as complete when all ranks have written.

It does not know what the files hold.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ..errors import ArtifactError, ConfigError
from ..files.atomic import write_bytes
from .agreement import ending_together, require_everywhere
from .checkpointing import write_item
from .moving import to_cpu
from .parallel_state import is_global_rank_zero

_logger = logging.getLogger("Neuron")

Item = tuple[Any, Path, bool]
"""Data, its file, and whether each tensor is a file of its own."""


def completed_tags(folder: Path) -> list[str]:
    """Names of the complete checkpoints of a folder; the one that was completed last is last."""
    if not folder.is_dir():
        return []
    done = [child / "done" for child in folder.iterdir() if (child / "done").is_file()]
    return [file.parent.name for file in sorted(done, key=lambda file: (file.stat().st_mtime_ns, file.parent.name))]


class Writer:
    """The checkpoint that is being written, at most one."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._num_ranks = 1
        self._num_kept: int | None = None
        self._problem: Future[str | None] | None = None
        self._threads: ThreadPoolExecutor | None = None

    def begin(self, folder: Path, items: Sequence[Item], *, num_kept: int | None, waits: bool) -> None:
        """Write files; `waits` completes the checkpoint before it returns."""
        self._folder, self._num_kept = folder, num_kept
        self._num_ranks = dist.get_world_size() if dist.is_initialized() else 1
        if waits:
            self._problem = Future()
            self._problem.set_result(_write(items))
            self.finish()
            return
        # Tensors change before the thread reads them: those with files of their own are written now, others are copied.
        early = _write([item for item in items if item[2]])
        late = [(to_cpu(data), file, False) for data, file, by_tensor in items if not by_tensor]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
            atexit.register(self._finish_at_exit)
        self._problem = self._threads.submit(lambda: early or _write(late))

    def finish(self) -> None:
        """Wait for the files, and mark the checkpoint as complete if all ranks have written."""
        if self._folder is None or self._problem is None:
            return
        folder, problem = self._folder, self._problem.result()
        self._folder = self._problem = None
        if self._num_ranks > 1 and not dist.is_initialized():
            message = (
                f"{folder} stays incomplete: torch.distributed ended before all ranks said that they have written."
            )
            hint = "Call finalize_checkpoint() before destroy_process_group()."
            raise ConfigError(message, hint=hint, path=str(folder))
        require_everywhere(problem, "Free space, or choose another folder, and save again.", path=str(folder))
        with ending_together("Check what rank 0 may write and remove there."):
            if is_global_rank_zero():
                write_bytes(folder / "done", b"1", error=ArtifactError)
                _remove_old(folder.parent, self._num_kept)

    def _finish_at_exit(self) -> None:
        if self._num_ranks > 1 and hasattr(sys, "last_value"):  # this rank ends with an error: the others do not come
            return
        try:
            self.finish()
        except Exception as error:  # nobody can handle it any more
            _logger.warning("%s", error)


def _write(items: Sequence[Item]) -> str | None:
    """Write files, and return what prevented it."""
    for data, file, by_tensor in items:
        try:
            write_item(data, file, by_tensor=by_tensor)
        except Exception as error:  # of any class, as data can refuse to be pickled: the other ranks wait for this one
            return f"{file} could not be written: {error}"
    return None


def _remove_old(folder: Path, num_kept: int | None) -> None:
    """Remove the oldest complete checkpoints, their mark `done` first, so that the rest of one is never loaded."""
    for tag in completed_tags(folder)[:-num_kept] if num_kept is not None and num_kept > 0 else ():
        (folder / tag / "done").unlink()
        shutil.rmtree(folder / tag)


WRITER = Writer()
"""The checkpoint of this process."""
