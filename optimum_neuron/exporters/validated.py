"""Compare a loaded model with its reference model, once for the same files, program, code, and CPU.

A server would spend most of its start on the comparison, so one that passed is recorded. Like host
code, records are of this machine: they are in no compile cache, to which others may write. This module does not know
what `validation/` compares.

    prepared = validated(prepared, remember=cache is not None)
    print(prepared.validated)        # recorded (compared 2 h ago: the same program, weights, versions, and CPU)
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.core import Choice
from ..base.transformers_types import PreTrainedModel
from ..base.wording import time_span
from ..compiler.lower import probe_cpu
from ..errors import ConfigError, ValidationError
from ..files.records import Record, file_hash
from ..kinds import Recorder, kind_of
from ..options.configuration import CompileConfig
from ..sources import load_original, quantization_of, weights_reader
from ..weights import QuantizedSource, Shards, plain_names
from .quality import Quality, measure_quality, with_quantized_weights
from .validation import COMPARISONS, OutputError, default_tolerance, rounding_dtype, rounds_to_8_bits, validate

if TYPE_CHECKING:
    from ..kinds import Kind
    from .prepared import Prepared

Comparison = tuple[list[OutputError], Quality | None]
"""Differences of all results, and what quantization costs."""

_READ = (".json", ".safetensors", ".bin", ".gguf", ".model", ".txt", ".jinja")
"""Endings of the files of a checkpoint that a model or its reference is loaded from."""


def validated(
    prepared: Prepared, *, atol: float | None = None, trust_remote_code: bool = False, remember: bool
) -> Prepared:
    """Return a loaded model with its comparison, a recorded one if there is one.

    Args:
        atol: largest absolute difference that passes; None derives it from the arithmetic.
        trust_remote_code: allow code of the checkpoint to run; the comparison is then not recorded.
    """
    errors, quality, choice = recorded_or_compared(
        _unknown(prepared, trust_remote_code, remember),
        lambda: comparison_key(prepared.source.folder, {"model": prepared}, prepared.config, atol),
        lambda: _compare(prepared, atol, trust_remote_code),
    )
    return dataclasses.replace(prepared, validation=errors, quality=quality, validated=choice)


def recorded_or_compared(
    unknown: str, key: Callable[[], dict[str, Any]], compare: Callable[[], Comparison]
) -> tuple[list[OutputError], Quality | None, Choice[str]]:
    """Return a comparison that passed, a recorded one if there is one, and which of both it is.

    Args:
        unknown: why it cannot be recognized later; empty: it can.
        key: returns everything that its result depends on, but versions.
        compare: compares, and raises an error if that fails.
    """
    try:
        record = None if unknown else COMPARISONS.find(key())
    except ConfigError as error:
        record, unknown = None, str(error).splitlines()[0]
    if record is not None and (known := _read(record)) is not None:
        return known
    errors, quality = compare()
    reason = f"not recorded: {unknown}" if record is None else record.write(_plain(errors, quality))
    return errors, quality, Choice(value="compared", reason=reason)


def _unknown(prepared: Prepared, trust_remote_code: bool, remember: bool) -> str:
    """Return why a comparison cannot be recognized later; empty: it can."""
    if not remember:
        return "the compile cache is switched off"
    if prepared.source.module is not None:
        return "the weights are in memory, and not in files"
    return "code of the checkpoint may run" if trust_remote_code else ""


def comparison_key(
    folder: Path, parts: Mapping[str, Prepared], config: CompileConfig, atol: float | None
) -> dict[str, Any]:
    """Return everything that the result of a comparison depends on, but versions."""
    return {
        "files": checkpoint_files(folder),
        "neffs": {name: _hash(part.artifact.path) for name, part in parts.items()},
        "config": config.to_dict(),
        "atol": atol,
        "cpu": str(probe_cpu()),
    }


def checkpoint_files(folder: Path) -> dict[str, str]:
    """Return the hash of each file of a checkpoint, those in its subfolders too, by its path in the folder."""
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in _READ and path.is_file())
    return {path.relative_to(folder).as_posix(): _hash(path) for path in paths}


def _hash(path: Path) -> str:
    status = path.stat()
    return _hash_of(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=1024)
def _hash_of(path: Path, size_bytes: int, mtime_ns: int) -> str:
    """The files of a pipeline are read for each model, and for the whole picture."""
    return file_hash(path)


def _read(record: Record) -> tuple[list[OutputError], Quality | None, Choice[str]] | None:
    """Return the comparison that a record has, or None if there is no readable one."""
    try:
        data = record.read()
        errors = [OutputError.from_dict(row) for row in data["validation"]]
        quality = None if data["quality"] is None else Quality(**data["quality"])
        age_s = max(time.time() - float(data["created_unix_s"]), 0.0)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    reason = f"compared {time_span(age_s)} ago: the same files, program, versions, and CPU"
    return errors, quality, Choice(value="recorded", reason=reason)


def _plain(errors: Sequence[OutputError], quality: Quality | None) -> dict[str, Any]:
    return {
        "validation": [error.to_json() for error in errors],
        "quality": None if quality is None else quality.to_dict(),
    }


def _compare(prepared: Prepared, atol: float | None, trust_remote_code: bool) -> Comparison:
    import torch

    task, dtype = prepared.config.task, rounding_dtype(prepared.config)
    needed = plain_names(name for sources in prepared.weight_sources.values() for name in sources)
    reference = load_original(
        prepared.source, task=task, dtype="float32", trust_remote_code=trust_remote_code, needed=needed
    )
    assert prepared.loaded is not None and prepared.tensors is not None and prepared.bound is not None
    try:
        kind = kind_of(task, prepared.source.config.model_type)
        recorder = Recorder(prepared.loaded, prepared.bound.weights.tensors)
        reference = kind.prepare_reference(reference, prepared.config)
        with prepared.loaded.paused():
            quality = _quality(prepared, recorder, kind, reference)
            if isinstance(tensors := prepared.tensors.value, QuantizedSource):
                shards = Shards.from_dict(prepared.metadata["shards"]) if "shards" in prepared.metadata else Shards()
                reader = weights_reader(quantization_of(prepared.source.config))
                reference = with_quantized_weights(reference, prepared.weight_sources, tensors, shards, reader)
            errors = validate(
                kind.scenarios(recorder, reference, prepared.metadata, prepared.config),
                recorder,
                reference,
                tolerance=lambda largest: default_tolerance(prepared.config, largest) if atol is None else atol,
                dtype=None if atol is not None or dtype == "float32" else getattr(torch, dtype),
                is_chaotic=rounds_to_8_bits(prepared.config),
            )
            return errors, quality
    except ValidationError as error:
        prepared.loaded.close()
        error.details.update(auto_cast=prepared.config.auto_cast, torch_dtype=prepared.config.torch_dtype)
        raise
    except BaseException:
        prepared.loaded.close()
        raise


def _quality(prepared: Prepared, recorder: Recorder, kind: Kind, reference: PreTrainedModel) -> Quality | None:
    """What quantization costs; None for other models."""
    if not {"quantization", "kv_cache"} & prepared.metadata.keys():
        return None
    signature = kind.signature(prepared.program, prepared.metadata, reference.config)
    return measure_quality(prepared.source.folder, recorder, signature, reference)
