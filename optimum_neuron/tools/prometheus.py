"""`neuron-monitor-prometheus`: serve the output of `neuron-monitor` as a page of metrics for Prometheus.

It reads lines from stdin until they end, and answers GET /metrics meanwhile. It needs the standard library alone.

    neuron-monitor | neuron-monitor-prometheus --port 8000
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ..cli import NeuronParser, Out, digits, number_type, run_guarded
from ..errors import ConfigError
from ..files.plain_json import parse_json
from .prometheus_metrics import Metrics

DEFAULT_PORT = 8000
"""Default port of the SDK's script."""
_port = number_type(digits, "a port from 0 to 65535", 0, 65535)
_PATHS = ("/", "/metrics")
_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron-monitor-prometheus` until its input ends, and return its exit code."""
    parser = NeuronParser(
        prog="neuron-monitor-prometheus",
        description="Serve the lines of neuron-monitor, read from stdin, as metrics for Prometheus.",
    )
    parser.add_argument(
        "-p", "--port", type=_port, default=DEFAULT_PORT, help=f"port to listen on; 0: any (default: {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--address", default="0.0.0.0", help="address to listen on, such as 127.0.0.1 (default: every one of this host)"
    )
    options = parser.parse_args(arguments)

    def run(out: Out) -> None:
        metrics = Metrics()
        with serving(metrics, options.address, options.port) as port:
            print(f"serving http://{options.address}:{port}/metrics", file=out.stderr, flush=True)
            read(sys.stdin, metrics)

    return run_guarded(run, Out(), command=parser.prog)


def read(lines: Iterable[str], metrics: Metrics) -> None:
    """Take lines of `neuron-monitor` until they end."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            metrics.update(parse_json(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"Line {number} of stdin is not a neuron-monitor report ({type(error).__name__}: {error})."
            raise ConfigError(message, hint="Run neuron-monitor | neuron-monitor-prometheus.", line=number) from error


@contextlib.contextmanager
def serving(metrics: Metrics, address: str, port: int) -> Iterator[int]:
    """Serve metrics while the block runs, and return the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in _PATHS:
                self.send_error(404)
                return
            page = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", _TEXT_FORMAT)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *values: object) -> None:
            """Log nothing: Prometheus scrapes every few seconds."""

    try:
        server = ThreadingHTTPServer((address, port), Handler)
    except OSError as error:
        message = f"Cannot listen on {address}:{port}: {error.strerror or error}."
        raise ConfigError(message, hint="Pass another --port or --address.", address=address, port=port) from error
    with server:
        threading.Thread(target=server.serve_forever, name="prometheus", daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
