"""Modules that TorchScript compiles: one that holds a NEFF and runs it, and one that chooses a bucket first.

TorchScript reads the annotations from the source and knows no postponed ones: no `from __future__ import annotations`.
Nothing is pickled: a file holds the NEFF's bytes, the separate weights with their hash, and the options.
"""

from typing import Any, List, Tuple  # noqa: UP035

import torch
from torch import nn

from . import ops  # noqa: F401


class NeuronModel(nn.Module):
    """Runs a NEFF; restoring it from a file checks the NEFF and loads it."""

    weights: List[torch.Tensor]  # noqa: UP006

    def __init__(self, neff: torch.Tensor, weights: List[torch.Tensor], lazy: bool) -> None:  # noqa: UP006
        super().__init__()
        self.neff = neff
        self.weights = weights
        self.dynamic_batch = False
        self.lazy_load = lazy
        self.async_load = False

    def forward(self, inputs: List[torch.Tensor], entry: int = 0) -> List[torch.Tensor]:  # noqa: UP006
        """Run an entry point on flat tensors."""
        return torch.ops.neuron.forward(inputs, self.neff, entry, self.dynamic_batch)

    @torch.jit.export
    def close(self) -> None:
        """Give cores and HBM back; the model cannot run afterwards."""
        torch.ops.neuron.close(self.neff)

    @torch.jit.export
    def __getstate__(self) -> Tuple[torch.Tensor, List[torch.Tensor], str, bool, bool, bool, bool]:  # noqa: UP006
        """Saved state."""
        return (
            self.neff,
            self.weights,
            torch.ops.neuron.weights_hash(self.weights),
            self.dynamic_batch,
            self.lazy_load,
            self.async_load,
            self.training,
        )

    @torch.jit.export
    def __setstate__(self, state: Tuple[torch.Tensor, List[torch.Tensor], str, bool, bool, bool, bool]) -> None:  # noqa: UP006
        """Check the saved state, and load it."""
        self.weights = state[1]
        self.dynamic_batch = state[3]
        self.lazy_load = state[4]
        self.async_load = state[5]
        self.training = state[6]
        self.neff = torch.ops.neuron.load(state[0], state[1], state[2], state[4], state[5])


class BucketModel(nn.Module):
    """Lets a kernel pad the inputs and name the bucket, then runs that entry point."""

    def __init__(self, neuron_model: torch.jit.ScriptModule, kernel: Any) -> None:
        super().__init__()
        self.neuron_model = neuron_model
        self.kernel = kernel

    def forward(self, inputs: List[torch.Tensor]) -> List[torch.Tensor]:  # noqa: UP006
        """Run the bucket that fits."""
        tensors, bucket = self.kernel(inputs)
        return self.neuron_model(tensors, int(bucket.item()))

    @torch.jit.export
    def close(self) -> None:
        """Give cores and HBM back; the model cannot run afterwards."""
        self.neuron_model.close()
