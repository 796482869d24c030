"""The border between device tensors and compiled host code, as data.

AOTAutograd calls a graph with device tensors and expects device tensors back, while host code takes CPU tensors over
the same bytes. `Border` says which inputs and results are device tensors. It is plain data, so torch's caches store it
with the host code, and `attach` puts it back in front of host code that was loaded. This module does not depend on
graphs or options.

    border = Border(inputs=(True,), results=(True,), shared=(False,), random=False)
    function = attach(host_code, border, calls)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import library
from .calls import Calls

HostFunction = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph as AOTAutograd calls it: one list of inputs, which the callee empties."""

_READ_BY_AOTAUTOGRAD = ("_fx_graph_cache_key", "_fx_graph_cache_debug_lines", "_time_taken_ns", "guards_expr")
"""Attributes of Inductor's result that AOTAutograd's cache stores in its entry."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Border:
    """Which inputs and results of a graph are device tensors."""

    inputs: tuple[bool, ...]
    """For each input, whether it is a device tensor."""
    results: tuple[bool, ...]
    """For each result, whether it is a device tensor."""
    shared: tuple[bool, ...]
    """For each input, whether a result may share its storage."""
    random: bool
    """Whether the graph draws random numbers."""

    complex_inputs: tuple[int, ...] = ()
    """Places of complex inputs, which host code takes as pairs of real numbers."""
    complex_results: tuple[int, ...] = ()
    """Places of complex results, which host code returns as pairs of real numbers."""

    @property
    def has_device_tensors(self) -> bool:
        """Whether any tensor crosses the border."""
        return any(self.inputs) or any(self.results)


def attach(compiled: HostFunction, border: Border, calls: Calls) -> HostFunction:
    """Return host code as a function of device tensors, or unchanged if no device tensor crosses the border."""
    return DeviceFunction(compiled, border, calls) if border.has_device_tensors else compiled


class DeviceFunction:
    """Passes device tensors to host code as CPU tensors, and returns results as device tensors.

    Host code frees an input after its last use, so this class must not hold inputs for longer: activations that a
    forward saved for its backward would stay alive until the end. Only inputs that results may share storage with are
    kept.
    """

    def __init__(self, compiled: HostFunction, border: Border, calls: Calls) -> None:
        self._compiled, self._border, self._calls = compiled, border, calls
        self._boxed_call = True
        for name in _READ_BY_AOTAUTOGRAD:
            if hasattr(compiled, name):
                setattr(self, name, getattr(compiled, name))

    def __call__(self, arguments: list[Any]) -> list[Any]:
        ops, border = torch.ops.neuron_sim, self._border
        tensors = [value for value, ours in zip(arguments, border.inputs, strict=True) if ours]
        index = tensors[0].device.index if tensors else torch.neuron.current_device()
        hosted = ops.alias_cpu_list(tensors)
        hosted.reverse()
        host = [hosted.pop() if ours else value for value, ours in zip(arguments, border.inputs, strict=True)]
        for place in border.complex_inputs:
            host[place] = torch.view_as_real(host[place].resolve_conj())
        # The name is bound again so that the inputs above are freed as soon as host code is done with them.
        tensors = [value for value, shared in zip(arguments, border.shared, strict=True) if shared]
        arguments.clear()
        set_for_device = library.load().neuron_set_for_device
        track, graph = self._calls.on(index)
        before, started_ns = set_for_device(1), track.start()
        try:
            results = list(self._with_generator(host, index) if border.random else self._compiled(host))
        except BaseException:
            track.fail("completed_with_err")
            raise
        finally:
            set_for_device(before)
        track.end(graph, started_ns)
        for place in border.complex_results:
            results[place] = torch.view_as_complex(results[place])
        places = [i for i, ours in enumerate(border.results) if ours and isinstance(results[i], torch.Tensor)]
        for place, tensor in zip(
            places, ops.alias_neuron_list([results[i] for i in places], tensors, index), strict=True
        ):
            results[place] = tensor
        return results

    def _with_generator(self, host: list[Any], index: int) -> Sequence[Any]:
        """Host code draws from the CPU's default generator: lend it the core's, and put its own state back."""
        default = torch.default_generator
        state = default.get_state()
        default.set_state(torch.ops.neuron_sim.engine(index).get_state())
        try:
            return self._compiled(host)
        finally:
            default.set_state(state)
