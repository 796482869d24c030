"""Stochastic rounding while a model trains, with a seed for each step, so that a resumed run draws the same.

It does not depend on how numbers are rounded: that is `device/numerics.py`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from transformers import TrainerCallback

from ..base.transformers_types import TrainingArguments
from ..distributed import narrow
from ..errors import ConfigError

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState


class StochasticRounding(TrainerCallback):
    """Rounds writes to 16-bit floats up or down at random, from the beginning of each step to its end.

    Operands of matrix multiplications stay as the environment has them.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        """Round to the nearest again; a step that fails has no end."""
        self._stack.close()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **keywords: object
    ) -> None:
        from ..device import numerics

        self.close()
        present = numerics.current()
        operand = present.auto_cast_type if present.mode == "emulated" else "none"
        seed = (args.seed << 32) + state.global_step
        self._stack.enter_context(numerics.use("emulated", auto_cast_type=operand, stochastic_rounding=True, seed=seed))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **keywords: object
    ) -> None:
        self.close()


def require_narrow(model: torch.nn.Module, arguments: TrainingArguments) -> None:
    """Reject stochastic rounding of a model without 16-bit floats."""
    if not arguments.bf16 and not narrow(model.parameters()):
        message = "stochastic_rounding_enabled rounds 16-bit floats only, but the model is in float32."
        hint = "Pass bf16=True, or load the model with dtype=torch.bfloat16."
        raise ConfigError(message, hint=hint, option="stochastic_rounding_enabled")
