"""Compare a loaded model with its reference model, once for the same files, program, code, and CPU.

A server would spend most of its start on the comparison, so one that passed is recorded. Like host
code, records are of this machine: they are in no compile cache, to which others may write. This module does not know
scenarios.

    errors, quality, choice = validated(source, config, bound, loaded, remember=cache is not None)
    print(choice)                    # recorded (compared 2 h ago: the same program, weights, versions, and CPU)
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...artifact import BoundProgram
from ...base.core import Choice
from ...base.wording import time_span
from ...compiler.lower import probe_cpu
from ...errors import ConfigError, ValidationError
from ...files.records import Record, file_hash
from ...kinds import Recorder, kind_of
from ...options.configuration import CompileConfig
from ...runtime import LoadedProgram
from ...sources import ModelSource, load_original, quantization_of, weights_reader
from ...weights import QuantizedSource, plain_names
from .quality import Quality, measure_quality, with_quantized_weights
from .scenarios import validate
from .statistics import COMPARISONS, OutputError, default_tolerance, rounding_dtype, rounds_to_8_bits

Comparison = tuple[list[OutputError], Quality | None]
"""Differences of all results, and what quantization costs."""
Outcome = tuple[list[OutputError], Quality | None, Choice[str]]
"""A comparison, and whether it was "compared" now, or "recorded" earlier."""

_READ = (".json", ".safetensors", ".bin", ".gguf", ".model", ".txt", ".jinja")
"""Endings of the files of a checkpoint that a model or its reference is loaded from."""


def validated(
    source: ModelSource,
    config: CompileConfig,
    bound: BoundProgram,
    loaded: LoadedProgram,
    *,
    atol: float | None = None,
    trust_remote_code: bool = False,
    remember: bool,
) -> Outcome:
    """Return the comparison of a loaded model, a recorded one if there is one.

    Args:
        source: checkpoint, which the reference model is loaded from.
        config: complete configuration of the compile.
        bound: the program with its weights.
        loaded: that program on a core, which is closed if the comparison fails.
        atol: largest absolute difference that passes; None derives it from the arithmetic.
        trust_remote_code: allow code of the checkpoint to run; the comparison is then not recorded.
        remember: record it, and use a record.
    """
    return recorded_or_compared(
        _unknown(source, trust_remote_code, remember),
        lambda: comparison_key(source.folder, {"model": bound.artifact.path}, config, atol),
        lambda: _compare(source, config, bound, loaded, atol, trust_remote_code),
    )


def recorded_or_compared(unknown: str, key: Callable[[], dict[str, Any]], compare: Callable[[], Comparison]) -> Outcome:
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


def _unknown(source: ModelSource, trust_remote_code: bool, remember: bool) -> str:
    """Return why a comparison cannot be recognized later; empty: it can."""
    if not remember:
        return "the compile cache is switched off"
    if source.module is not None:
        return "the weights are in memory, and not in files"
    return "code of the checkpoint may run" if trust_remote_code else ""


def comparison_key(
    folder: Path, neffs: Mapping[str, Path], config: CompileConfig, atol: float | None
) -> dict[str, Any]:
    """Return everything that the result of a comparison depends on, but versions."""
    return {
        "files": checkpoint_files(folder),
        "neffs": {name: _hash(path) for name, path in neffs.items()},
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


def _read(record: Record) -> Outcome | None:
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


def _compare(
    source: ModelSource,
    config: CompileConfig,
    bound: BoundProgram,
    loaded: LoadedProgram,
    atol: float | None,
    trust_remote_code: bool,
) -> Comparison:
    import torch

    artifact, task, dtype = bound.artifact, config.task, rounding_dtype(config)
    needed = plain_names(name for names in artifact.weight_sources.values() for name in names)
    reference = load_original(source, task=task, dtype="float32", trust_remote_code=trust_remote_code, needed=needed)
    kind, metadata, quality = kind_of(task, source.config.model_type), artifact.metadata, None
    try:
        recorder = Recorder(loaded, bound.weights.tensors)
        reference = kind.prepare_reference(reference, config)
        with loaded.paused():
            if not {"quantization", "kv_cache"}.isdisjoint(metadata):
                signature = kind.signature(artifact.program, metadata, reference.config)
                quality = measure_quality(source.folder, recorder, signature, reference)
            if isinstance(tensors := bound.tensors.value, QuantizedSource):
                reader = weights_reader(quantization_of(source.config))
                reference = with_quantized_weights(reference, artifact.weight_sources, tensors, artifact.shards, reader)
            errors = validate(
                kind.scenarios(recorder, reference, metadata, config),
                recorder,
                reference,
                tolerance=lambda largest: default_tolerance(config, largest) if atol is None else atol,
                dtype=None if atol is not None or dtype == "float32" else getattr(torch, dtype),
                is_chaotic=rounds_to_8_bits(config),
            )
            return errors, quality
    except ValidationError as error:
        error.details.update(auto_cast=config.auto_cast, torch_dtype=config.torch_dtype)
        raise
