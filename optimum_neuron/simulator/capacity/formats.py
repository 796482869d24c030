"""Reads traces: JSON lines, JSON arrays, and CSV tables of several public formats.

    trace = read_trace("azure.csv")
    trace = read_trace("sharegpt.json", count_tokens=lambda text: len(tokenizer.encode(text)))

Lengths are numbers under one of several names, or texts that `count_tokens` counts. `timestamp` is in milliseconds in
JSON (Mooncake), in seconds in CSV (BurstGPT), or a date and time (Azure); `arrival_time` is in seconds.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...base.wording import counted
from ...errors import ConfigError
from ...files.plain_json import parse_json
from .trace import Trace, TraceRequest

CountTokens = Callable[[str], int]

PROMPT_LENGTHS = (
    *("inputlength", "inputlen", "inputtokens", "promptlength", "promptlen", "prompttokens", "contexttokens"),
    *("requesttokens", "numprefilltokens"),
)
ANSWER_LENGTHS = (
    *("outputlength", "outputlen", "outputtokens", "responselength", "responsetokens", "completiontokens"),
    *("generatedtokens", "expectedoutputlen", "numdecodetokens", "maxtokens"),
)
"""Names of lengths, in small letters without blanks and underscores."""
PROMPT_TEXTS, ANSWER_TEXTS = ("prompt", "textinput", "text"), ("completion", "output", "response", "answer")
ARRIVALS_S = ("arrivaltime", "arrivedat", "arrivals", "arrival")
TIMESTAMP = "timestamp"
MOST_PROBLEMS = 5
"""Problems that an error names; it counts all."""


def read_trace(path: str | Path, *, count_tokens: CountTokens | None = None) -> Trace:
    """Read a trace.

    Args:
        path: JSON lines, a JSON array, or a CSV table with a header.
        count_tokens: Return the tokens of a text; None if the trace has lengths.

    Example:
        ```python
        from pathlib import Path
        from optimum_neuron.simulator import read_trace

        header = "TIMESTAMP,ContextTokens,GeneratedTokens"
        rows = "2023-11-16 18:15:46.68,374,44\\n2023-11-16 18:15:50.18,396,109"
        Path("azure.csv").write_text(f"{header}\\n{rows}")
        trace = read_trace("azure.csv")
        assert [request.arrival_s for request in trace.requests] == [0.0, 3.5]
        ```
    """
    path = Path(path)
    is_table = path.suffix.lower() == ".csv"
    rows = [_plain(row) for row in _read(path, is_table=is_table)]
    requests: list[tuple[float | None, int, int]] = []
    problems: list[str] = []
    for number, row in enumerate(rows, start=1):
        try:
            requests.append((_arrival_s(row, is_table=is_table), *_lengths(row, count_tokens)))
        except ValueError as error:
            problems.append(f"request {number}: {error}")
    if problems:
        shown = "\n".join(f"  {problem}" for problem in problems[:MOST_PROBLEMS])
        message = f"{counted(len(problems), 'request')} of {path} cannot be read:\n{shown}"
        hint = "A request needs the tokens of its prompt and of its answer, such as input_length and output_length."
        raise ConfigError(message, hint=hint, option="simulate", value=str(path), num_problems=len(problems))
    return _trace(path, requests)


def _trace(path: Path, requests: list[tuple[float | None, int, int]]) -> Trace:
    arrivals = [arrival for arrival, _, _ in requests if arrival is not None]
    if arrivals and len(arrivals) < len(requests):
        message = f"{len(requests) - len(arrivals)} of {len(requests)} requests of {path} have no time of arrival."
        raise ConfigError(message, hint="Give all or none of them one.", option="simulate", value=str(path))
    filled = sorted((arrival or 0.0, prompt, answer) for arrival, prompt, answer in requests if prompt and answer)
    begin = filled[0][0] if filled else 0.0
    num_empty = len(requests) - len(filled)
    notes = (f"{counted(num_empty, 'request')} without a prompt or an answer left out",) if num_empty else ()
    return Trace(
        source=str(path),
        requests=tuple(TraceRequest(arrival - begin, prompt, answer) for arrival, prompt, answer in filled),
        has_arrivals=bool(arrivals),
        notes=notes,
    )


def _read(path: Path, *, is_table: bool) -> list[Mapping[Any, Any]]:
    """Return the records of a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return list(csv.DictReader(io.StringIO(text))) if is_table else _json_rows(text)
    except (OSError, ValueError, csv.Error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        message = f"The trace {path} cannot be read: {reason}."
        hint = "Pass a file of JSON lines or CSV, or poisson:RATE."
        raise ConfigError(message, hint=hint, option="simulate", value=str(path)) from error


def _json_rows(text: str) -> list[Mapping[Any, Any]]:
    lines = [line for line in text.splitlines() if line.strip()]
    is_array = text.lstrip().startswith("[")
    rows = parse_json(text) if is_array else [parse_json(line) for line in lines]
    if wrong := next((row for row in rows if not isinstance(row, dict)), None):
        raise ValueError(f"{str(wrong)[:60]!r} is no JSON object")
    return list(rows)


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a record with its names in small letters, without blanks and underscores."""
    return {"".join(filter(str.isalnum, name.lower())): value for name, value in row.items() if name is not None}


def _lengths(row: Mapping[str, Any], count_tokens: CountTokens | None) -> tuple[int, int]:
    question, reply = _conversation(row)
    prompt = _length(row, PROMPT_LENGTHS, "prompt", question or _text(row, PROMPT_TEXTS), count_tokens)
    return prompt, _length(row, ANSWER_LENGTHS, "answer", reply or _text(row, ANSWER_TEXTS), count_tokens)


def _length(
    row: Mapping[str, Any], names: Iterable[str], what: str, text: str | None, count_tokens: CountTokens | None
) -> int:
    value = next((row[name] for name in names if row.get(name) not in (None, "")), None)
    if value is not None:
        number = _number(value)
        if not 0 <= number < 2**31 or number != int(number):
            raise ValueError(f"{value!r} is no number of tokens")
        return int(number)
    if text is None:
        raise ValueError(f"the length of its {what} is missing (fields: {', '.join(row) or 'none'})")
    if count_tokens is None:
        raise ValueError(f"its {what} is a text, and the model has no tokenizer to count its tokens")
    return count_tokens(text)


def _conversation(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the first two turns of a ShareGPT conversation or of OpenAI messages."""
    turns = row.get("conversations") or row.get("messages") or ()
    texts = [turn.get("value", turn.get("content")) for turn in turns if isinstance(turn, dict)]
    first, second = ([text for text in texts if isinstance(text, str)] + [None, None])[:2]
    return first, second


def _text(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str)), None)


def _arrival_s(row: Mapping[str, Any], *, is_table: bool) -> float | None:
    """Return the time of arrival in seconds, from any origin; None if there is none."""
    seconds = next((row[name] for name in ARRIVALS_S if row.get(name) not in (None, "")), None)
    if seconds is not None:
        return _moment_s(seconds)
    value = row.get(TIMESTAMP)
    if value in (None, ""):
        return None
    return _moment_s(value) * (1e-3 if isinstance(value, (int, float)) and not is_table else 1.0)


def _moment_s(value: Any) -> float:
    try:
        return _number(value)
    except ValueError:
        moment = datetime.datetime.fromisoformat(str(value).strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no number")
    return number
