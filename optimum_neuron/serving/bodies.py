"""Bodies of HTTP requests as plain data: JSON or a form, with limits. `protocol/` checks their fields afterwards."""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException

from ..errors import RequestError

_MOST_VALUES = 500_000
"""Most values of a JSON body: each takes up to a hundred bytes of memory, and all are checked before others run."""


async def read_body(request: Request) -> tuple[Any, int]:
    """Return the body of a request, and its number of bytes; 0 for a form."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await _form(request), 0
    raw = await request.body()
    try:
        _check_number(raw)
        text = raw.decode()
        body = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\u" in text:
            json.dumps(body, ensure_ascii=False).encode()  # half of a surrogate pair is no text, and tokenizers fail
        return body, len(raw)
    except RequestError:
        raise
    except (ValueError, RecursionError) as error:
        message = f"The body is no JSON: {str(error)[:200]}"
        raise RequestError(message, hint="Send a JSON object.", status=400) from error


async def _form(request: Request) -> dict[str, Any]:
    """Return the fields of a form: files as bytes, and lists for names that end with []."""
    try:
        async with request.form(max_files=1) as form:
            fields: dict[str, Any] = {}
            for name, value in form.multi_items():
                content = value if isinstance(value, str) else await value.read()
                if isinstance(content, str):
                    content.encode()  # a charset of the form can make half of a surrogate pair
                if name.endswith("[]"):
                    fields.setdefault(name.removesuffix("[]"), []).append(content)
                else:
                    fields[name] = content
            return fields
    except HTTPException as error:
        raise RequestError(f"The form cannot be read: {error.detail}", status=400) from error
    except UnicodeError as error:
        raise RequestError(f"The form has a text that is no Unicode: {str(error)[:200]}", status=400) from error


def _check_number(raw: bytes) -> None:
    """Check that a body has not too many values; commas and brackets in strings do not count."""
    if sum(map(raw.count, (b",", b"[", b"{", b'"'))) <= _MOST_VALUES:
        return
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    number = plain.count(b'"') // 2
    if number <= _MOST_VALUES:
        number = sum(part.count(mark) for part in plain.split(b'"')[::2] for mark in (b",", b"[", b"{"))
    if number > _MOST_VALUES:
        message = f"The body has {number} values; it may have {_MOST_VALUES}."
        raise RequestError(message, hint="Send several requests.", status=413)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is past the range of numbers")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
