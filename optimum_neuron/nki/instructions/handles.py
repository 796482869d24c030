"""Handles of instructions, which functions of `nki.isa` return: one makes an instruction wait for others.

The order of a simulated kernel is that of its Python, so results do not change: `nki.analyze` follows the waits.
"""

from __future__ import annotations

from ..core import Core, Rule, require


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
            is_other = isinstance(producer, NkiInstruction) and producer is not self and producer._core is self._core
            require(is_other, Rule.DEPENDENCY, of=self, producer=producer)
            is_around = self._loops[: len(producer._loops)] == producer._loops
            require(is_around, Rule.DEPENDENCY_IN_LOOP, of=self, producer=producer)
            if self._core.stream is not None:
                self._core.waits.append((producer._number, self._number))
        return self
