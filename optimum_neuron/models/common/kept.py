"""What the modules of a model keep from a call to the next, which may not leave a trace or a change of dtypes.

with forgetting(model):
    model(ids)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@contextlib.contextmanager
def forgetting(model: nn.Module) -> Iterator[None]:
    """Behind the block, tensors that modules keep for their next call, in buffers too, are those of before."""
    import torch

    before = [(kept, dict(kept)) for module in model.modules() for kept in (vars(module), module._buffers)]
    try:
        yield
    finally:
        for kept, old in before:
            for name in [name for name, value in kept.items() if isinstance(value, torch.Tensor)]:
                del kept[name]
            kept |= {name: value for name, value in old.items() if name not in kept}
