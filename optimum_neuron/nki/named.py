"""Kernels and their arguments as text, for the command line and for budgets: `kernels.py:softmax`, `128x512:bfloat16`.

>>> parse_argument("2x3:int32").shape, parse_argument("0.5")
(torch.Size([2, 3]), 0.5)
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..errors import ConfigError, nearest
from .kernel import Kernel

_TENSOR = re.compile(r"(?P<shape>\d+(x\d+)*)(?::(?P<dtype>\w+))?")


def load_kernel(target: str) -> Callable[..., Any]:
    """Import a Python file and return the kernel of a name.

    Modules beside the file are imported for it alone, so another file may have others of the same names beside it.

    Args:
        target: the file, a colon, and the name.

    Raises:
        ConfigError: there is no such file or kernel, or the file cannot be imported.
    """
    file, _, name = target.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        problem = f"There is no file {file}." if file else f"{target} names no kernel."
        raise ConfigError(problem, hint="Write the file and the kernel in it, as kernels.py:softmax.", kernel=target)
    found = vars(_imported(path))
    if not callable(found.get(name)):
        names = [key for key, one in found.items() if inspect.isfunction(one) or isinstance(one, Kernel)]
        message = f"{path} has no kernel '{name}'{nearest(name, names) or '.'}"
        raise ConfigError(message, hint=f"Its functions are {', '.join(names)}.", kernel=name)
    return found[name]


def _imported(path: Path) -> ModuleType:
    folder, known = str(path.parent.resolve()), set(sys.modules)
    spec = importlib.util.spec_from_file_location(f"{path.stem} of {folder}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file.", hint="Its name ends with .py.")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (ImportError, NameError, SyntaxError) as error:
        message = f"{path} cannot be imported: {type(error).__name__}: {error}."
        raise ConfigError(message, hint=f"python {path} shows where.", file=str(path)) from error
    for other in set(sys.modules) - known - {spec.name}:
        if str(vars(sys.modules[other]).get("__file__")).startswith(f"{folder}/"):
            del sys.modules[other]
    return module


def check_arguments(kernel: Callable[..., Any], args: Sequence[object], options: Mapping[str, object]) -> None:
    """Refuse arguments, by place and by name, that a kernel does not take."""
    signature = inspect.signature(kernel)
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        message = f"The kernel {kernel.__name__} does not take these arguments: {error}."
        raise ConfigError(message, hint=f"Its parameters are {signature}.", options=[*options]) from error


def parse_argument(text: str) -> Any:
    """Return an argument of a kernel: a tensor as `128x512:bfloat16`, or a value of Python.

    A number alone is a number: a tensor of one dimension has a dtype, as `512:float32`.
    """
    match = _TENSOR.fullmatch(text)
    if match and ("x" in text or match["dtype"]):
        shape = [int(length) for length in match["shape"].split("x")]
        dtype = getattr(torch, match["dtype"] or "float32", None)
        if isinstance(dtype, torch.dtype):
            if dtype.is_floating_point:
                return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
            return torch.zeros(shape, dtype=dtype)
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
        hint = "Write a tensor as 128x512:bfloat16, a text in quotes, or a number."
        raise ConfigError(f"'{text}' is no argument of a kernel.", hint=hint, argument=text) from error
