"""Stochastic rounding while a model trains, with a seed for each step, so that a resumed run draws the same.

It knows nothing of how numbers are rounded: that is `device/numerics.py`.
"""

from __future__ import annotations

import contextlib
from typing import Any

from transformers import TrainerCallback


class StochasticRounding(TrainerCallback):
    """From the beginning of each step to its end, what is written to 16-bit floats is rounded up or down at random.

    Operands of matrix products stay as the environment has them.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        """Round to the nearest again; a step that failed has not said that it ended."""
        self._stack.close()

    def on_step_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        from ..device import numerics

        self.close()
        present = numerics.current()
        operand = present.auto_cast_type if present.mode == "emulated" else "none"
        seed = (args.seed << 32) + state.global_step
        self._stack.enter_context(numerics.use("emulated", auto_cast_type=operand, stochastic_rounding=True, seed=seed))

    def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self.close()
