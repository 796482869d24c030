"""What the steps of a graph are in a decoder: by their module paths, and by what runs in the same module.

role_of_step(step)
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator

from ...errors import ModelError, NeuronError
from .layer_sizes import Role, role_of
from .record import Step


@contextlib.contextmanager
def counting(path: str) -> Iterator[None]:
    """Name the module whose work is counted inside, if counting fails."""
    try:
        yield
    except NeuronError:
        raise
    except Exception as error:
        message = f"The work of module {path!r} cannot be counted ({type(error).__name__}: {error})."
        hint = "Report this as an issue, with the model's configuration."
        raise ModelError(message, hint=hint, module=path) from error


def role_of_step(step: Step) -> Role | None:
    """Return the role of a layer's matmul; None for others, and outside of layers."""
    if step.matmul is None or not layer_of(step.module_path):
        return None
    return "router" if step.matmul.columns == 1 else role_of(step.module_path)


def layer_of(path: str) -> str:
    """Return the layer of a module path: everything up to its first number; empty outside of layers."""
    parts = path.split(".")
    index = next((index for index, part in enumerate(parts) if part.isdigit()), None)
    return "" if index is None else ".".join(parts[: index + 1])


def parent_of(path: str) -> str:
    """Return the module that holds a module."""
    return path.rpartition(".")[0]


def is_inside(path: str, module: str) -> bool:
    """Return whether a path is that of a module or of a part of it."""
    return f"{path}.".startswith(f"{module}.")


def norm_paths(steps: Iterable[Step]) -> set[str]:
    """Return the modules that write a norm out, and do nothing else."""
    steps = list(steps)
    mixers = {step.module_path for step in steps if step.attends or step.scans}
    return {step.module_path for step in steps if step.name == "aten.rsqrt"} - mixers


def with_work(step: Step, **changes: float) -> Step:
    """Return a step with other counts."""
    return dataclasses.replace(step, work=dataclasses.replace(step.work, **changes))  # type: ignore[arg-type]
