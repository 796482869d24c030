"""Find out what a transformers model caches, by running one token through it on fake tensors.

Configurations name heads and widths in many ways; the tensors that reach the cache do not.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import CacheLayerMixin

from ...compiler import capture_error, fake_parameters, quiet
from ...errors import CaptureError
from ...upstream.torch import FakeTensorMode
from ..common import POSITION_OFFSET, LayerState, convolution_state, key_value_state, recurrent_state
from .cache import StateCache, UncountedLayer
from .model import GenericDecoder

if TYPE_CHECKING:
    from torch import nn


class _Recorder(UncountedLayer):
    """Records the shapes of keys and values."""

    state: LayerState = ()

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.state = key_value_state(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        return key_states, value_states

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        if not self.state or self.state[0].sizes[0] != 1:
            raise NotImplementedError("an indexer beside several heads of keys and values is not supported")
        key, value = self.state
        assert key.sizes[1] is not None and value.sizes[2] is not None, "widths are numbers"
        self.state = key_value_state(1, key.sizes[1], value.sizes[2] + indexer_key_states.shape[2])
        return indexer_key_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_max_length(self) -> int:
        return -1


class _RecorderCache(StateCache):
    """Records what layers keep of every kind."""

    def __init__(self, num_layers: int) -> None:
        self.recorders = [_Recorder() for _ in range(num_layers)]
        self.others: list[LayerState] = [()] * num_layers
        layers: list[CacheLayerMixin] = [*self.recorders]
        super().__init__(layers, {}, num_new_B=torch.ones(1, dtype=torch.int64), starts_empty=True)

    @property
    def states(self) -> list[LayerState]:
        """Tensors of each layer."""
        return [recorder.state + other for recorder, other in zip(self.recorders, self.others, strict=True)]

    def update_conv_state(self, conv_states, layer_idx, state_idx=0, **kwargs):  # type: ignore[no-untyped-def]
        taps = kwargs.get("conv_kernel_size") or conv_states.shape[-1]
        self.others[layer_idx] += convolution_state(conv_states.shape[1], taps - 1, state_idx)
        return torch.nn.functional.pad(conv_states, (taps - 1, 0))

    def update_recurrent_state(self, recurrent_states, layer_idx, state_idx=0, **kwargs):  # type: ignore[no-untyped-def]
        self.require_scan(layer_idx, state_idx)
        self.others[layer_idx] += recurrent_state(tuple(recurrent_states.shape[1:]), state_idx)
        return recurrent_states


def probe_states(decoder: GenericDecoder) -> list[LayerState]:
    """Return what every layer keeps between calls."""
    parameters = inspect.signature(decoder.model.forward).parameters
    # Code that comes with a checkpoint may pass keywords on; transformers' own models name the cache.
    passes_on = not type(decoder.model).__module__.startswith("transformers.") and any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    if decoder.cache_name not in parameters and not passes_on:
        raise _not_a_decoder(decoder.model, f"its forward takes no {decoder.cache_name}")
    cache = _RecorderCache(decoder.text_config.num_hidden_layers)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_parameters(decoder, mode), mode, torch.no_grad(), quiet():
        ids = torch.zeros(1, 1, dtype=torch.int64)
        model: Any = decoder.model
        try:
            decoder.run(ids, 1, cache, input_ids=ids)
        except RuntimeError as error:
            if isinstance(error, NotImplementedError):
                raise _not_a_decoder(model, " ".join(str(error).split())) from error
            raise capture_error(model, "one token", error) from error
        except (TypeError, AttributeError, LookupError, ValueError, AssertionError) as error:
            raise _not_a_decoder(model, f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    if not any(cache.states):
        raise _not_a_decoder(model, "it keeps no state between calls")
    states = cache.states
    if decoder.axes:
        states[0] += (POSITION_OFFSET,)
    return states


def _not_a_decoder(model: nn.Module, problem: str) -> CaptureError:
    name = type(model).__name__
    hint = "Use an architecture with a key and value cache, such as llama, or compile it for another task."
    message = f"{name} cannot generate text with a state on the device: {problem}."
    return CaptureError(message, hint=hint, model=name, problem=problem)
