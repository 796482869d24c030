"""Shapes of toy models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from optimum_neuron.errors import ConfigError
from optimum_neuron.options.configuration import CompileConfig
from optimum_neuron.options.option import OPEN, option
from optimum_neuron.options.sizes import count_errors

TASK = "two-step-encoding"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ToyConfig(CompileConfig):
    """Shapes of a toy model."""

    group = "toy models"
    sizes_of_model = ("num_words",)

    task: str = TASK
    num_words: int = option(OPEN, help="words of a text", is_input_size=True)

    @property
    def axes(self) -> tuple[str, ...]:
        return ("num_words",)

    def _problems(self) -> Iterator[ConfigError]:
        yield from count_errors(self, ("num_words",), optional=True)
        yield from super()._problems()
