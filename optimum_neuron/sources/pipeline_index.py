"""The index of a diffusion pipeline's folder, and configurations of diffusers with transformers' interface.

It reads JSON, and imports neither diffusers nor torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ..base.wording import first_line
from ..errors import ModelError
from ..files.plain_json import parse_json
from ..options.configuration import NEFF_FILE

INDEX_FILE = "model_index.json"
"""File of a pipeline's folder that names the class of each part."""
FACTS = "neuron"
"""Field of that file, in an export, with what was added to the pipeline."""


class DiffusersConfig:
    """The configuration of a model or a pipeline of diffusers, with the interface of transformers' configurations."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = {name: value for name, value in data.items() if name not in ("neuron", "dtype")}
        self.model_type = str(data["_class_name"])
        self.architectures = [self.model_type]
        self.dtype = data.get("dtype")
        self.num_labels = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build from the content of a file."""
        return cls(data)

    def get_text_config(self, decoder: bool = False) -> Self:
        """Return the configuration itself."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(self._data)

    def to_json_string(self, use_diff: bool = True) -> str:
        """Return the content of its file."""
        return json.dumps(self._data, sort_keys=True)


def is_pipeline(folder: Path) -> bool:
    """Return whether a folder is that of a diffusion pipeline."""
    return (folder / INDEX_FILE).is_file()


def is_exported_pipeline(folder: Path) -> bool:
    """Return whether a folder has a compiled pipeline."""
    return is_pipeline(folder) and any(folder.glob(f"*/{NEFF_FILE}"))


def read_index(folder: Path) -> DiffusersConfig:
    """Read which parts a pipeline has."""
    path = folder / INDEX_FILE
    try:
        return DiffusersConfig(parse_json(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"{path} cannot be read: {first_line(error)}"
        raise ModelError(message, hint="Download the pipeline again.", file=str(path)) from error
