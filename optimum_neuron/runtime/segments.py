"""Compiled functions that follow each other in a graph, run by one call into machine code.

Values inside such a segment are handles in an array; only values that enter or leave it are Python objects. Weights are
bound when the segment is made. It does not depend on graphs: `executor.py` numbers the values.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..compiler.lower import CompiledFunction, Handle, Handles, handles_of, tensors_of

if TYPE_CHECKING:
    import torch

    from .hbm import Charge

Values = list["torch.Tensor | None"]
"""Values of a graph by slot."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of a host function."""

    function: Any
    """Function that is called."""
    arguments: tuple[int, ...]
    """Slots of its arguments."""
    results: tuple[int, ...]
    """Slots of its results."""
    unused: tuple[int, ...]
    """Values that no later step needs: their memory serves the next ones while it is in the CPU's caches."""
    num_abreast: int = 1
    """Steps from this one on that may run at the same time, such as those of several cores."""


class State(list["torch.Tensor"]):
    """Tensors that live on the device between calls; a sequence keeps its state until it ends."""

    executor: Any = None
    """Runs the calls of the sequence that has this state; None outside of one."""
    charges: Sequence[Charge] = ()
    """The HBM that the tensors take, on each core."""
    _handles: Handles | None = None

    @property
    def handles(self) -> Handles:
        """The tensors as machine code takes them."""
        if self._handles is None:
            self._handles = Handles(self)
        return self._handles


class _StepRecord(ctypes.Structure):
    """`Step` of `compiler/lower/host.h`."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("last_error", ctypes.c_void_p),
        ("slots", ctypes.POINTER(ctypes.c_int32)),
        ("num_arguments", ctypes.c_int32),
        ("num_results", ctypes.c_int32),
        ("num_unused", ctypes.c_int32),
        ("num_abreast", ctypes.c_int32),
    )


class Segment:
    """Some steps of compiled functions, with the tensors that are the same in every call and the slots of the state."""

    def __init__(self, steps: Sequence[Step], bound: Values, states: Sequence[int]) -> None:
        self._functions: list[CompiledFunction] = [step.function for step in steps]
        made = {slot for step in steps for slot in step.results}
        dropped = {slot for step in steps for slot in step.unused}
        taken = dict.fromkeys(slot for step in steps for slot in step.arguments if slot not in made)
        fixed = [slot for slot in taken if bound[slot] is not None]
        self._states = [(index, slot) for index, slot in enumerate(states) if slot in taken]
        held = {slot for _, slot in self._states}
        self._entering = [slot for slot in taken if bound[slot] is None and slot not in held]
        self._leaving = [slot for slot in made if slot not in dropped]
        self._dropped = [slot for slot in self._entering if slot in dropped]
        # The array has borrowed values first, then those that belong to a call and are released after it.
        order = [*fixed, *(slot for _, slot in self._states), *self._entering, *made]
        index = {slot: number for number, slot in enumerate(order)}
        self._first_state, self._first_own = len(fixed), len(fixed) + len(self._states)
        self._bound = Handles([tensor for slot in fixed if (tensor := bound[slot]) is not None])
        self._array_type = Handle * len(order)
        self._leaving_at = [index[slot] for slot in self._leaving]
        self._slots: list[Any] = []
        self._steps = (_StepRecord * len(steps))(*(self._record(step, index, made) for step in steps))

    def _record(self, step: Step, index: dict[int, int], made: set[int]) -> _StepRecord:
        unused = [slot for slot in step.unused if slot in made]
        numbers = [index[slot] for slot in (*step.arguments, *step.results, *unused)]
        slots = (ctypes.c_int32 * len(numbers))(*numbers)
        self._slots.append(slots)
        num_abreast = step.num_abreast if step.function.any_num_threads else 1
        counts = (len(step.arguments), len(step.results), len(unused), num_abreast)
        addresses = (step.function.address, step.function.address_of_error)
        return _StepRecord(*addresses, ctypes.cast(slots, ctypes.POINTER(ctypes.c_int32)), *counts)

    def run(self, values: Values, state: Sequence[torch.Tensor]) -> None:
        """Run the steps: read inputs from `values`, write results to it.

        Raises:
            LoweringError: an operator of torch failed in one of them.
        """
        array, first = self._array_type(), self._first_own
        ctypes.memmove(array, self._bound.array, ctypes.sizeof(self._bound.array))
        if self._states:
            held = state if isinstance(state, State) else State(state)  # its handles are used until the end
            for number, (index, _) in enumerate(self._states, self._first_state):
                array[number] = held.handles.array[index]
        for number, handle in enumerate(handles_of([values[slot] for slot in self._entering]), first):
            array[number] = handle
        for slot in self._dropped:
            values[slot] = None
        library = self._functions[0].library
        try:
            failed = library.run_steps(self._steps, len(self._steps), array)
            if failed:
                raise self._functions[failed - 1].error(library.last_error())
            leaving = tensors_of(array[number] for number in self._leaving_at)
            for number in self._leaving_at:
                array[number] = None
            for slot, tensor in zip(self._leaving, leaving, strict=True):
                values[slot] = tensor
        finally:
            handles = ctypes.cast(ctypes.byref(array, first * ctypes.sizeof(Handle)), ctypes.POINTER(Handle))
            library.release(handles, len(array) - first)
