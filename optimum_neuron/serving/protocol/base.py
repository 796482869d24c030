"""What bodies have in common: they are strict, and a wrong one becomes an error in OpenAI's form.

body = parse(ChatRequest, {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}]})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import RequestError, nearest

Body = TypeVar("Body", bound="Strict")
Element = TypeVar("Element")
Many = Annotated[list[Element], Field(fail_fast=True)]
"""A list whose first wrong element ends the check: a million errors would take minutes and gigabytes."""
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
    user: str | None = None
    """The end user, which OpenAI's clients may name; it has no meaning here."""


def parse(kind: type[Body], body: Any) -> Body:
    """Return the checked body.

    Raises:
        RequestError: a field is unknown, missing, or has a wrong value; all problems are named.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        # The whole input of a union's branches would be repeated: errors have their places and reasons only.
        problems = error.errors(include_url=False, include_input=False, include_context=False)
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
    return f"{field}: {reason}." if field else f"{reason}."
