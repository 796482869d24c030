"""Checkpoints that appear whole or not at all, and which of them a run can go on from.

A checkpoint is written into `_unfinished/` next to its destination, listed with the sizes of its files in a marker,
flushed, and renamed. Whatever kills the process, `checkpoint-<step>` is complete or not there. It stays a plain Hugging
Face folder: the marker is one more file. Folders of upstream's `Trainer` have no marker; its last file shows whether
they are whole. It does not depend on how weights are trained.

    >>> from optimum_neuron.trainer.checkpoints import last_complete
    >>> last_complete("/nowhere").reason
    '/nowhere has no folder checkpoint-<step>'
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.core import Choice, Rejected
from ..base.typed_data import misfits
from ..distributed import has_sharded_optimizer
from ..errors import ArtifactError
from ..files.atomic import sync_folder, write_bytes
from ..files.plain_json import parse_json

MARKER = "neuron_checkpoint.json"
"""Written last; lists every other file with its size, and the layout."""
_MARKER = {"files": dict[str, int], "layout": dict[str, Any]}

STAGING = "_unfinished"
"""Folder of unfinished checkpoints. Uploads leave out names that begin so (`Trainer.push_to_hub`)."""

_NAME = re.compile(r"^checkpoint-(\d+)$")
STATE = "trainer_state.json"
"""Upstream's file that is written last."""


def finish(staged: Path, final: Path, *, step: int, layout: Mapping[str, Any], optimizer: str) -> None:
    """Mark a written folder as complete and move it to its place; a folder that is there is replaced.

    Args:
        layout: the settings that decide how states are split.
    """
    files = {str(path.relative_to(staged)): path.stat().st_size for path in _files(staged)}
    marker = {"step": step, "layout": dict(layout), "optimizer": optimizer, "files": files}
    for path in _files(staged):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    write_bytes(staged / MARKER, json.dumps(marker, indent=2).encode(), error=ArtifactError)
    if final.exists():
        # A folder cannot replace another one that has files; out of the way first, so that no moment has half of one.
        old = staged.with_name(f"{final.name}.replaced")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(final, old)
    os.rename(staged, final)
    sync_folder(final.parent)
    tidy(final.parent)


def tidy(output_dir: str | Path) -> None:
    """Remove unfinished checkpoints of a killed run; move complete ones, not moved yet, to their destination."""
    staging = Path(output_dir, STAGING)
    for path in staging.iterdir() if staging.is_dir() else ():
        final = staging.parent / path.name
        if (path / MARKER).is_file() and _NAME.match(path.name) and defect(path) is None and not final.exists():
            os.rename(path, final)
    shutil.rmtree(staging, ignore_errors=True)


def save_device_rng(folder: str | Path, device: object, process: int) -> None:
    """Write the state of the device's random generators next to upstream's states of the host's."""
    import torch
    from safetensors.torch import save_file

    save_file({"state": torch.neuron.get_rng_state(device)}, _rng_file(folder, process))


def load_device_rng(folder: str | Path, device: object, process: int) -> None:
    """Restore it, where the checkpoint has it."""
    import torch
    from safetensors.torch import load_file

    if _rng_file(folder, process).is_file():
        torch.neuron.set_rng_state(load_file(_rng_file(folder, process))["state"], device)


def _rng_file(folder: str | Path, process: int) -> Path:
    return Path(folder, f"rng_state_neuron_{process}.safetensors")


def defect(folder: str | Path) -> str | None:
    """Return why a checkpoint is not whole, or None if it is."""
    folder = Path(folder)
    if not folder.is_dir():
        return "there is no such folder"
    if (folder / MARKER).is_file():
        try:
            files = _marker(folder)["files"]
        except (OSError, ValueError):
            return f"{MARKER} cannot be read"
        for name, size_bytes in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size_bytes:
                return f"{name} has {path.stat().st_size} bytes instead of {size_bytes}"
        return None
    try:
        parse_json((folder / STATE).read_bytes())
    except OSError:
        return f"{STATE}, which is written last, is missing"
    except ValueError:
        return f"{STATE} breaks off"
    return None


def _marker(folder: Path) -> dict[str, Any]:
    """Read the marker of a checkpoint."""
    content = parse_json((folder / MARKER).read_bytes())
    for misfit in misfits({"files": None, **content} if isinstance(content, dict) else content, _MARKER):
        raise ValueError(str(misfit))
    return dict(content)


def last_complete(output_dir: str | Path) -> Choice[Path | None]:
    """Return the newest complete checkpoint, and why newer ones are incomplete."""
    folder = Path(output_dir)
    checkpoints = {
        int(match[1]): path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.match(path.name)) and path.is_dir()
    }
    rejected: list[Rejected] = []
    for step in sorted(checkpoints, reverse=True):
        problem = defect(checkpoints[step])
        if problem is None:
            return Choice(value=checkpoints[step], reason="newest that is whole", rejected=tuple(rejected))
        rejected.append(Rejected(candidate=checkpoints[step].name, reason=problem))
    reason = "no checkpoint is whole" if checkpoints else f"{folder} has no folder checkpoint-<step>"
    return Choice(value=None, reason=reason, rejected=tuple(rejected))


def require_resumable(folder: str | Path, layout: Mapping[str, Any], *, optimizer: str) -> None:
    """Reject a checkpoint that is not whole, or whose optimizer states this layout or optimizer cannot read.

    States in shards (`distributed/checkpoint.py`) can be read by every layout but upstream's FSDP.
    """
    folder = Path(folder)
    problem = defect(folder)
    if problem is not None:
        # Users often pass the folder of a run instead of one of its checkpoints.
        inside = last_complete(folder)
        other = inside if inside.value else last_complete(folder.parent)
        message = f"{folder} cannot be resumed: {problem}."
        hint = f"Resume from {other.value}." if other.value else f"Start without a checkpoint: {other.reason}."
        raise ArtifactError(
            message, hint=hint, folder=str(folder), problem=problem, newest=other.value and str(other.value)
        )
    if not (folder / MARKER).is_file():
        return
    marker = _marker(folder)
    in_shards, theirs = has_sharded_optimizer(folder), marker.get("optimizer", optimizer)
    if theirs != optimizer and (in_shards or any(folder.glob("optimizer.*"))):
        hint = "Pass the optim of the run that saved it, or its weights as the model (from_pretrained)."
        raise _other_run(folder, theirs, optimizer, hint=hint)
    if in_shards and not layout.get("fsdp"):
        return
    saved = marker.get("layout", {})
    differing = [name for name in layout if saved.get(name, layout[name]) != layout[name]]
    if differing:
        raise _other_run(
            folder,
            ", ".join(f"{name}={saved[name]}" for name in differing),
            ", ".join(f"{name}={layout[name]}" for name in differing),
            hint="Start with the checkpoint's layout, or pass its weights as the model (from_pretrained).",
        )


def _other_run(folder: Path, saved: str, present: str, *, hint: str) -> ArtifactError:
    message = f"{folder} has the optimizer states of {saved}, but this run has {present}."
    return ArtifactError(message, hint=hint, folder=str(folder), saved=saved, present=present)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARKER)
