"""Training steps that compile again: counted, logged with their cause, and limited.

A NeuronCore's graphs are static, so a batch of another size is another compile. torch gives up silently after a number
of them and runs operator by operator; here training stops with an error that has the sizes.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator

import torch

from ..errors import ShapeError

logger = logging.getLogger(__name__)


class RecompileWatch:
    """Counts the steps of one `train()` that compiled again, and allows `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._causes: list[str] = []
        self._is_first = True

    @property
    def num_recompiles(self) -> int:
        """Steps that compiled again."""
        return len(self._causes)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Raise torch's own limit above this one during a run."""
        from ..upstream.torch import dynamo_config

        self._causes, self._is_first = [], True
        limit = max(dynamo_config.recompile_limit, self._most + 2)
        with dynamo_config.patch(recompile_limit=limit):
            yield

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Watch one training step."""
        from ..device.dynamo import compile_report

        before = len(compile_report().graphs)
        yield
        compiled = compile_report().graphs[before:]
        if compiled:
            # A compile leaves cycles of objects behind, and tensors of this step may be among them.
            gc.collect()
            torch.accelerator.empty_cache()
        again = [graph for graph in compiled if not graph.frame.endswith("/0")]
        is_first, self._is_first = self._is_first, False
        if is_first or not again:
            return
        self._causes.append(f"step {number}: {again[0].why}")
        # The backend has just logged the old and the new size.
        logger.warning("training step %d compiled again, %d of at most %d", number, len(self._causes), self._most)
        if len(self._causes) > self._most:
            causes = "\n  ".join(self._causes)
            message = f"{len(self._causes)} steps compiled again, but max_recompiles is {self._most}:\n  {causes}"
            hint = "Pad batches (pad_to_multiple_of, BucketCollator), set dataloader_drop_last or raise max_recompiles."
            raise ShapeError(message, hint=hint, option="max_recompiles", value=self._most, causes=list(self._causes))
