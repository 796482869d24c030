"""Source lines of operators while a model is captured.

torch.export asks for the whole stack of Python frames at every operator and writes it down, a seventh of the time of a
capture. Only the innermost `forward` of the user is needed (`rules/call.py`), which is a few frames above the call.
Operators that no call of a torch function leads to still get the whole stack.

    with source_lines():
        torch.export.export(module, arguments, strict=False)
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.traceback import get_current_meta, preserve_node_meta, set_stack_trace
from torch.overrides import TorchFunctionMode

from ..upstream.torch import DataDependentOutputException, HigherOrderOperator
from .rules import base_name, is_users

_TRACING = str(Path(__file__).resolve().parents[1] / "tracing")
"""Folder of the code that calls a traced function."""

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)

_ITEM = ("aten._local_scalar_dense", "aten.item")
"""Operators that make a number of a value."""


@contextlib.contextmanager
def source_lines(lines: Lines | None = None) -> Iterator[None]:
    """Give operators that are captured the line that calls them."""
    with preserve_node_meta(), lines or Lines():
        yield


class Lines(TorchFunctionMode):
    """Lines of the user that call functions of torch."""

    read: str | None = None
    """Line, as "file:line", that last got a number or a size that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[tuple[str, int], None] = {}

    def without_use(self, graph: fx.Graph) -> str | None:
        """Return the first line that made a number, a decision, or a text of values that the graph does not use."""
        items = (node for node in graph.nodes if base_name(str(node.target)) in _ITEM)
        uses = "".join(node.meta.get("stack_trace") or "" for node in items)
        lost = ((file, line) for file, line in self._numbers if f'File "{file}", line {line},' not in uses)
        return next((f"{file}:{line}: {linecache.getline(file, line).strip()}" for file, line in lost), None)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Attributes of tensors are no operators, and the operators of a region get lines by themselves.
        name = getattr(func, "__name__", "")
        if name == "__get__" or isinstance(func, HigherOrderOperator):
            return func(*args, **(kwargs or {}))
        before = get_current_meta().get("stack_trace")
        place = _innermost_forward(sys._getframe(1))
        set_stack_trace([f'File "{file}", line {line}, in {where}' for file, line, where in place])
        if place and name == "__format__":  # it may raise
            self._note(place[0])
        try:
            result = func(*args, **(kwargs or {}))
        except (GuardOnDataDependentSymNode, DataDependentOutputException):
            if place:
                self._note(place[0])
            raise
        finally:
            set_stack_trace([before] if before else [])
        if place and name in ("item", "tolist") and _has_symbols(result):
            self._note(place[0])
        elif place:
            numbers = result.shape if isinstance(result, torch.Tensor) else (result,)
            if any(isinstance(number, _SYMBOLS) for number in numbers):
                self.read = f"{place[0][0]}:{place[0][1]}"
        return result

    def _note(self, place: tuple[str, int, str]) -> None:
        file, line, _ = place
        self.read = f"{file}:{line}"
        self._numbers[file, line] = None


def _has_symbols(result: object) -> bool:
    if isinstance(result, list):
        return any(map(_has_symbols, result))
    return isinstance(result, _SYMBOLS)


def _innermost_forward(frame: FrameType | None) -> list[tuple[str, int, str]]:
    """The innermost `forward` of the user, which is what export keeps of a stack, or nothing.

    A traced function has none: its innermost frame takes its place.
    """
    innermost = None
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if is_users(file):
            innermost = innermost or (file, frame.f_lineno, name)
            if name == "forward":
                return [(file, frame.f_lineno, name)]
        elif name == "forward" and file.startswith(_TRACING):
            return [innermost] if innermost else []
        frame = frame.f_back
    return []
