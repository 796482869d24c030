"""Simulated ranks: a model is built and traced as one of them, in this process alone.

`NxDParallelState` makes torch.distributed answer as on that rank. Exchanges of tensors then become operators of the
traced program, which all ranks run.

    with NxDParallelState(world_size=2, tensor_model_parallel_size=2):
        built = ModelBuilder(model).trace(args=x, tag="main").compile()
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from ..errors import ConfigError
from . import parallel_state

BACKEND = "fake"
"""torch's backend of groups that exchange nothing."""


def is_simulated(group: dist.ProcessGroup | None) -> bool:
    """Return whether the ranks of a group are simulated."""
    return group is not None and dist.is_initialized() and dist.get_backend(group) == BACKEND


def whole_world(group: dist.ProcessGroup) -> int:
    """Return the number of ranks of a simulated group, which has to have all ranks."""
    size, world = dist.get_world_size(group), dist.get_world_size()
    if size != world:
        message = f"A program exchanges tensors among {size} of {world} ranks."
        hint = "Trace with a tensor_model_parallel_size that is the number of ranks."
        raise ConfigError(message, hint=hint, group=size, world_size=world)
    return size


def rank_of(group: dist.ProcessGroup) -> torch.Tensor:
    """Return the number of the rank that runs the traced program, an int64 scalar."""
    rank: torch.Tensor = torch.ops.neuron.rank(whole_world(group))
    return rank


def begin(rank: int, world_size: int) -> None:
    """Let torch.distributed answer as on a rank."""
    from ..upstream.torch import FakeStore

    # torch lets the hook of errors name the rank, also of a process that only simulates it.
    with patch.object(sys, "excepthook", sys.excepthook):
        dist.init_process_group(BACKEND, rank=rank, world_size=world_size, store=FakeStore())


@contextlib.contextmanager
def mock_distributed(world_size: int) -> Iterator[None]:
    """Let `torch.distributed.init_process_group` make simulated ranks, whatever backend it is asked for.

    Args:
        world_size: number of ranks, where the call names none.
    """

    def make(backend: str = "", rank: int = 0, world_size: int = world_size, **_: object) -> None:
        restore.stop()
        try:
            begin(rank, world_size)
        finally:
            restore.start()

    restore = patch.object(dist, "init_process_group", make)
    restore.start()
    try:
        yield
    finally:
        restore.stop()


class NxDParallelState:
    """Groups of ranks inside a `with` block; ranks are simulated unless torch.distributed is initialized.

    Args:
        world_size: number of ranks.
        rank: the rank to answer as.
        tensor_model_parallel_size: number of ranks that divide tensors.
        pipeline_model_parallel_size: number of stages.
        context_parallel_size: number of ranks that divide sequences.
        expert_model_parallel_size: number of ranks that divide experts.
        lnc_size: physical cores of a core; None: 1.
    """

    def __init__(
        self,
        world_size: int = 1,
        rank: int = 0,
        tensor_model_parallel_size: int = 1,
        pipeline_model_parallel_size: int = 1,
        context_parallel_size: int = 1,
        expert_model_parallel_size: int = 1,
        lnc_size: int | None = None,
    ) -> None:
        self.world_size, self.rank = world_size, rank
        self.degrees: dict[str, Any] = {
            "tensor_model_parallel_size": tensor_model_parallel_size,
            "pipeline_model_parallel_size": pipeline_model_parallel_size,
            "context_parallel_size": context_parallel_size,
            "expert_model_parallel_size": expert_model_parallel_size,
            "lnc_size": lnc_size or 1,
        }
        self._is_own = False

    def __enter__(self) -> NxDParallelState:
        self._is_own = not dist.is_initialized()
        if self._is_own:
            begin(self.rank, self.world_size)
        try:
            parallel_state.initialize_model_parallel(**self.degrees, skip_collective_init=True)
        except BaseException:
            self._end()
            raise
        parallel_state.set_aot_mode(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parallel_state.set_aot_mode(False)
        parallel_state.destroy_model_parallel()
        self._end()

    def _end(self) -> None:
        if self._is_own:
            dist.destroy_process_group()
