"""Runs the studio on the loopback address: in the main thread until a signal, or in a thread of a test or a notebook.

with running_studio(folder=Path(".")) as url:
    print(url)
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..serving import require_packages

if TYPE_CHECKING:
    from uvicorn import Server

HOST, PORT = "127.0.0.1", 8765


def serve_studio(
    *, folder: Path = Path(), port: int = PORT, on_listening: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: the port is taken, the folder does not exist, or a package is missing.
    """
    server, listening = _prepare(folder, port)
    with listening, contextlib.suppress(KeyboardInterrupt):
        on_listening(_url(listening))
        server.run(sockets=[listening])


@contextlib.contextmanager
def running_studio(*, folder: Path, port: int = 0) -> Iterator[str]:
    """Serve in a thread inside; yield the URL. Port 0 is any free one."""
    server, listening = _prepare(folder, port)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="studio", daemon=True)
    with listening:
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield _url(listening)
        finally:
            server.should_exit = True
            thread.join()


def _prepare(folder: Path, port: int) -> tuple[Server, socket.socket]:
    require_packages()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.", hint="Pass the folder of your exports.", option="folder")
    import uvicorn

    from .app import make_app

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listening.close()
        message = f"Port {port} of {HOST} cannot be used: {error}."
        raise ConfigError(message, hint="Pass another --port; 0 is any free one.", option="port", value=port) from error
    config = uvicorn.Config(make_app(folder.absolute()), log_level="warning", access_log=False, ws="none")
    return uvicorn.Server(config), listening


def _url(listening: socket.socket) -> str:
    return f"http://{HOST}:{listening.getsockname()[1]}"
