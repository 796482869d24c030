"""The studio's web application. It answers only requests for this machine that come from its own page.

    app = make_app(Path("."))

Other web pages cannot use it: a `Host` that is not a loopback name is rejected, which stops DNS rebinding, and so is an
`Origin` other than its own. A mistake in a form is one sentence, and so is a bug: no answer has a traceback.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from ..base.wording import first_line
from ..errors import ConfigError, NeuronError
from ..hardware import INSTANCES, TARGETS
from ..pages import document, part, plot_script
from . import answers
from .request import StudioRequest

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY_BYTES = 64 * 1024
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SANDBOX = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
"""For profiles: their scripts run without access to the studio."""


def make_app(folder: Path) -> FastAPI:
    """Return the application, which lists exports and profiles below a folder."""
    app = FastAPI(title="Studio (simulated)", docs_url=None, redoc_url=None, openapi_url=None)
    lock = threading.Lock()

    def locked(work: Callable[[], Any]) -> Any:
        with lock:  # models are captured one at a time
            return work()

    @app.middleware("http")
    async def guard(request: Request, forward: Callable[..., Any]) -> Response:
        problem = _problem(request)
        answer = _failed(403, problem) if problem else await forward(request)
        answer.headers.setdefault("Content-Security-Policy", _POLICY)
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.headers["Cache-Control"] = "no-store"
        return answer

    @app.get("/")
    def page() -> Response:
        return HTMLResponse(studio_page())

    @app.post("/api/estimate")
    async def estimate(request: Request) -> Response:
        forms = await _forms(request)
        return await _answered(lambda: locked(lambda: answers.estimates(_requests(forms, most=2))))

    @app.post("/api/compare")
    async def compare(request: Request) -> Response:
        forms = await _forms(request)
        return await _answered(lambda: locked(lambda: answers.ranking(_requests(forms, most=1)[0])))

    @app.get("/api/shelf")
    async def shelf() -> Response:
        return await _answered(lambda: answers.shelf(folder))

    @app.get("/profile")
    async def profile(name: str = "") -> Response:
        return await _answered(lambda: locked(lambda: answers.profile(folder, name)), respond=_sandboxed)

    return app


def studio_page() -> str:
    """Return the page: forms, and the scripts that fill them."""
    names = [name for name, spec in INSTANCES.items() if TARGETS[spec.family].compilable]
    families = list(dict.fromkeys(INSTANCES[name].family for name in names))
    data = {"instances": names, "families": families}
    style = f"<style>{part(__package__, 'studio.css')}</style>"
    body = style + part(__package__, "studio.html")
    return document(
        "Neuron studio, simulated", [body], data=data, scripts=[plot_script(), part(__package__, "studio.js")]
    )


def _problem(request: Request) -> str:
    """The reason to reject a request before it is read."""
    host = request.headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name not in LOOPBACK:
        return f"The host {host!r} is not this machine. Open the studio at http://127.0.0.1."
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return f"The page {origin!r} is not the studio's own. Open the studio itself."
    if request.method == "POST" and request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return "The request is not JSON. Send Content-Type: application/json."
    return ""


async def _forms(request: Request) -> object:
    """Return the JSON of a body, or None if it is too large or invalid."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _requests(forms: object, *, most: int) -> list[StudioRequest]:
    if not isinstance(forms, list) or not 1 <= len(forms) <= most or not all(isinstance(one, dict) for one in forms):
        message = f"The body is not a list of 1 to {most} forms." if most > 1 else "The body is not a list of one form."
        raise ConfigError(message, hint='Send JSON such as [{"model": "smollm2"}].')
    return [StudioRequest.from_form(form) for form in forms]


def _sandboxed(text: str) -> Response:
    """Answer with a page that is not the studio's own."""
    return HTMLResponse(text, headers={"Content-Security-Policy": _SANDBOX})


async def _answered(work: Callable[[], Any], *, respond: Callable[[Any], Response] = JSONResponse) -> Response:
    """Run work in a thread; an error is one sentence."""
    from starlette.concurrency import run_in_threadpool

    try:
        return respond(await run_in_threadpool(work))
    except NeuronError as error:
        return _failed(400, answers.sentence(error))
    except Exception as error:  # noqa: BLE001  # a page gets no traceback
        return _failed(500, f"This is a bug of the studio: {first_line(error)}")


def _failed(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)
