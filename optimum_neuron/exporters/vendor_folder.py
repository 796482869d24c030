"""Recognize an exported folder of Optimum Neuron for hardware, and say which export replaces it here.

Its program is TorchScript around the vendor's NEFF, which only the vendor's runtime executes. The folder records shapes
and, for decoders, the checkpoint. Nothing in it is executed or unpickled.

    model.neuron, or encoder/ and decoder/ with one each     shapes are in config.json under "neuron"
    neuron_config.json and model.pt                          a decoder, shapes are in neuron_config.json
"""

from __future__ import annotations

import contextlib
import dataclasses
import zipfile
from pathlib import Path
from typing import Any, get_args

from ..base.core import AutoCast
from ..errors import ArtifactError, NeuronError
from ..files.plain_json import parse_json
from ..hardware import TARGETS
from ..kinds import Kind, kind_of
from ..options.configuration import CONFIG_FILE
from ..options.sizes import is_count
from ..sources import TASKS, find_task, plain_task
from .request import plain_options

_PROGRAMS = ("model.neuron", "encoder/model.neuron", "decoder/model.neuron")
_AUTO_CAST = tuple(name for name in get_args(AutoCast) if name != "none")

_DECODER_KEYS = ("_serialized_key", "neuronxcc_version")
"""Keys of a decoder's neuron_config.json; this package's keys are `version`, `neuron`, and `artifact`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VendorExport:
    """The record in such a folder."""

    checkpoint: str | None
    """Hub model ID or path of the checkpoint; None: not recorded."""
    revision: str | None
    task: str | None
    """Task under our name; None: not recorded, or not supported here."""
    options: dict[str, Any]
    """Options that export the checkpoint here with the same shapes."""
    num_cores: int = 1
    """Degree of tensor parallelism."""
    model_class: str = "NeuronModelForX"
    """Class that serves the task."""

    @property
    def call(self) -> str:
        """Python call that exports the checkpoint here."""
        options = {"export": True, "revision": self.revision, **self.options}
        arguments = [repr(self.checkpoint or "CHECKPOINT")]
        arguments += [f"{name}={value!r}" for name, value in options.items() if value is not None]
        return f"{self.model_class}.from_pretrained({', '.join(arguments)})"


def refuse_vendor_export(folder: Path) -> None:
    """Reject a folder that was exported for hardware."""
    export = read_vendor_export(folder)
    if export is None:
        return
    message = f"{folder} was compiled by the vendor's Neuron SDK for hardware and cannot run on the simulator."
    if export.num_cores > 1:
        message += f" It was sharded over {export.num_cores} cores."
    if export.checkpoint is None:
        message += " The folder does not record the checkpoint."
    hint = f"Export the original checkpoint here: {export.call}."
    raise ArtifactError(message, hint=hint, folder=str(folder), export=dataclasses.asdict(export))


def read_vendor_export(folder: Path) -> VendorExport | None:
    """Return the record of a folder that was exported for hardware, or None for any other folder."""
    model = _json(folder / "config.json")
    decoder = _json(folder / CONFIG_FILE)
    if any(key in decoder for key in _DECODER_KEYS):
        return _of_decoder(decoder, str(model.get("model_type")))
    if not any(zipfile.is_zipfile(folder / name) for name in _PROGRAMS):  # as TorchScript is
        return None
    sections = [model, _json(folder / "encoder" / "config.json"), _json(folder / "decoder" / "config.json")]
    facts: dict[str, Any] = {}
    for section in sections:
        facts |= section.get("neuron") or {}
    model_type = str(model.get("model_type") or facts.get("model_type"))
    names = {name.removeprefix("static_"): value for name, value in facts.items()}
    return _export(names, model.get("_name_or_path"), None, facts.get("task"), model_type)


def _of_decoder(facts: dict[str, Any], model_type: str) -> VendorExport:
    is_image_text = "VLM" in str(facts.get("_serialized_key"))
    task = "image-text-to-text" if is_image_text else "text-generation"
    names = facts | {"instance_type": facts.get("target")}
    export = _export(names, facts.get("checkpoint_id"), facts.get("checkpoint_revision"), task, model_type)
    cores: Any = facts.get("tp_degree")
    return dataclasses.replace(export, num_cores=cores if is_count(cores) else 1)


def _export(names: dict[str, Any], checkpoint: Any, revision: Any, task: str | None, model_type: str) -> VendorExport:
    task = plain_task(str(task))
    export = VendorExport(checkpoint=checkpoint or None, revision=revision, task=None, options={})
    if task not in TASKS:
        return export
    options, model_class = _options(names, kind_of(task, model_type)), find_task(task, model_type).model_class
    return dataclasses.replace(export, task=task, options=options, model_class=model_class)


def _options(names: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """The recorded options that this package has too. Options that are off are left out."""
    left_out = ["task", "inline_weights_to_neff"]
    left_out += [] if names.get("auto_cast") in _AUTO_CAST else ["auto_cast", "auto_cast_type"]
    left_out += [] if names.get("instance_type") in TARGETS else ["instance_type"]
    known = (*kind.config_class.option_names(), *kind.synonyms)
    options = {
        name: value
        for name, value in names.items()
        if name in known and name not in left_out and value not in (None, False)
    }
    with contextlib.suppress(NeuronError):  # two lengths for one axis: both are shown
        options = kind.plain(options)
    return plain_options(options)


def _json(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        data = parse_json(path.read_bytes())
        return data if isinstance(data, dict) else {}
    return {}
