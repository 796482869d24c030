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
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    unused: tuple[int, ...]
    """Values that no later step needs: their memory serves the next ones while it is in the CPU's caches."""
    num_abreast: int = 1
    """Steps from this one on that may run at the same time, such as those of several cores."""

    def run(self, values: Values) -> None:
        """Call the function: read arguments from `values`, write results to it."""
        results = self.function([values[slot] for slot in self.arguments])
        for slot, result in zip(self.results, results, strict=True):
            values[slot] = result
        for slot in self.unused:
            values[slot] = None


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
    """Some steps of compiled functions, with the tensors that are the same in every call."""

    def __init__(self, steps: Sequence[Step], bound: Values, states: Sequence[int], inputs: Sequence[int]) -> None:
        """Number the values of the steps.

        Args:
            bound: weights and constants by slot, None for all other values.
        """
        self._functions: list[CompiledFunction] = [step.function for step in steps]
        made = {slot for step in steps for slot in step.results}
        dropped = {slot for step in steps for slot in step.unused}
        taken = dict.fromkeys(slot for step in steps for slot in step.arguments if slot not in made)
        fixed = [slot for slot in taken if bound[slot] is not None]
        self._states = [(index, slot) for index, slot in enumerate(states) if slot in taken]
        self._inputs = [slot for slot in inputs if slot in taken]
        held = {*self._inputs, *(slot for _, slot in self._states)}
        self._entering = [slot for slot in taken if bound[slot] is None and slot not in held]
        self._leaving = [slot for slot in made if slot not in dropped]
        self._dropped = [slot for slot in self._entering if slot in dropped]
        # The array has borrowed values first, then those that belong to a call and are released after it.
        order = [*fixed, *(slot for _, slot in self._states), *self._inputs, *self._entering, *made]
        index = {slot: number for number, slot in enumerate(order)}
        self._first_state, self._first_own = len(fixed), len(fixed) + len(held)
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

    def bind(self, values: Values, state: Sequence[torch.Tensor]) -> BoundSegment:
        """Return the calls with these inputs, which are in `values`, and this state."""
        return BoundSegment(self, values, state)


class BoundSegment:
    """Calls of a segment with the same inputs and the same state, whose contents may change between them."""

    def __init__(self, segment: Segment, values: Values, state: Sequence[torch.Tensor]) -> None:
        self._segment, self._array = segment, segment._array_type()
        ctypes.memmove(self._array, segment._bound.array, ctypes.sizeof(segment._bound.array))
        self._state = state if isinstance(state, State) else State(state)  # its handles are used until the end
        for number, (index, _) in enumerate(segment._states, segment._first_state):
            self._array[number] = self._state.handles.array[index]
        self._inputs = Handles([tensor for slot in segment._inputs if (tensor := values[slot]) is not None])
        for number, handle in enumerate(self._inputs.array, segment._first_own - len(segment._inputs)):
            self._array[number] = handle
        own = ctypes.byref(self._array, segment._first_own * ctypes.sizeof(Handle))
        self._own = ctypes.cast(own, ctypes.POINTER(Handle))

    def run(self, values: Values) -> None:
        """Run the steps: read values of other steps from `values`, write results to it."""
        segment, array = self._segment, self._array
        if segment._entering:
            entering = handles_of([tensor for slot in segment._entering if (tensor := values[slot]) is not None])
            for number, handle in enumerate(entering, segment._first_own):
                array[number] = handle
            for slot in segment._dropped:
                values[slot] = None
        library = segment._functions[0].library
        try:
            failed = library.run_steps(segment._steps, len(segment._steps), array)
            if failed:
                raise segment._functions[failed - 1].error(library.last_error())
            leaving = tensors_of([array[number] for number in segment._leaving_at])
            for number in segment._leaving_at:
                array[number] = None
        except BaseException:
            self._release()
            raise
        if segment._entering:  # of the values of a call that did not fail, no others are left
            self._release()
        for slot, tensor in zip(segment._leaving, leaving, strict=True):
            values[slot] = tensor

    def _release(self) -> None:
        self._segment._functions[0].library.release(self._own, len(self._array) - self._segment._first_own)
