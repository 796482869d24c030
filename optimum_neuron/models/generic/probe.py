"""Find out what a transformers model caches, by running one token through it on fake tensors.

Configurations name heads and widths in many ways; the tensors that reach the cache do not.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.cache_utils import Cache

from ...compiler import capture_error, fake_parameters, quiet
from ...errors import CaptureError
from ..common import StateShape
from .cache import UncountedLayer
from .model import GenericDecoder


class _Recorder(UncountedLayer):
    """Records the shapes of keys and values."""

    shape: StateShape | None = None

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.shape = StateShape(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        return key_states, value_states

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        if self.shape is None or self.shape.num_heads != 1:
            raise NotImplementedError("an indexer beside several heads of keys and values is not supported")
        width = self.shape.value_width + indexer_key_states.shape[2]
        self.shape = self.shape._replace(value_width=width)
        return indexer_key_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_max_length(self) -> int:
        return -1


def probe_states(decoder: GenericDecoder) -> list[StateShape]:
    """Return the shape of every layer's cache; of the last cache where a layer has none.

    Raises:
        CaptureError: the model's code depends on tensor values, cannot run like that, or keeps no keys and values.
    """
    parameters = inspect.signature(decoder.model.forward).parameters
    # Code that comes with a checkpoint may pass keywords on; transformers' own models name the cache.
    passes_on = not type(decoder.model).__module__.startswith("transformers.") and any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    if "past_key_values" not in parameters and not passes_on:
        raise _not_a_decoder(decoder.model, "its forward takes no past_key_values")
    recorders = [_Recorder() for _ in range(decoder.text_config.num_hidden_layers)]
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_parameters(decoder, mode), mode, torch.no_grad(), quiet():
        ids = torch.zeros(1, 1, dtype=torch.int64)
        model: Any = decoder.model
        try:
            decoder.run(ids, 1, Cache(layers=recorders), input_ids=ids)
        except RuntimeError as error:
            raise capture_error(model, "one token", error) from error
        except (TypeError, AttributeError, LookupError, ValueError, NotImplementedError, AssertionError) as error:
            raise _not_a_decoder(model, f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    shapes = [recorder.shape for recorder in recorders if recorder.shape is not None]
    if not shapes:
        raise _not_a_decoder(model, "it wrote no keys and values")
    return [recorder.shape or shapes[-1] for recorder in recorders]


def _not_a_decoder(model: Any, problem: str) -> CaptureError:
    name = type(model).__name__
    hint = "Use an architecture with such a cache, such as llama, or compile it for another task."
    message = f"{name} cannot generate text with a KV cache: {problem}."
    return CaptureError(message, hint=hint, model=name, problem=problem)
