"""Runs the server: in the main thread until a signal, or in a thread of a test or a notebook.

with running_server(deployment) as url:
    print(f"serving at {url}")
"""

from __future__ import annotations

import contextlib
import functools
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from uvicorn import Server

    from .deployment import Deployment


SEND_TIMEOUT_S = 60.0
"""Time that a client may take without reading any of its answer."""
_OTHER_FILES = 512
"""Files that the server may have open beside its connections."""


def serve(deployment: Deployment, *, on_listening: Callable[[str], None] = lambda url: None) -> None:
    """Serve until SIGTERM or SIGINT; then running requests are answered, and no others are taken.

    It ends too when no model can be loaded; a model that fails beside others leaves them served.

    Raises:
        ConfigError: the address cannot be listened on.
        NeuronError: no model can be loaded; the error of the last.
    """
    server, listening = _make_server(deployment), _listen(deployment)

    def end() -> None:
        server.should_exit = True

    deployment.registry.on_all_failed = end
    _allow_files(deployment.options.max_connections + _OTHER_FILES)
    with listening:
        on_listening(_url(listening))
        with _signals_end_quietly():
            server.run(sockets=[listening])
    deployment.registry.require_any()


@contextlib.contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Let a drained server return: uvicorn raises the signal again at its end, which would kill the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextlib.contextmanager
def running_server(deployment: Deployment, *, waits: bool = True) -> Iterator[str]:
    """Serve in a thread inside; yield the URL. With `waits`, models are loaded first.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    server, listening = _make_server(deployment), _listen(deployment)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="server", daemon=True)
    with listening:
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            if waits:
                deployment.registry.wait()
            yield _url(listening)
        finally:
            server.should_exit = True
            thread.join()


def _make_server(deployment: Deployment) -> Server:
    import uvicorn

    from .app import make_app
    from .connection import Connection

    connection: Any = functools.partial(Connection, max_connections=deployment.options.max_connections)
    config = uvicorn.Config(
        make_app(deployment),
        http=connection,
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=deployment.options.drain_timeout_s,
    )
    return uvicorn.Server(config)


def _allow_files(number: int) -> None:
    """Let this process open so many files, if the system lets it: a connection is one."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if most == resource.RLIM_INFINITY else min(number, most)
    if least != resource.RLIM_INFINITY and least < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _listen(deployment: Deployment) -> socket.socket:
    host, port = deployment.options.host, deployment.options.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SEND_TIMEOUT_S * 1000))
        listening.bind((host, port))
    except OSError as error:
        message = f"The server cannot listen on {host}:{port}: {error.strerror}."
        raise ConfigError(message, hint="Pass another --port or --host.", host=host, port=port) from error
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
