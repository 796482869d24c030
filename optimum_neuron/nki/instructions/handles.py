"""Handles of instructions, which functions of `nki.isa` return: one makes an instruction wait for others.

The order of a simulated kernel is that of its Python, so results do not change: `nki.analyze` follows the waits.
"""

from __future__ import annotations

from ..core import Core, refuse


class NkiInstruction:
    """One executed instruction."""

    __slots__ = ("_core", "_loops", "_number", "_opcode")

    def __init__(self, handle: tuple[Core, str]) -> None:
        core, self._opcode = handle
        self._core, self._loops = core, core.loops
        self._number = len(core.stream or ()) - 1

    def __repr__(self) -> str:
        return f"NkiInstruction({self._opcode})"

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Have the instruction wait until others are done, and return it."""
        for producer in producers:
            if not isinstance(producer, NkiInstruction) or producer._core is not self._core or producer is self:
                message = f"{self._opcode} cannot wait for {producer!r}."
                hint = "Pass what functions of nki.isa returned for other instructions of the same core."
                refuse(message, hint=hint, rule="dependency", instruction=self._opcode)
            if self._loops[: len(producer._loops)] != producer._loops:
                message = f"{self._opcode} waits for {producer._opcode} in a loop of the device that it is not in."
                hint = "Wait in the same loop; a wait for an instruction before the loop is possible too."
                refuse(message, hint=hint, rule="dependency", instruction=self._opcode)
            if self._core.stream is not None:
                self._core.waits.append((producer._number, self._number))
        return self
