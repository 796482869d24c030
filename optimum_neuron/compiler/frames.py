"""Source lines of operators while a model is captured.

torch.export asks for the whole stack of Python frames at every operator and writes it down, a seventh of the time of a
capture. Only the innermost `forward` of the user is needed (`rules/location.py`), which is a few frames above the call.
Operators that no call of a torch function leads to still get the whole stack.

    with source_lines():
        torch.export.export(module, arguments, strict=False)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch.fx.traceback import get_current_meta, preserve_node_meta, set_stack_trace
from torch.overrides import TorchFunctionMode

from ..upstream.torch import HigherOrderOperator
from .rules import is_users


@contextlib.contextmanager
def source_lines() -> Iterator[None]:
    """Give operators that are captured the line that calls them."""
    with preserve_node_meta(), _Lines():
        yield


class _Lines(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Attributes of tensors are no operators, and the operators of a region get lines by themselves.
        if getattr(func, "__name__", "") == "__get__" or isinstance(func, HigherOrderOperator):
            return func(*args, **(kwargs or {}))
        before = get_current_meta().get("stack_trace")
        set_stack_trace(_innermost_forward(sys._getframe(1)))
        try:
            return func(*args, **(kwargs or {}))
        finally:
            set_stack_trace([before] if before else [])


def _innermost_forward(frame: FrameType | None) -> list[str]:
    """The innermost `forward` of the user, which is what export keeps of a stack, or nothing."""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if name == "forward" and is_users(file):
            return [f'File "{file}", line {frame.f_lineno}, in {name}']
        frame = frame.f_back
    return []
