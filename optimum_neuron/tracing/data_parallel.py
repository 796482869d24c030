"""`torch_neuronx.DataParallel`: one traced model on several cores, each working on a part of the batch.

Replicas share the tensors of the host; `runtime/copies.py` has the threads that drive their calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError, ShapeError
from ..runtime import CoreThreads
from .contexts import REPLICA, no_such_cores, num_cores, setting
from .placement import dynamic_batch
from .script import neuron_models, session_of
from .session import Session
from .structure import flatten, rebuild


class DataParallel(nn.Module):
    """Split inputs along a dimension, run the parts on several cores at once, and join the outputs.

    Args:
        model: Result of `trace`; it is loaded on the cores of `device_ids`.
        device_ids: cores as numbers or as "nc:#", counted from 0 among those of the process; None takes all of them.
        dim: the dimension that is split and joined.
        set_dynamic_batching: let parts have any size, see `dynamic_batch`; a warning says where it cannot be.

    Raises:
        ConfigError: the process has no such cores, or the model is not a traced one.
        CoreBusyError, DeviceMemoryError: a replica cannot be loaded.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import DataParallel, trace

        model = trace(torch.nn.Linear(4, 2), torch.rand(1, 4), compiler_args="-O1")
        parallel = DataParallel(model, device_ids=["nc:0", "nc:1"])
        assert parallel(torch.rand(7, 4)).shape == (7, 2)
        ```
    """

    def __init__(
        self,
        model: torch.jit.ScriptModule,
        device_ids: Sequence[int | str] | None = None,
        dim: int = 0,
        set_dynamic_batching: bool = True,
    ) -> None:
        super().__init__()
        self.device_ids = _device_ids(device_ids)
        """Cores, counted from 0 among those of the process."""
        self.dim = dim
        """The dimension that is split and joined."""
        self.num_workers = 2 * len(self.device_ids)
        """Threads; may be changed before the first call."""
        self.split_size: int | None = None
        """Size of a part; None: the size of the input by the number of cores, at least 1."""
        self.dynamic_batching = False
        """Whether parts may have any size."""
        self._model = model
        self._threads: CoreThreads | None = None
        for part in neuron_models(model):
            session = session_of(part)
            _require_one_core(session)
            session.place(self.device_ids)
            if part.async_load:
                session.load_in_background()
            else:
                session.load()
        if set_dynamic_batching:
            self._try_dynamic_batching()

    def disable_dynamic_batching(self) -> None:
        """Send parts unchanged: each must have the size that the model was traced with."""
        for part in neuron_models(self._model):
            part.dynamic_batch = False
        self.dynamic_batching = False

    def forward(self, *inputs: object) -> Any:
        """Run the model on the whole input.

        Raises:
            ShapeError: the inputs differ in the size that is split, or have none.
        """
        flat = flatten(inputs, "inputs")
        size = self._size(flat.tensors)
        split_size = self.split_size or max(1, size // len(self.device_ids))
        parts = list(zip(*(tensor.split(split_size, self.dim) for tensor in flat.tensors), strict=True))
        if self._threads is None:
            self._threads = CoreThreads(len(self.device_ids), num_threads=self.num_workers)
        results = self._threads.map(self._call, [rebuild(flat.skeleton, part) for part in parts])
        outputs = [flatten(output, "output") for output in results]
        joined = [torch.cat(tensors, self.dim) for tensors in zip(*(o.tensors for o in outputs), strict=True)]
        return rebuild(outputs[0].skeleton, joined)

    def _call(self, replica: int, inputs: Sequence[Any]) -> Any:
        with setting(REPLICA, replica):
            return self._model(*inputs)

    def _try_dynamic_batching(self) -> None:
        reason = f"dim={self.dim}, and only dimension 0 can be split" if self.dim != 0 else ""
        if not reason:
            try:
                dynamic_batch(self._model)
            except ConfigError as error:
                reason = str(error)
        if reason:
            warnings.warn(f"dynamic batching is off: {reason}", stacklevel=3)
        self.dynamic_batching = not reason

    def _size(self, tensors: Sequence[torch.Tensor]) -> int:
        sizes = [tensor.shape[self.dim] if -tensor.dim() <= self.dim < tensor.dim() else 0 for tensor in tensors]
        if len(set(sizes)) == 1 and sizes[0] > 0:
            return sizes[0]
        message = f"The sizes of the inputs in dimension {self.dim} are {', '.join(map(str, sizes)) or 'missing'}."
        raise ShapeError(message, hint="Pass inputs of one size, at least 1, there.", dim=self.dim, sizes=sizes)


def _require_one_core(session: Session) -> None:
    if session.num_cores == 1:
        return
    message = f"DataParallel takes models on one core, but {session.name} is a pipeline on {session.num_cores} cores."
    hint = "Trace it without --neuroncore-pipeline-cores, or replicate it with set_neuron_cores."
    raise ConfigError(message, hint=hint, num_cores=session.num_cores)


def _device_ids(names: Sequence[int | str] | None) -> tuple[int, ...]:
    total = num_cores()
    if names is None:
        return tuple(range(total))
    texts = [item.removeprefix("nc:") if isinstance(item, str) else str(item) for item in names]
    cores = tuple(int(text) for text in texts if text.isdecimal() and int(text) < total)
    if not names or not len(set(cores)) == len(cores) == len(names):
        raise no_such_cores(f"device_ids={list(names)}")
    return cores
