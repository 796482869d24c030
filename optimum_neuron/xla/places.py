"""Where in the user's program operators were called first: file and line, and the module.

number = PLACES.here()
PLACES.at(number).source
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from ..compiler.rules import is_users

_OURS = Path(__file__).resolve().parents[1]
_FACADE = "torch_xla"
"""Package whose frames stand between a script and this package."""
_MOST_FRAMES = 200


@dataclasses.dataclass(frozen=True)
class Place:
    """A line of the user's program, and the module whose forward it is in."""

    file: str = ""
    line: int = 0
    module: str = ""
    """Path of the module, such as "layers.0.mlp"; empty outside of modules."""
    kind: str = ""
    """Class of the module."""

    @property
    def source(self) -> str:
        """File and line; empty where no line of the user's is known, as in backward passes."""
        return f"{self.file}:{self.line}" if self.file else ""

    def __str__(self) -> str:
        return f"{self.module} ({self.source})" if self.module else self.source or "a backward pass"


class Places:
    """The places of this process, by number; number 0 is unknown."""

    def __init__(self) -> None:
        self._places = [Place()]
        self._numbers = {self._places[0]: 0}
        self._lock = threading.Lock()

    def here(self) -> int:
        """Return the number of the user's line that this thread is at."""
        place = current()
        with self._lock:
            if place not in self._numbers:
                self._numbers[place] = len(self._places)
                self._places.append(place)
            return self._numbers[place]

    def at(self, number: int) -> Place:
        """Return a place."""
        return self._places[number]


PLACES = Places()
"""All of them."""


def current() -> Place:
    """Return the user's line that this thread is at, with the module around it."""
    found: FrameType | None = None
    inner: Any = None
    outer: Any = None
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        module = _module_of(frame)
        if module is not None:
            inner, outer = (module if inner is None else inner), module
        if found is None and _is_users(frame.f_code.co_filename):
            found = frame
        frame = frame.f_back
    path = "" if inner is None or inner is outer else _path(outer, inner)
    if found is None:
        return Place(module=path)
    kind = type(inner).__name__ if inner is not None else ""
    return Place(file=found.f_code.co_filename, line=found.f_lineno, module=path, kind=kind)


def _module_of(frame: FrameType) -> Any:
    torch = sys.modules.get("torch")
    if frame.f_code.co_name not in ("forward", "_call_impl") or torch is None:
        return None
    module = frame.f_locals.get("self")
    return module if isinstance(module, torch.nn.Module) else None


def _path(outer: Any, inner: Any) -> str:
    return next((name for name, module in outer.named_modules() if module is inner), "")


@functools.cache
def _is_users(file: str) -> bool:
    path = Path(file)
    inside = path.is_relative_to(_OURS) or _FACADE in path.parts or file.startswith("<")
    return not inside and is_users(file)
