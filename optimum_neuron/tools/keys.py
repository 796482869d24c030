"""Single keys of a terminal, without waiting for Enter; where stdin is no terminal there are none.

with Keys(sys.stdin) as keys:
    key = keys.wait(1.0)  # "q", or None after a second
"""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from types import TracebackType
from typing import IO, Any


class Keys:
    """Reads keys while it is open, and leaves the terminal as it was."""

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
        # A terminal that went away reads as nothing: as if somebody quit.
        return os.read(self._descriptor, 1).decode("ascii", errors="replace") or "q"
