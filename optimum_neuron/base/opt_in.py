"""Who may import a package that libraries behave differently with: scripts, and no library that only looks for it.

frame, looks_only = asking(sys._getframe())
if not may_import(frame, chosen=None): ...
"""

from __future__ import annotations

from pathlib import Path
from types import FrameType

_MACHINERY = ("importlib", "pkgutil", "runpy")
"""Modules that import on behalf of another."""
_INSTALLED = {"site-packages", "dist-packages"}


def asking(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """Return the frame that asks for a module, and whether it calls `importlib.util.find_spec` rather than imports.

    Args:
        frame: the frame that called a finder.
    """
    looks_only = False
    while frame is not None and _imports_for_another(frame):
        looks_only = looks_only or frame.f_globals.get("__name__") == "importlib.util"
        frame = frame.f_back
    return frame, looks_only


def _imports_for_another(frame: FrameType) -> bool:
    """Return whether a frame is of Python's imports, or of a finder that asks the others, as coverage tools have."""
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] in _MACHINERY or frame.f_code.co_name == "find_spec"


def may_import(frame: FrameType | None, *, chosen: bool | None) -> bool:
    """Return whether the code of a frame may import the package.

    Args:
        frame: the frame; None is the interpreter itself, as with `python -m`.
        chosen: True if all code may import it, False if none may; None if the environment does not say.
    """
    if chosen is not None or frame is None:
        return chosen is not False
    is_installed = bool(_INSTALLED & set(Path(frame.f_code.co_filename).parts))
    return not is_installed or "neuron" in frame.f_globals.get("__name__", "").partition(".")[0]
