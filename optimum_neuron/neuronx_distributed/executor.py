"""Programs of several ranks as one ScriptModule, which `torch.jit.save` writes; `nxd_model` takes the weights.

TorchScript reads the annotations from the source and knows no postponed ones: no `from __future__ import annotations`.

    executor = make_executor(neff, calls, document)
    executor.nxd_model.initialize(checkpoints, torch.tensor([0]))
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Dict, List, Tuple  # noqa: UP035

import torch
from torch import nn

from .. import tracing


class RankedProgram(nn.Module):
    """The program that all ranks run, and the weights of each rank."""

    weights: List[Dict[str, torch.Tensor]]  # noqa: UP006

    def __init__(self, neff: torch.Tensor, names: Dict[str, int]) -> None:  # noqa: UP006
        super().__init__()
        self.neff = neff
        self.names = names
        self.weights: List[Dict[str, torch.Tensor]] = []  # noqa: UP006
        self.is_loaded = False

    def forward(self, inputs: List[torch.Tensor], shapes: str) -> List[torch.Tensor]:  # noqa: UP006
        """Run the entry for such inputs; the first rank's result."""
        if not self.is_loaded:
            raise ValueError("This model is not initialized. Call nxd_model.initialize(weights, start_rank_tensor).")
        if shapes not in self.names:
            raise ValueError("Input shape " + shapes + " not found in input_shape_map: " + str(self.names.keys()))
        return torch.ops.neuron.forward(inputs, self.neff, self.names[shapes], False)

    @torch.jit.export
    def initialize(self, checkpoint: List[Dict[str, torch.Tensor]], start_rank_tensor: torch.Tensor) -> None:  # noqa: UP006
        """Take the weights of each rank, and load them on the cores."""
        if int(start_rank_tensor.item()) != 0:
            raise ValueError("Rank " + str(start_rank_tensor.item()) + " cannot be the first: all ranks run here.")
        torch.ops.neuron.load_ranks(self.neff, checkpoint)
        self.weights = checkpoint
        self.is_loaded = True

    @torch.jit.export
    def initialize_with_saved_weights(self, start_rank_tensor: torch.Tensor) -> None:
        """Load the weights that the file has."""
        self.initialize(self.weights, start_rank_tensor)

    @torch.jit.export
    def read_from_neuron_buffer(self, buffer_key: str, rank: int) -> torch.Tensor:
        """A state of a rank."""
        return torch.ops.neuron.read_state(self.neff, buffer_key, rank)

    @torch.jit.export
    def write_to_neuron_buffer(self, tensor: torch.Tensor, buffer_key: str, rank: int) -> None:
        """Change a state of a rank."""
        torch.ops.neuron.write_state(self.neff, buffer_key, rank, tensor)

    @torch.jit.export
    def close(self) -> None:
        """Give cores and HBM back; the model cannot run afterwards."""
        torch.ops.neuron.close(self.neff)

    @torch.jit.export
    def __getstate__(self) -> Tuple[torch.Tensor, Dict[str, int], List[Dict[str, torch.Tensor]], bool]:  # noqa: UP006
        """Saved state."""
        return (self.neff, self.names, self.weights, self.training)

    @torch.jit.export
    def __setstate__(self, state: Tuple[torch.Tensor, Dict[str, int], List[Dict[str, torch.Tensor]], bool]) -> None:  # noqa: UP006
        """Check the saved program; `initialize` loads it."""
        none: List[torch.Tensor] = []  # noqa: UP006
        self.neff = torch.ops.neuron.load(state[0], none, torch.ops.neuron.weights_hash(none), True, False)
        self.names = state[1]
        self.weights = state[2]
        self.is_loaded = False
        self.training = state[3]


class Executor(nn.Module):
    """Finds the entry by the shapes of its inputs, and packs its results; `make_executor` defines the call."""

    def __init__(self, nxd_model: torch.jit.ScriptModule, document: str) -> None:
        super().__init__()
        self.nxd_model = nxd_model
        self.document = document

    @torch.jit.export
    def describe(self) -> str:
        """The facts that were stored with it, as JSON."""
        return self.document


@dataclasses.dataclass(frozen=True)
class Call:
    """How an entry is called."""

    shapes: Tuple[Tuple[str, Tuple[int, ...]], ...]  # noqa: UP006
    """Parameters, in order, with the shape of each."""
    result: Any
    """The nesting of its results, with the position of each tensor."""

    def key(self) -> str:
        """Text by which it is found."""
        return ", ".join(f"{name}: {list(shape)}" for name, shape in self.shapes)


def make_executor(neff: torch.Tensor, calls: Sequence[Call], document: str) -> torch.jit.ScriptModule:
    """Return a ScriptModule of a program.

    Args:
        neff: its bytes, with a session.
        calls: of each entry, in their order.
        document: facts to store.
    """
    numbers = {call.key(): number for number, call in reversed(list(enumerate(calls)))}
    own = type(Executor.__name__, (Executor,), {})  # TorchScript gives a class one forward
    module = tracing.scripted(own(tracing.scripted(RankedProgram(neff, numbers)), document))
    parameters = list(dict.fromkeys(name for call in calls for name, _ in call.shapes))
    arguments = ", ".join(f"{name}: Optional[Tensor] = None" for name in parameters)
    lines = ["inputs: List[Tensor] = []", "shapes: List[str] = []"]
    for name in parameters:
        lines += [f"if {name} is not None:", f"    inputs.append({name})"]
        lines += [f"    shapes.append('{name}: ' + str({name}.size()))"]
    lines += ["key = ', '.join(shapes)", "flat = self.nxd_model(inputs, key)", "result: Any = flat"]
    for call in calls:
        body: list[str] = []
        expression = tracing.expression_of(call.result, body, (f"part{index}" for index in itertools.count()))
        lines += [f"if key == {call.key()!r}:", *(f"    {line}" for line in body), f"    result = {expression}"]
    text = "\n    ".join([*lines, "return result"])
    module.define(f"def forward(self, {arguments}) -> Any:\n    {text}\n")
    return module
