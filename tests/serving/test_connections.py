"""Strangers at the socket: half requests, endless ones, too many, and too slow ones end, and others go on."""

from __future__ import annotations

import contextlib
import json
import socket
import time

import httpx
import pytest

from optimum_neuron.serving import Deployment, ServeOptions, gate, running_server, server

HOST = b"Host: a\r\nContent-Type: application/json\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST


@pytest.fixture(scope="module")
def empty():
    """A server without models, which needs no compile."""
    with running_server(Deployment((), ServeOptions(port=0, max_body_bytes=10_000, max_connections=8))) as url:
        yield url


@contextlib.contextmanager
def connected(url, *parts, timeout_s=10.0):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        for part in parts:
            connection.sendall(part)
        yield connection


def read_all(connection):
    """Everything until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(10_000):
            received += piece
    return received


def error_of(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]


EARLY = {
    "too large": (POST + b"Content-Length: 99999\r\n\r\n{", 413),
    "much too large": (POST + b"Content-Length: 999999999999999999\r\n\r\n{", 413),
    "chunks without end": (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"fff\r\n%s\r\n" % (b" " * 4095) * 3, 413),
    "no such path": (b"POST /nothing HTTP/1.1\r\n" + HOST + b"Content-Length: 999\r\n\r\n{", 404),
    "no such method": (b"PUT /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 999\r\n\r\n{", 405),
    "waits for leave": (POST + b"Expect: 100-continue\r\nContent-Length: 99999\r\n\r\n", 413),
}


@pytest.mark.parametrize("name", EARLY)
def test_an_early_answer_closes_the_connection(name, empty, monkeypatch):
    """A client that goes on sending its body has no connection without limits."""
    monkeypatch.setattr(gate, "LINGER_S", 0.3)
    request, status = EARLY[name]
    started = time.monotonic()
    with connected(empty, request) as connection:
        assert error_of(read_all(connection))[0] == status
    assert time.monotonic() - started < 5
    assert httpx.get(f"{empty}/ping").status_code == 200


def test_a_client_that_sends_its_whole_body_gets_the_early_answer(empty):
    with httpx.Client(base_url=empty) as http:
        for _ in range(2):
            assert http.post("/v1/completions", content=b" " * 3_000_000).status_code == 413
            assert http.post("/v1/completions", content=iter([b" " * 9_000] * 200)).status_code == 413
            assert http.get("/ping").status_code == 200


@pytest.mark.parametrize("begin", [b"", b'{"a": '], ids=["nothing", "half"])
def test_a_slow_body_ends(begin, empty, monkeypatch):
    monkeypatch.setattr(gate, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(gate, "LINGER_S", 0.2)
    with connected(empty, POST + b"Content-Length: 99\r\n\r\n" + begin) as connection:
        assert error_of(read_all(connection))[0] == 408


def test_a_body_that_comes_slowly_ends_at_the_time_of_a_request(monkeypatch):
    monkeypatch.setattr(gate, "LINGER_S", 0.2)
    head = POST + b"Content-Length: 99\r\n\r\n"
    running = running_server(Deployment((), ServeOptions(port=0, request_timeout_s=1)))
    with running as url, connected(url, head, timeout_s=0.1) as connection:
        answer, end = b"", time.monotonic() + 8
        while not answer and time.monotonic() < end:
            connection.sendall(b" ")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(1000)
    assert b" 408 " in answer.split(b"\r\n")[0]


def test_bodies_of_all_requests_together_are_limited(empty, monkeypatch):
    with (
        contextlib.ExitStack() as stack,
        running_server(Deployment((), ServeOptions(port=0, max_body_bytes=500))) as url,
    ):
        monkeypatch.setattr(gate, "LINGER_S", 0.2)
        half = POST + b"Content-Length: 500\r\n\r\n" + b" " * 499
        held = [stack.enter_context(connected(url, half)) for _ in range(16)]
        time.sleep(0.3)
        with connected(url, half) as connection:
            status, _ = error_of(read_all(connection))
        assert status == 503
        for connection in held:
            connection.close()
        time.sleep(0.3)
        assert httpx.post(f"{url}/v1/completions", json={"model": "m"}).status_code in (400, 404)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
def test_a_client_that_does_not_read_its_answers_ends(monkeypatch):
    monkeypatch.setattr(server, "SEND_TIMEOUT_S", 0.5)
    number, request = 200, b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
    with running_server(Deployment((), ServeOptions(port=0))) as url, connected(url) as connection:
        # Else buffers of the system hold nearly all answers.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request * number)
        time.sleep(3)
        received = read_all(connection)
    assert 0 < received.count(b"HTTP/1.1 200") < number


def test_more_connections_than_the_limit_are_refused(empty):
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connected(empty))
        time.sleep(0.2)
        with connected(empty) as connection:
            status, error = error_of(read_all(connection))
        assert status == 503 and error["type"] == "service_unavailable_error"
    time.sleep(0.2)
    assert httpx.get(f"{empty}/ping").status_code == 200


NO_REQUESTS = {
    "garbage": b"\x00\x01\x02\x03\r\n\r\n",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "length that is none": POST + b"Content-Length: 1_0\r\n\r\n{}",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk of no number": POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
    "chunk that is too large": POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
    "space in a name": b"GET /ping HTTP/1.1\r\nHost : a\r\n\r\n",
    "path of bytes": b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 50,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_bytes_that_are_no_request_have_an_error(name, empty):
    with connected(empty, NO_REQUESTS[name], timeout_s=3) as connection:
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1") == 1
    status, error = error_of(answer)
    assert status == 400 and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
def test_other_protocols_are_not_taken_up(upgrade, empty):
    head = b"GET /ping HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: %s\r\n\r\n" % upgrade
    with connected(empty, head) as connection:
        assert b" 200 " in connection.recv(1000).split(b"\r\n")[0]


def test_clients_that_leave_leave_no_error_in_the_log(empty, caplog):
    half = POST + b"Content-Length: 99\r\n\r\n{"
    chunk = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\n{"
    form = half.replace(b"application/json", b"multipart/form-data; boundary=x")
    for request in (half, chunk, form, half[:20], half[:60]):
        for resets in (False, True):
            with connected(empty, request) as connection:
                time.sleep(0.05)
                if resets:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    time.sleep(0.3)
    assert httpx.get(f"{empty}/ping").status_code == 200
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


def test_a_form_of_half_characters_is_an_error_of_the_client(empty):
    form = b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n\\ud800\r\n--x--\r\n'
    head = {"Content-Type": "multipart/form-data; boundary=x; charset=unicode_escape"}
    answer = httpx.post(f"{empty}/v1/audio/transcriptions", content=form, headers=head)
    assert answer.status_code == 400 and answer.json()["error"]["message"]
