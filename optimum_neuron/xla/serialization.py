"""Checkpoints whose tensors are on the CPU: `xm.save`, `xser.save`, and `xser.load`.

`save_tensors("model.pt")` writes one file for each tensor, so none needs all of a model in memory:

    model.pt                       the data, with a reference in place of each tensor
    model.pt.tensors/tensor_0.pt   one tensor, as `torch.save` writes it
"""

from __future__ import annotations

import os
import pickle
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

from ..errors import ArtifactError
from ..files.atomic import replacing
from .nested import ToXlaTensorArena, is_xla_tensor, to_cpu
from .ordinals import is_master_ordinal

_AGAIN = "Load another checkpoint, or copy the files again."


class TensorReference:
    """In the place of a tensor: the number of the file with it."""

    def __init__(self, tid: int) -> None:
        self.tid = tid


# The name in files, by which torch_xla reads those of this package, and this package reads those of torch_xla.
TensorReference.__module__ = "torch_xla.utils.serialization"


def save(
    data: object, file_or_path: str | Path | IO[bytes], master_only: bool = True, global_master: bool = False
) -> None:
    """Save nested data with its tensors on the CPU, in the first process: `xm.save`.

    Every process calls it, and none waits for another. A file appears when it is complete, as by `save_tensors`.

    Args:
        data: nested data.
        file_or_path: as of `torch.save`.
        master_only: write in the first process only; otherwise each process needs a file of its own.
        global_master: first of all processes; False: of each machine.
    """
    if master_only and not is_master_ordinal(local=not global_master):
        return
    if isinstance(file_or_path, (str, os.PathLike)):
        path = Path(os.path.realpath(file_or_path))
        if path.is_file() or not path.exists():
            write_file(to_cpu(data), path)
            return
    torch.save(to_cpu(data), file_or_path)  # an open file, or a device such as /dev/null


def save_tensors(
    data: object, path: str | Path, master_only: bool = True, global_master: bool = False
) -> list[torch.Tensor]:
    """Save nested data with one file for each tensor of "xla": `xser.save`.

    The file appears when its tensors are complete: a process that is killed leaves the older data, or no file.

    Args:
        data: nested data.
        path: file to write; the tensors are in a folder beside it.
        master_only: write in the first process only.
        global_master: first of all processes; False: of each machine.

    Returns:
        The tensors that have files, in the order of their numbers.
    """
    saved: list[torch.Tensor] = []
    if master_only and not is_master_ordinal(local=not global_master):
        return saved
    folder = Path(tensors_folder(str(path)))
    begun = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)

    def write(tensors: list[torch.Tensor]) -> list[TensorReference]:
        for number, tensor in enumerate(tensors):
            write_file(tensor.cpu(), tensor_file(str(begun), number))
        saved.extend(tensors)
        return [TensorReference(number) for number in range(len(tensors))]

    arena = ToXlaTensorArena(write, lambda value: type(value) is torch.Tensor and is_xla_tensor(value))
    try:
        references = arena.transform(data)
        # The older file must not refer to tensors of this one.
        Path(path).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        begun.rename(folder)
    finally:
        shutil.rmtree(begun, ignore_errors=True)
    write_file(references, path)
    return saved


def write_file(data: Any, path: str | Path) -> None:
    """Write data as `torch.save` does, to a temporary file that is renamed: the file is never there in part.

    Args:
        data: nested data.
        path: the file; its folder exists.

    Raises:
        ArtifactError: the file cannot be written.
    """
    with replacing(Path(path), needed_bytes=0, error=ArtifactError) as file:
        torch.save(data, file)


def read_file(path: str | Path) -> Any:
    """Read what `torch.save` wrote, with tensors on the CPU; code in the file is not run.

    Args:
        path: the file.

    Raises:
        ArtifactError: the file is damaged, or has objects of other classes than tensors and plain data.
    """
    try:
        damaged = _damaged(path)
        if damaged is None:
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # of any class, as each bit can be another
        if isinstance(error, pickle.UnpicklingError) and zipfile.is_zipfile(path):
            hint = "Allow classes that you trust with `torch.serialization.add_safe_globals`."
            message = f"{path} has objects that are not loaded without permission."
            raise ArtifactError(message, hint=hint, path=str(path)) from error
        raise ArtifactError(
            f"{path} is damaged: {type(error).__name__}: {error}.", hint=_AGAIN, path=str(path)
        ) from error
    message = f"{path} is damaged: {damaged} in it is not what was written."
    raise ArtifactError(message, hint=_AGAIN, path=str(path), member=damaged)


def _damaged(path: str | Path) -> str | None:
    """The first part of a file with another check sum than `torch.save` wrote; `torch.load` does not compare them."""
    if not zipfile.is_zipfile(path):  # torch's format until 1.6
        return None
    with zipfile.ZipFile(path) as archive:
        has_sums = any(one.CRC for one in archive.infolist())  # torch can be told to leave them out
        return archive.testzip() if has_sums else None


def load_tensors(path: str | Path) -> Any:
    """Load what `save_tensors` wrote, with tensors on the CPU: `xser.load`.

    Code in the file is not run.

    Args:
        path: the file.

    Raises:
        ArtifactError: a file is missing or damaged, or has objects of other classes than tensors and plain data.
    """
    return load_shared_tensors(path, {})


def load_shared_tensors(path: str | Path, elsewhere: Mapping[int, str]) -> Any:
    """Load what `save_tensors` wrote, some of whose tensors another process saved.

    Args:
        path: the file.
        elsewhere: files for tensors, by number, that are not beside it.
    """
    reference = (TensorReference, "torch_xla.utils.serialization.TensorReference")
    with torch.serialization.safe_globals([reference]):
        data = read_file(path)
    folder = tensors_folder(str(path))

    def read(references: list[TensorReference]) -> list[torch.Tensor]:
        files = [tensor_file(folder, one.tid) for one in references]
        others = [elsewhere.get(one.tid, file) for one, file in zip(references, files, strict=True)]
        files = [file if Path(file).exists() else other for file, other in zip(files, others, strict=True)]
        if missing := [file for file in files if not Path(file).exists()]:
            message = f"{path} refers to {missing[0]}, which is missing."
            raise ArtifactError(message, hint=_AGAIN, path=str(path), missing=missing)
        return [read_file(file) for file in files]

    return ToXlaTensorArena(read, lambda value: isinstance(value, TensorReference)).transform(data)


def tensors_folder(path: str) -> str:
    """Return the folder of the tensors of a file."""
    return f"{path}.tensors"


def tensor_file(path: str, tid: int) -> str:
    """Return the file of a tensor in such a folder."""
    return str(Path(path, f"tensor_{tid}.pt"))
