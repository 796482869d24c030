"""Errors in OpenAI's form: a status, and a body with message, type, parameter, and code. It never has a traceback."""

from __future__ import annotations

import logging
from typing import Any

from ..errors import ConfigError, DeviceMemoryError, NeuronError, QueueFullError, RequestError, ShapeError

logger = logging.getLogger(__name__)

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    431: "invalid_request_error",
    429: "rate_limit_error",
    500: "internal_server_error",
    503: "service_unavailable_error",
}
RETRY_AFTER_S = 1
"""Seconds after which clients should send a rejected request again."""


def problem_of(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return the status and the body for an error; one of a bug is logged, and its text is not sent."""
    if not isinstance(error, NeuronError):
        logger.error("A request failed.", exc_info=error)
        return 500, body_of(500, "The server failed; its log has the reason.")
    status = error.details.get("status") or _status(error)
    code, param = error.details.get("code"), error.details.get("param") or error.details.get("option")
    return status, body_of(status, str(error), param=param, code=code)


def _status(error: NeuronError) -> int:
    if isinstance(error, QueueFullError):
        return 429
    if isinstance(error, DeviceMemoryError):
        return 503
    return 400 if isinstance(error, (ConfigError, RequestError, ShapeError)) else 500


def body_of(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "internal_server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code or str(status)}}


def too_slow(timeout_s: float) -> RequestError:
    """Return the error of a request whose time is over."""
    message = f"The request took longer than {timeout_s:g} s."
    return RequestError(message, hint="Send a shorter request, or a larger timeout_s.", status=408)
