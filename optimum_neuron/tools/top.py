"""`neuron-top`: a live view of the simulated cores of all processes: utilization, memory, loaded models.

Where the output is no terminal, and with `--once`, it prints one frame and ends.

    neuron-top --instance inf2.48xlarge
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from ..cli.errors import run_guarded
from ..cli.output import Out
from ..cli.parser import NeuronParser
from ..runtime.publisher import INTERVAL_S
from .frame import Camera, Frame
from .keys import Keys
from .processes import add_instance
from .screen import View, render

_MIN_INTERVAL_S = 0.1
_PIPE_WIDTH = 140
_LOOKS = 5
"""Period of polls of `--once` for missing statuses, in seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron-top` and return its exit code.

    Args:
        arguments: words of the command line; None for those of this process.
    """
    parser = NeuronParser(
        prog="neuron-top",
        description="Show what the simulated cores do: utilization, memory and models of all processes.\n"
        "Keys: q quits, 1-9, a and d choose a process, F shows TFLOPS, x hides details.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
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

    def show(out: Out) -> int:
        terminal = out.stdout.isatty()
        console = Console(file=out.stdout, width=None if terminal else _PIPE_WIDTH, highlight=False)
        camera = Camera(options.instance)
        if options.once or not terminal or console.is_dumb_terminal:
            with console.capture() as drawn:
                console.print(render(_complete(camera), View()))
            out.text(drawn.get().rstrip("\n"))
        else:
            _live(camera, console, options.interval)
        return 0

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


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _MIN_INTERVAL_S <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds from {_MIN_INTERVAL_S} to 3600")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
