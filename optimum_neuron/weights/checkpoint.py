"""A Hugging Face checkpoint folder: one or several safetensors files behind one set of names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from ..base.core import TensorSpec
from ..base.typed_data import Inside, require_types
from ..errors import WeightsError
from ..files.plain_json import parse_json
from .mapped import MappedFile, concatenate

if TYPE_CHECKING:
    import torch

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
_DIFFUSERS = "diffusion_pytorch_model.safetensors"
"""diffusers' name of the file of a model."""
_DOWNLOAD_AGAIN = "Download the checkpoint again."
_INDEX = {"weight_map": dict[str, Annotated[str, Inside(is_name=True)]]}
"""Fields of an index: the file of each tensor, beside it."""


class TensorSource(Protocol):
    """Tensors by name."""

    @property
    def origin(self) -> str:
        """Source of the tensors, for messages."""

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor."""

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, and whether that took a copy."""

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go that tensors of a file take, because they were copied."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateDict:
    """Tensors in memory, such as those of a transformers model that converts its checkpoint when it loads it."""

    tensors: Mapping[str, torch.Tensor]
    origin: str
    """Source of the tensors."""

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor."""
        return {
            name: TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
            for name, tensor in self.tensors.items()
        }

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0; always in separate memory."""
        return (self.tensors[names[0]] if len(names) == 1 else concatenate([self.tensors[n] for n in names])), True

    def drop_pages(self, names: Sequence[str]) -> None:
        """They are in no file."""


class Checkpoint:
    """Tensors of a checkpoint by name, mapped from disk."""

    def __init__(self, files: Sequence[MappedFile], origin: str) -> None:
        self.origin = origin
        self._file_of = {name: file for file in files for name in file.entries}

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Open the safetensors files of a folder."""
        return cls([MappedFile.open(path) for path in weight_files(folder)], str(folder))

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor."""
        return {name: file.entries[name].spec for name, file in self._file_of.items()}

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, and whether that took a copy."""
        files = {id(self._file_of[name]) for name in names}
        if len(files) == 1:
            neighbors = self._file_of[names[0]].get(names)
            if neighbors is not None:
                return neighbors
        return concatenate([self.join([name])[0] for name in names]), True

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go that tensors of the files take; a tensor that is read again is read from its file."""
        for name in names:
            self._file_of[name].drop_pages([name])


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder, in the order of their names."""
    for name in (SINGLE_FILE, _DIFFUSERS):
        if (folder / name).is_file():
            return [folder / name]
    indexes = [folder / name for name in (INDEX_FILE, f"{_DIFFUSERS}.index.json")]
    index = next(filter(Path.is_file, indexes), None)
    if index is None:
        patterns = ("*.bin", "model*.safetensors")
        pickles, others = (sorted(path.name for path in folder.glob(pattern)) for pattern in patterns)
        if others:
            message = f"{folder} has {', '.join(others)}, but no {SINGLE_FILE}, and no {INDEX_FILE} that names them."
            hint = f"Rename the file to {SINGLE_FILE}, or save the model again without a variant."
            raise WeightsError(message, hint=hint, path=str(folder), files=others)
        only = f", only pickles, which could run code: {', '.join(pickles)}" if pickles else ""
        hint = "Load the model with its class of transformers, and pass a folder that its save_pretrained() wrote."
        raise WeightsError(f"{folder} has no safetensors weights{only}.", hint=hint, path=str(folder), pickles=pickles)
    try:
        content = parse_json(index.read_bytes())
    except (OSError, ValueError) as error:
        message = f"The index {index} cannot be read ({type(error).__name__}: {error})."
        raise WeightsError(message, hint=_DOWNLOAD_AGAIN, path=str(index)) from error
    require_types(content, _INDEX, index, error=WeightsError, hint=_DOWNLOAD_AGAIN)
    names = sorted(set(content.get("weight_map", {}).values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        message = f"Weight files of {index} are missing: {', '.join(missing) or 'it names none'}."
        raise WeightsError(message, hint=_DOWNLOAD_AGAIN, path=str(index), missing=missing)
    return [folder / name for name in names]


def plain_names(names: Iterable[str]) -> list[str]:
    """Return the tensors of the checkpoint behind names, each once; some are recipes (`quantized.py`)."""
    return list(dict.fromkeys(name.rpartition(":")[0] or name for name in names))
