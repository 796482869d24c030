"""Wrong requests for a server: bodies of every endpoint with something changed, and bytes that are no bodies.

    report = asyncio.run(fuzz(url, number=500, seed=0))
    assert not report.failures

A failure is a status of 500, a traceback, an error without OpenAI's form, or no answer.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import dataclasses
import json
import random
from typing import Any

_CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SEEDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", _CHAT),
    ("/v1/chat/completions", {**_CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {**_CHAT, "tools": [_TOOL], "tool_choice": "required", "logprobs": True}),
    ("/v1/chat/completions", {**_CHAT, "messages": [*_CHAT["messages"], {"role": "assistant", "tool_calls": [_CALL]}]}),
    ("/v1/chat/completions", {**_CHAT, "response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 2, "logprobs": 1, "echo": True, "n": 2}),
    ("/v1/completions", {"prompt": [5, 6], "max_tokens": 2, "stop": ["a"], "logit_bias": {"7": 1}, "seed": 1}),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 2, "structured_outputs": {"regex": "a+"}, "top_k": 3}),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 2, "guided_json": {"type": "array"}, "min_p": 0.1}),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 2, "guided_grammar": 'start: "a"', "bad_words": ["b"]}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "instructions": "a"}),
    ("/v1/responses", {"input": [{"role": "user", "content": "a"}], "max_output_tokens": 2, "stream": True}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "tools": [{"type": "function", "name": "f"}]}),
    ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "float"}),
    ("/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
    ("/score", {"text_1": "a", "text_2": ["b"]}),
    ("/v1/images/generations", {"prompt": "a", "size": "32x32"}),
    ("/tokenize", {"prompt": "a", "return_token_strs": True}),
    ("/detokenize", {"tokens": [3, 4]}),
    ("/invocations", _CHAT),
)
"""Paths and valid bodies."""

_DEEP: Any = []
for _ in range(200):
    _DEEP = [_DEEP]

JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, -(10**40), 0.5, 1e308, -1e-300, "", "x", "x" * 5000, "\x00",
    "\ud800", "\u202e\U0001f600", "-->", "{{ 7 * 7 }}", "<|endoftext|>", "../../etc/passwd", [], {}, [None], [[]], [{}],
    {"a": None}, {"type": "text"}, {"$ref": "#"}, {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "array", "items": {"$ref": "#"}, "minItems": 9}, {"allOf": [{"type": "string"}, {"type": "number"}]},
    {"type": "string", "pattern": "(a+)+$"}, {"type": "string", "pattern": "(?=a)b"}, {"enum": []}, {"not": {}},
    "(", "(a+)+b", "[^", "a{99999}", "(?i:a)*", "start: start", "root ::= root", "start: /a", "none", "required",
    ["a"] * 300, [0] * 300, [[1]] * 300, [-1], [10**9], ["\ud800"], {"role": "system"}, {"-1": 1}, {"1e3": 1}, _DEEP,
)  # fmt: skip
"""Values to put in place of others."""

PATHS = (
    "/v1/models/x",
    "/v1/responses/x",
    "/nothing",
    "/v1/models/../..",
    "/%00",
    "/v1/chat/completions/",
    "//",
    "/ping",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wrong:
    """One request."""

    method: str
    path: str
    raw: bytes
    headers: dict[str, str]
    leaves: bool = False
    """Whether the client leaves at once."""


@dataclasses.dataclass(kw_only=True)
class Report:
    """What became of all requests."""

    statuses: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    """Answers by their status; 0 for clients that left."""
    failures: list[str] = dataclasses.field(default_factory=list)


def wrong_request(draw: random.Random, models: list[str]) -> Wrong:
    """Draw a request."""
    kind = draw.random()
    if kind < 0.05:
        method = draw.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"))
        return Wrong(method=method, path=draw.choice(PATHS), raw=b"", headers={})
    path, body = draw.choice(SEEDS)
    body = copy.deepcopy(body) | {"model": draw.choice(models)}
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        _change(body, draw)
    raw = json.dumps(body).encode("utf-8", "surrogatepass")
    headers = {"Content-Type": "application/json"}
    if kind < 0.12:
        raw = _damaged(raw, draw)
    elif kind < 0.15:
        headers["Content-Type"] = draw.choice(
            ("multipart/form-data", "multipart/form-data; boundary=x", "text/plain", "x")
        )
        path = draw.choice(("/v1/audio/transcriptions", path))
        raw = draw.choice(
            (raw, b"--x\r\n\r\n\r\n--x--", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\na\r\n--x--\r\n')
        )
    elif kind < 0.17:
        headers |= draw.choice(({"Content-Encoding": "gzip"}, {"X-Request-Id": "a" * 300}, {"Accept": "nothing"}))
    return Wrong(method="POST", path=path, raw=raw, headers=headers, leaves=draw.random() < 0.03)


def _junk(draw: random.Random) -> Any:
    """Return a copy of a value, because later changes modify the body in place."""
    return copy.deepcopy(draw.choice(JUNK))


def _change(body: Any, draw: random.Random) -> None:
    """Change one place of a body: another value, a field more or less, or a place within."""
    if isinstance(body, list):
        if not body or draw.random() < 0.3:
            body.append(_junk(draw))
        elif isinstance(within := draw.choice(body), (dict, list)) and draw.random() < 0.8:
            _change(within, draw)
        else:
            body[draw.randrange(len(body))] = _junk(draw)
        return
    names = [name for name in body if name != "model" or draw.random() < 0.2]
    if not names or draw.random() < 0.15:
        known = (
            "n",
            "stop",
            "top_p",
            "temperature",
            "guided_choice",
            "logit_bias",
            "max_tokens",
            "priority",
            "timeout_s",
        )
        body[draw.choice((*known, "unknown", "", "\x00"))] = _junk(draw)
        return
    name = draw.choice(names)
    if isinstance(body[name], (dict, list)) and draw.random() < 0.6:
        _change(body[name], draw)
    elif draw.random() < 0.15:
        del body[name]
    else:
        body[name] = copy.deepcopy(_junk(draw))


def _damaged(raw: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(raw))
    return draw.choice(
        (
            raw[:place],
            raw[:place] + draw.randbytes(3) + raw[place:],
            draw.randbytes(50),
            b"",
            raw.replace(b"2", b"NaN"),
            raw.replace(b"2", b"1e999"),
            b"[" * 100_000,
            b'{"a":' * 5000,
            raw.decode().encode("utf-16"),
            raw + raw,
            b'"' + b"\\ud800" * 9 + b'"',
        )
    )


async def fuzz(
    url: str,
    *,
    number: int,
    seed: int,
    models: list[str],
    num_clients: int = 6,
    api_key: str = "",
    progress: bool = False,
) -> Report:
    """Send so many wrong requests; return what became of them."""
    import aiohttp
    from tqdm import tqdm

    draw, report = random.Random(seed), Report()
    requests = iter([wrong_request(draw, models) for _ in range(number)])
    bar = tqdm(total=number, disable=not progress)

    async def client(session: Any) -> None:
        for request in requests:
            await _send(session, url, request, report)
            bar.update()

    head = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with aiohttp.ClientSession(headers=head, timeout=aiohttp.ClientTimeout(total=120)) as session:
        await asyncio.gather(*(client(session) for _ in range(num_clients)))
    bar.close()
    return report


async def _send(session: Any, url: str, request: Wrong, report: Report) -> None:
    import aiohttp

    shown = f"{request.method} {request.path} {request.raw[:300]!r}"
    call = session.request(request.method, url + request.path, data=request.raw, headers=request.headers)
    try:
        if request.leaves:
            await asyncio.wait_for(call, 0.002)
        async with await call if not request.leaves else session.get(f"{url}/ping") as answer:
            text = await answer.text()
    except TimeoutError:
        report.statuses[0] += request.leaves
        if not request.leaves:
            report.failures.append(f"no answer in time: {shown}")
        return
    except aiohttp.ClientError as error:
        report.failures.append(f"{type(error).__name__}: {shown}")
        return
    report.statuses[answer.status] += 1
    if answer.status >= 500 and answer.status != 503 or "Traceback" in text:
        report.failures.append(f"{answer.status} {text[:300]}: {shown}")
    elif answer.status >= 400 and request.method != "HEAD" and request.path != "/ping":
        try:
            assert json.loads(text)["error"]["message"]
        except (AssertionError, KeyError, TypeError, ValueError):
            report.failures.append(f"{answer.status} has another form, {text[:200]}: {shown}")
