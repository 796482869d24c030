"""Read the lengths of sequences from a file: JSON lines, CSV with a header, or one value on each line.

Without a tokenizer every value is a number of tokens, or below a key of JSON a list of token ids; with a tokenizer
every value is a text. It does not depend on buckets.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import ConfigError, ModelError, nearest
from ..options.sizes import is_count

_BATCH = 1000
"""Texts that are tokenized at once."""
_SHOWN = 5
"""Bad lines that an error shows."""

Value = tuple[int, Any]
"""Line of the file, and the value on it."""


def read_lengths(path: str | Path, *, tokenizer: str | Path | None = None, column: str | None = None) -> list[int]:
    """Read the number of tokens of each sequence of a data set; empty lines are left out.

    Args:
        path: file; `.jsonl`, `.ndjson` and `.json` are JSON lines, `.csv` has a header, all else is one value a line.
        tokenizer: folder, id on the Hub, or name in `optimum_neuron.checkpoints`; every value is then a text.
        column: key or column to read; may be left out where there is only one.

    Example:
        ```python
        from pathlib import Path
        from optimum_neuron.buckets import read_lengths

        _ = Path("lengths.csv").write_text("id,tokens\\n1,12\\n2,500\\n")
        assert read_lengths("lengths.csv", column="tokens") == [12, 500]
        ```
    """
    path = Path(path)
    read = _READERS.get(path.suffix.lower(), _text_lines)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            values = list(read(file, path, column))
    except (OSError, UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}", "Pass JSON lines, CSV or text in UTF-8.") from error
    convert: Callable[[Any], Any] = _number if tokenizer is None else _text
    usable = [convert(value) for _, value in values]
    bad = [place for place, converted in zip(values, usable, strict=True) if converted is None]
    problems = [f"line {line} {json.dumps(value)[:40]}" for line, value in bad]
    if problems or not values:
        kind, hint = (
            ("whole numbers of at least 1", "Name the tokenizer of the model if these are texts.")
            if tokenizer is None
            else ("texts", "Remove empty texts, and leave the tokenizer out if these are numbers of tokens.")
        )
        shown = f"{len(problems)} values are not {kind}: {'; '.join(problems[:_SHOWN])}" if problems else "it is empty"
        raise _unreadable(path, shown, hint, num_problems=len(problems))
    return usable if tokenizer is None else _tokenized(usable, tokenizer)


def _number(value: Any) -> int | None:
    """Return the number of tokens, or None if the value is neither a number nor a list of token IDs."""
    if isinstance(value, list):
        value = len(value) if all(isinstance(token, int) for token in value) else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return value if is_count(value) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _text_lines(file: IO[str], path: Path, column: str | None) -> Iterator[Value]:
    if column is not None:
        raise _unreadable(path, f"it has no columns, so no {column!r}", "Leave the column out.", column=column)
    return ((number, line.strip()) for number, line in enumerate(file, 1) if line.strip())


def _json_lines(file: IO[str], path: Path, column: str | None) -> Iterator[Value]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        value = json.loads(line)
        if isinstance(value, dict):
            value = value[_column(path, list(value), column, number)]
        elif column is not None or isinstance(value, list):
            problem = "is a list, not one value" if isinstance(value, list) else f"has no key {column!r}"
            hint = "Write one value or object on each line (JSON lines)."
            raise _unreadable(path, f"line {number} {problem}", hint, line=number)
        yield number, value


def _csv_rows(file: IO[str], path: Path, column: str | None) -> Iterator[Value]:
    reader = csv.DictReader(file)
    name = _column(path, list(reader.fieldnames or ()), column, 1)
    return ((reader.line_num, row[name] or "") for row in reader)


_READERS: dict[str, Callable[[IO[str], Path, str | None], Iterator[Value]]] = {
    ".csv": _csv_rows,
    ".json": _json_lines,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}


def _column(path: Path, names: Sequence[str], column: str | None, line: int) -> str:
    """Return the name of the column to read: `column`, or the only one."""
    if column is None and len(names) == 1:
        return names[0]
    if column in names:
        return str(column)
    problem = "no column was named" if column is None else f"no column {column!r}{nearest(column, names)}"
    problem = f"{problem}; line {line} has {', '.join(names)}"
    raise _unreadable(path, problem, "Name one of them with `column`.", column=column, line=line, columns=list(names))


def _tokenized(texts: Sequence[str], name: str | Path) -> list[int]:
    tokenizer = _load_tokenizer(name)
    batches = (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
    return [len(ids) for ids in itertools.chain.from_iterable(tokenizer(list(batch))["input_ids"] for batch in batches)]


def _load_tokenizer(name: str | Path) -> Any:
    from transformers import AutoTokenizer

    from ..checkpoints import resolve_model

    try:
        return AutoTokenizer.from_pretrained(resolve_model(str(name)).value)
    except (OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        hint = "Pass a folder with a tokenizer, a Hub model ID, or a name that `neuron fetch` knows."
        message = f"The tokenizer {str(name)!r} cannot be loaded: {reason}"
        raise ModelError(message, hint=hint, tokenizer=str(name)) from error


def _unreadable(path: Path, problem: str, hint: str, **details: object) -> ConfigError:
    problem = problem.rstrip(".")
    return ConfigError(f"{path} has no lengths: {problem}.", hint=hint, file=str(path), problem=problem, **details)
