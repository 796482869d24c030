"""A transformers model as a module of flat tensors that can be captured, and what its results are called.

Parameters keep their names behind `MODEL`. It knows nothing of buckets or targets.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...base.core import TensorSpec
from ...base.transformers_types import PreTrainedModel
from ...compiler import Captured, capture, fake_parameters, quiet
from ...errors import CaptureError
from ...models import forgetting
from ..scenario import flatten
from .patches import Patch

MODEL = "model"
"""Attribute of `Forward` that holds the model: the first part of a program's weight names."""


def forward_arguments(model: nn.Module) -> list[str]:
    """Names of the arguments that a model takes; those of its base, where it only hands arguments on."""
    for kind in type(model).__mro__:
        names = list(inspect.signature(kind.__dict__["forward"]).parameters) if "forward" in kind.__dict__ else []
        if not set(names) <= {"self", "args", "kwargs"}:
            return names
    return list(inspect.signature(model.forward).parameters)


def call_options(model: nn.Module, *, attentions: bool, hidden_states: bool) -> dict[str, Any]:
    """Arguments that say what a model returns: a result class, and no cache."""
    taken = forward_arguments(model)
    options: dict[str, Any] = {"return_dict": True}
    options |= {"use_cache": False} if "use_cache" in taken else {}
    options |= {"output_attentions": True} if attentions else {}
    return options | ({"output_hidden_states": True} if hidden_states else {})


def with_attentions(model: PreTrainedModel) -> Any:
    """A copy that computes attention weights, which fused attention does not."""
    model = copy.deepcopy(model)
    model.set_attn_implementation("eager")
    return model


@contextlib.contextmanager
def on_fakes(model: nn.Module) -> Iterator[None]:
    """Inside the block a model, and what is called with it, has shapes and computes nothing."""
    from ...upstream.torch import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_parameters(model, mode), torch.no_grad(), quiet(), mode:
        yield


class Forward(nn.Module):
    """Calls a model with positional tensors and returns flat results, floating ones in float32."""

    def __init__(
        self, model: nn.Module, names: Sequence[str], options: Mapping[str, Any], patches: Sequence[Patch]
    ) -> None:
        super().__init__()
        self.model = model
        self._names, self._options, self._patches = tuple(names), dict(options), tuple(patches)
        self.result_names: tuple[str, ...] = ()
        self.result_type = ""

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Results of one call; their names are in `result_names` afterwards."""
        arguments: dict[str, Any] = dict(zip(self._names, tensors, strict=True))
        with contextlib.ExitStack() as stack:
            stack.enter_context(forgetting(self.model))  # it would be what was traced
            for patch in self._patches:
                stack.enter_context(patch.around(self.model, arguments))
            output = self.model(**arguments, **self._options)
        results = flatten(output)
        self.result_names = tuple(results)
        self.result_type = f"{type(output).__module__}.{type(output).__qualname__}"
        return [tensor.float() if tensor.is_floating_point() else tensor for tensor in results.values()]

    def measure(self, inputs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        """Shapes of the results; call it within `on_fakes`, so that nothing is computed."""
        tensors = self(*(torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in inputs.values()))
        return {name: tuple(map(int, tensor.shape)) for name, tensor in zip(self.result_names, tensors, strict=True)}

    def capture(self, name: str, sizes: Mapping[str, int], inputs: Mapping[str, TensorSpec], shorten: bool) -> Captured:
        """Trace as a graph of the given name, see `compiler.capture`."""
        whole = self.result_names
        captured = capture(self, name=name, sizes=sizes, inputs=inputs, outputs=(), shorten=shorten)
        if self.result_names != whole:
            self.result_names = whole
            raise CaptureError("its results depend on the number of layers")
        return dataclasses.replace(captured, outputs=whole)
