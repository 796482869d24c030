"""Results of an evaluation from all processes, counted once if several of them see the same batch.

accelerate gathers from every process. Its data loader counts the padding rows of the last batches; here they are left
out as it does.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, recursively_apply


def gather_for_metrics(
    accelerator: Accelerator, data: object, use_gather_object: bool = False, *, num_same: int = 1
) -> Any:
    """Return the results of one process of each `num_same` neighbors in rank, as `Accelerator.gather_for_metrics`.

    Args:
        data: tensors whose first axis are rows, nested as one likes; or a list of objects, one for each row.
        use_gather_object: whether it is a list of objects.
    """
    state = accelerator.gradient_state
    num_rows = state.remainder if state.end_of_dataloader and state.remainder > 0 else None

    def once(tensor: torch.Tensor) -> torch.Tensor:
        every = accelerator.gather(tensor)
        return every.unflatten(0, (accelerator.num_processes, -1))[::num_same].flatten(0, 1)[:num_rows]

    if use_gather_object:
        return list(itertools.chain.from_iterable(gather_object([data])[::num_same]))[:num_rows]
    return recursively_apply(once, data, error_on_other_type=True)
