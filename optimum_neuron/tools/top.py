"""`neuron-top`: a live view of the simulated cores of all processes: utilization, memory, loaded models.

If the output is no terminal, and with `--once`, it prints one frame and ends.

    neuron-top --instance inf2.48xlarge
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any

from rich.console import Console
from rich.live import Live

from ..cli import NeuronParser, Out, number_type, run_guarded
from ..runtime import INTERVAL_S
from .frame import Camera, Frame
from .processes import add_instance
from .screen import View, render

_interval = number_type(float, "a number of seconds from 0.1 to 3600", 0.1, 3600)
_PIPE_WIDTH = 140
_LOOKS = 5
"""Period of polls of `--once` for missing statuses, in seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron-top` and return its exit code."""
    parser = NeuronParser(
        prog="neuron-top",
        description="Show what the simulated cores do: utilization, memory and models of all processes.\n"
        "Keys: q quits, 1-9, a and d choose a process, F shows TFLOPS, x hides details.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--once", action="store_true", help="print one frame and end, as into a pipe")
    parser.add_argument(
        "-i",
        "--interval",
        type=_interval,
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"time between two frames (default: {INTERVAL_S:g}, as often as processes tell their state)",
    )
    add_instance(parser)
    options = parser.parse_args(arguments)

    def show(out: Out) -> None:
        terminal = out.stdout.isatty()
        console = Console(file=out.stdout, width=None if terminal else _PIPE_WIDTH, highlight=False)
        camera = Camera(options.instance)
        if options.once or not terminal or console.is_dumb_terminal:
            with console.capture() as drawn:
                console.print(render(_complete(camera), View()))
            out.text(drawn.get().rstrip("\n"))
        else:
            _live(camera, console, options.interval)

    return run_guarded(show, Out(), command=parser.prog)


def _complete(camera: Camera) -> Frame:
    """A frame with everything that processes tell, as soon as there is one: rates take two looks or more."""
    camera.take(time.monotonic())
    for _ in range(_LOOKS):
        time.sleep(INTERVAL_S)
        frame = camera.take(time.monotonic())
        if frame.complete:
            break
    return frame


def _live(camera: Camera, console: Console, interval_s: float) -> None:
    """Draw frames until q is pressed."""
    view = View()
    with Keys(sys.stdin) as keys, Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
        while True:
            frame, due_s = camera.take(time.monotonic()), time.monotonic() + interval_s
            while time.monotonic() < due_s:
                live.update(render(frame, view, keys=True), refresh=True)
                key = keys.wait(due_s - time.monotonic())
                if key == "q":
                    return
                view = view.pressed(key, frame) if key else view


class Keys:
    """Reads single keys of a terminal while it is open, without Enter; where stdin is no terminal there are none."""

    def __init__(self, stdin: IO[str]) -> None:
        self._descriptor = stdin.fileno() if stdin.isatty() else None
        self._before: list[Any] | None = None

    def __enter__(self) -> Keys:
        if self._descriptor is not None:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None and self._before is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str | None:
        """The next key; None where there is none for so long, or no terminal."""
        if self._descriptor is None:
            time.sleep(max(seconds, 0.0))
            return None
        ready, _, _ = select.select([self._descriptor], [], [], max(seconds, 0.0))
        if not ready:
            return None
        # A closed terminal reads as the quit key.
        return os.read(self._descriptor, 1).decode("ascii", errors="replace") or "q"


if __name__ == "__main__":
    sys.exit(main())
