"""`neuron.toml`, or `[tool.neuron]` in pyproject.toml: models, kernels, and scripts with their options and limits.

    [models.chat]
    model = "checkpoints/tiny_llama"
    instance = "trn1.2xlarge"
    sequence_length = 256
    limits = { tpot_ms = 2.5, hbm_bytes_per_core = 4e9, compiles = true }

    [kernels.softmax]
    kernel = "kernels.py:softmax"
    arguments = ["1024x512:bfloat16"]
    limits = { total_us = 20 }

    [scripts.train]
    script = "train_xla.py"
    arguments = ["--steps", "4"]
    limits = { num_recompiles = 1 }

Paths are relative to the file. This module reads no model.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError, nearest
from .limits import LIMITS, Value

Kind = Literal["model", "kernel", "script"]
_TABLES: Mapping[str, Kind] = {"models": "model", "kernels": "kernel", "scripts": "script"}
_KEYS = {"kernel": ("kernel", "arguments", "grid", "target", "limits"), "script": ("script", "arguments", "limits")}
_OF_DATASETS = ("file", "column", "tokenizer")
FILES = ("constants", "draft_model")
"""Options of a model that name a file or folder, from the folder of the budget."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One model, kernel, or script of a budget."""

    kind: Kind
    name: str
    """Name of its table."""
    subject: str
    """The model, as a folder or id; the kernel, as FILE:KERNEL; the file of the script."""
    options: Mapping[str, Any]
    """Of a model: keywords of an estimate and of an export. Of a kernel: `arguments`, `grid`, `target`. Of a script:
    `arguments`."""
    limits: Mapping[str, Value]
    """By the names in `LIMITS`."""
    dataset: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of a model: `file` with its prompts, and `column` and `tokenizer`, as `buckets suggest` takes them."""


def find_budget(folder: str | Path = ".") -> Path:
    """Return the file with the budget of a folder: neuron.toml, or pyproject.toml with `[tool.neuron]`.

    Raises:
        ConfigError: there is none.
    """
    folder = Path(folder)
    own, project = folder / "neuron.toml", folder / "pyproject.toml"
    if own.is_file():
        return own
    if project.is_file() and "neuron" in _parsed(project).get("tool", {}):
        return project
    message = f"{folder} has no neuron.toml, and no pyproject.toml with [tool.neuron]."
    raise ConfigError(message, hint="Write one, or pass a file: docs/budgets.md has an example.", path=str(folder))


def read_budget(path: str | Path) -> tuple[Entry, ...]:
    """Return the entries of a file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has unknown names or no entry.
    """
    path = Path(path)
    data = _parsed(path)
    if path.name == "pyproject.toml":
        data = data.get("tool", {}).get("neuron", {})
    _check_names(path, "table", data, _TABLES)
    entries = tuple(
        _entry(path, kind, name, table)
        for tables, kind in _TABLES.items()
        for name, table in data.get(tables, {}).items()
    )
    if not entries:
        raise ConfigError(f"{path} has no budget.", hint="Add a table such as [models.chat].", path=str(path))
    names = [entry.name for entry in entries]
    if twice := next((name for name in names if names.count(name) > 1), None):
        message = f"{path} has two tables with the name {twice!r}."
        raise ConfigError(
            message, hint="Give models, kernels, and scripts different names.", path=str(path), name=twice
        )
    return entries


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", hint="Pass a TOML file.", path=str(path)) from error


def _entry(path: Path, kind: Kind, name: str, table: object) -> Entry:
    where = f"[{kind}s.{name}]"
    if not isinstance(table, dict) or not isinstance(table.get(kind), str):
        message = f"{where} of {path} does not name its {kind}."
        raise ConfigError(message, hint=f'Write {kind} = "..." in it.', path=str(path), entry=name)
    options = {key: value for key, value in table.items() if key not in (kind, "limits", "dataset")}
    if kind == "model":
        hint = "Options are those of `optimum-cli neuron estimate --help` and `optimum-cli export neuron --help`."
        _check_names(path, f"key of {where}", table, _keys_of_models(), hint=hint)
    else:
        _check_names(path, f"key of {where}", table, _KEYS[kind])
    limits = table.get("limits", {})
    _check_names(path, f"limit of {where}", limits, LIMITS[kind])
    for key, value in limits.items():
        wanted = (bool,) if LIMITS[kind][key].kind == "is" else (int, float)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            message = f"{key}={value!r} in {where} of {path} is not {' or '.join(one.__name__ for one in wanted)}."
            raise ConfigError(message, hint="Correct it.", path=str(path), entry=name, option=key, value=value)
    dataset = _dataset(path, name, where, table.get("dataset"))
    if "padding_share" in limits and not dataset:
        message = f"{where} of {path} limits padding_share without a data set."
        raise ConfigError(message, hint='Write dataset = { file = "..." } in it.', path=str(path), entry=name)
    subject = _located(path, kind, table[kind])
    options |= {key: _located(path, kind, value) for key in FILES if isinstance(value := options.get(key), str)}
    return Entry(kind=kind, name=name, subject=subject, options=options, limits=limits, dataset=dataset)


def _keys_of_models() -> tuple[str, ...]:
    """Return the keys of a model: its own, and options of estimates and exports."""
    from ..kinds import compile_options
    from ..options.option import SOURCE_OPTIONS
    from ..simulator import KEYWORDS

    return ("model", "limits", "dataset", *dict.fromkeys((*KEYWORDS, *compile_options(), *SOURCE_OPTIONS)))


def _dataset(path: Path, name: str, where: str, table: Any) -> dict[str, str]:
    if table is None:
        return {}
    if not isinstance(table, dict) or "file" not in table:
        message = f"dataset={table!r} in {where} of {path} names no file."
        raise ConfigError(message, hint='Write dataset = { file = "..." }.', path=str(path), entry=name)
    _check_names(path, f"key of the data set of {where}", table, _OF_DATASETS)
    return {**table, "file": str(path.parent / table["file"])}


def _located(path: Path, kind: Kind, subject: str) -> str:
    """Return a path relative to the budget as one from here; ids of the Hub stay."""
    file, separator, name = subject.rpartition(":") if kind == "kernel" else (subject, "", "")
    beside = path.parent / file
    return f"{beside}{separator}{name}" if kind == "kernel" or beside.exists() else subject


def _check_names(path: Path, what: str, given: Iterable[str], known: Any, *, hint: str = "") -> None:
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        message = f"{unknown!r} is no {what} in {path}{nearest(unknown, known) or '.'}"
        raise ConfigError(message, hint=hint or f"Choose from {', '.join(known)}.", path=str(path), name=unknown)
