"""What bodies have in common: they are strict, every field has a limit, and errors have OpenAI's form.

body = parse(ChatRequest, {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}]})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ...errors import RequestError, nearest

Body = TypeVar("Body", bound="Strict")
Element = TypeVar("Element")
Many = Annotated[list[Element], Field(fail_fast=True)]
"""A list whose first wrong element ends the check: a million errors would take minutes and gigabytes."""
MAX_TEXT = 2**25
"""Characters of any text: as many as the default size of a body has. The model's length limits texts for it before."""
MAX_SCHEMA = 200_000
"""Characters of a JSON schema, a grammar, or choices: all must be compiled before the first token."""
MAX_DEPTH = 100
"""Levels of lists and objects in nested data."""
MAX_VALUES = 50_000
"""Values of nested data in one field."""


def check_nested(value: object, max_characters: int = MAX_TEXT) -> Any:
    """Return plain data that is within the limits of nested data."""
    level, num_values, num_characters = [value], 0, 0
    for _ in range(MAX_DEPTH + 1):
        keys = [str(key) for one in level if isinstance(one, dict) for key in one]
        num_values += len(level)
        num_characters += sum(map(len, keys)) + sum(len(one) for one in level if isinstance(one, str))
        for number, limit, what in (
            (num_values, MAX_VALUES, "values"),
            (num_characters, max_characters, "characters"),
        ):
            if number > limit:
                raise ValueError(f"it has {number} {what} or more; the limit is {limit}")
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        if not (level := [one for values in inner for one in values]):
            return value
    raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep; the limit is {MAX_DEPTH}")


def _check_schema(value: object) -> Any:
    return check_nested(value, MAX_SCHEMA)


Text = Annotated[str, Field(max_length=MAX_TEXT)]
Label = Annotated[str, Field(max_length=512)]
"""A name or an identity that may be empty."""
Json = Annotated[dict[str, Any], Field(max_length=1024), AfterValidator(check_nested)]
"""Nested data."""
Schema = Annotated[dict[str, Any], Field(max_length=1024), AfterValidator(_check_schema)]
SchemaText = Annotated[str, Field(max_length=MAX_SCHEMA)]
"""A JSON schema or a grammar as a text."""
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Name = Annotated[str, Field(min_length=1, max_length=512)]
TimeLimit = Annotated[float, Field(gt=0)] | None
"""Longest time of a request, in seconds; the server has a limit too."""
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""Requests with a lower number come first, as in vLLM."""


class Strict(BaseModel):
    """A part of a body: no other fields, no conversions of types, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=(), frozen=True)


class Request(Strict):
    """A body that names a model."""

    model: Name | None = None
    """Name of a served model; None for the only one."""
    user: Label | None = None
    """The end user, which OpenAI's clients may name; it has no meaning here."""


def parse(kind: type[Body], body: object) -> Body:
    """Return the checked body."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    except RecursionError:
        raise RequestError("The body is nested too deeply.", hint="Send a flatter body.", status=400) from None
    problems = problems[:100]
    fields = [_place(problem["loc"]) for problem in problems]
    sentences = [_sentence(kind, problem, field) for problem, field in zip(problems, fields, strict=True)]
    text = " ".join(dict.fromkeys(sentences[:8]))
    raise RequestError(text, status=400, param=fields[0] or None, problems=sentences)


def _place(path: Sequence[int | str]) -> str:
    """The field of a problem, without the branches of unions that pydantic names in its path."""
    parts = [str(part) for part in path if isinstance(part, int) or part.isidentifier() and part[:1].islower()]
    return ".".join(part for part in parts if part not in ("str", "int", "float", "bool", "list", "dict", "function"))


def _sentence(kind: type[BaseModel], problem: Any, field: str) -> str:
    if problem["type"] == "extra_forbidden":
        known = kind.model_fields
        return f"Unknown field {field!r}{nearest(field, known) or '.'}"
    if problem["type"] == "missing":
        return f"The field {field!r} is missing."
    reason = problem["msg"].removeprefix("Value error, ").rstrip(".")
    value, limit = problem["input"], problem.get("ctx", {}).get("max_length")
    if problem["type"] in ("string_too_long", "too_long", "bytes_too_long"):
        what = "characters" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else "values"
        reason = f"it has {len(value)} {what}; the limit is {limit}"
    elif isinstance(value, (int, float)) and problem["type"].startswith(("greater_than", "less_than")):
        reason += f", not {str(value)[:40]}" if abs(value) < 10**40 else ", not a number of so many digits"
    return f"{field}: {reason}." if field else f"{reason}."
