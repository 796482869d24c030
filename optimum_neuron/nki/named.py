"""Kernels and their arguments as text, for the command line and for budgets: `kernels.py:softmax`, `128x512:bfloat16`.

>>> parse_argument("2x3:int32").shape, parse_argument("0.5")
(torch.Size([2, 3]), 0.5)
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError

_TENSOR = re.compile(r"(?P<shape>\d+(x\d+)*)(?::(?P<dtype>\w+))?")


def load_kernel(target: str) -> Callable[..., Any]:
    """Import a Python file and return the kernel of a name.

    Args:
        target: the file, a colon, and the name.
    """
    file, _, name = target.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise ConfigError(f"{target} names no Python file and kernel.", hint="Write it as kernels.py:softmax.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file.", hint="Its name ends with .py.")
    sys.path.insert(0, str(path.parent.resolve()))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{path} has no kernel {name}.", hint="Name a function of the file.", kernel=name)
    return found


def parse_argument(text: str) -> Any:
    """Return an argument of a kernel: a tensor as `128x512:bfloat16`, or a value of Python.

    A number alone is a number: a tensor of one dimension has a dtype, as `512:float32`.
    """
    match = _TENSOR.fullmatch(text)
    if match and ("x" in text or match["dtype"]):
        shape = [int(length) for length in match["shape"].split("x")]
        dtype = getattr(torch, match["dtype"] or "float32", None)
        if isinstance(dtype, torch.dtype):
            kind = torch.float32 if dtype.is_floating_point else dtype
            made = torch.randn(shape, generator=torch.Generator().manual_seed(0)) if kind.is_floating_point else None
            return torch.zeros(shape, dtype=dtype) if made is None else made.to(dtype)
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
        hint = "Write a tensor as 128x512:bfloat16, a text in quotes, or a number."
        raise ConfigError(f"'{text}' is no argument of a kernel.", hint=hint, argument=text) from error
