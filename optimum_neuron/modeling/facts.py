"""`ModelFacts`: program, shapes, folders, and preprocessors of a compiled model, by the names of Optimum Neuron.

It runs nothing by itself.
"""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..exporters import Prepared, WorkFolder, public_facts, save_folder
from ..options.configuration import CompileConfig
from ..runtime import LoadedProgram
from ..sources import TOKENIZER, ModelSource, read_typed
from .program import CompiledProgram

_TOKENIZER_FILE = "tokenizer_config.json"
_PREPROCESSORS = {
    "AutoTokenizer": (_TOKENIZER_FILE, "tokenizer.json"),
    "AutoProcessor": ("preprocessor_config.json", "processor_config.json"),
}
"""transformers' class to the files it reads, of which a folder has one."""


class ModelFacts:
    """Properties of a compiled model; `model.py` adds the methods."""

    prepared: Prepared
    neuron_config: Any
    loaded: LoadedProgram
    _saved_in: Path | None
    """Folder with the current state of the model."""
    _temporary: WorkFolder | None = None
    """`model_save_dir` of a model that was not saved."""

    @functools.cached_property
    def model(self) -> CompiledProgram:
        """The compiled program as a function of tensors of compiled shapes, without padding or generation."""
        return CompiledProgram(self.loaded)

    @property
    def input_static_shapes(self) -> dict[str, int | list[int]]:
        """Compiled size or sizes of each axis, for example `{"batch_size": 1}`."""
        shapes: dict[str, int | list[int]] = self.neuron_config.static_shapes
        return shapes

    @property
    def is_weights_neff_separated(self) -> bool:
        """Whether weights are stored outside the NEFF; `replace_weights` works in both cases."""
        return not self.neuron_config.inline_weights_to_neff

    @property
    def source_folder(self) -> Path:
        """Folder of the weights, with the model's tokenizer."""
        return self.prepared.source.folder

    @property
    def model_save_dir(self) -> Path:
        """The exported folder of the model.

        A model that was not saved is written to a temporary folder first, which is deleted with the model.
        """
        if self._saved_in is None:
            self._temporary = WorkFolder()
            save_folder(self.prepared, self._temporary.path)
            self._saved_in = self._temporary.path
        return self._saved_in

    @functools.cached_property
    def preprocessors(self) -> list[Any]:
        """Tokenizer and processor of the model's folder; empty if it has neither."""
        folder = self.source_folder
        parts: dict[type, Any] = {}
        for name, files in _PREPROCESSORS.items():
            if any((folder / file).is_file() for file in files):
                part = load_preprocessor(name, folder)
                parts.setdefault(type(part), part)
        return list(parts.values())


def with_facts(source: ModelSource, config: CompileConfig) -> Any:
    """Return a copy of a model's transformers configuration with the facts of a compile under `neuron`."""
    model_config = copy.deepcopy(source.config)
    model_config.neuron = public_facts(config, model_config.model_type, source.random_weights)
    return model_config


def load_preprocessor(auto_class: str, folder: Path, *, hint: str = "Copy its files from the checkpoint.") -> Any:
    """Load a tokenizer or processor by its auto class; the error's `hint` says how to do without the files."""
    import transformers

    if (folder / _TOKENIZER_FILE).is_file():
        read_typed(folder / _TOKENIZER_FILE, TOKENIZER)
    try:
        return getattr(transformers, auto_class).from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises plain `Exception`
        part = " ".join(re.findall("[A-Z][a-z]+", auto_class)[1:]).lower()
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        message = f"The {part} of {folder} cannot be read ({reason})."
        raise ModelError(message, hint=hint, model=str(folder), auto_class=auto_class) from error
