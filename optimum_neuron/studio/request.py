"""A form of the studio as a configuration: the model, the options of an estimate, and limits of its times.

>>> StudioRequest.from_form({"model": "m", "instance": "inf2.xlarge", "batch_size": "4", "ttft_ms": ""}).command()
'optimum-cli neuron estimate m --instance inf2.xlarge --batch_size 4'
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..options.option import check_known
from ..pages import QUANTITIES, interval, shown

_SIZES = ("batch_size", "sequence_length", "input_length", "output_length", "tensor_parallel_size")
_LIMITS = ("ttft_ms", "tpot_ms")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudioRequest:
    """What a form asks for."""

    model: str
    """Folder or Hub model ID."""
    instance: str | None = None
    """Instance or, for a comparison, family; None for the default, or for all."""
    batch_size: int | None = None
    sequence_length: int | None = None
    input_length: int | None = None
    output_length: int | None = None
    tensor_parallel_size: int | None = None
    ttft_ms: float | None = None
    """Limit of the time to first token."""
    tpot_ms: float | None = None
    """Limit of the time per output token."""

    def __post_init__(self) -> None:
        if not self.model or self.model.startswith("-"):
            message = f"{self.model!r} is not a model." if self.model else "There is no model."
            hint = "Enter a folder or the ID of a model on the Hub."
            raise ConfigError(message, hint=hint, option="model", value=self.model)
        for name in _LIMITS:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                hint = "Enter milliseconds above 0."
                raise ConfigError(f"The limit {name}={value} is not possible.", hint=hint, option=name, value=value)

    @classmethod
    def from_form(cls, form: Mapping[str, object]) -> StudioRequest:
        """Read the fields of a form, which are texts; empty ones are left out.

        Raises:
            ConfigError: a field is unknown, or is not a number where it has to be one.
        """
        fields = [field.name for field in dataclasses.fields(cls)]
        check_known(form, fields, what="the studio")
        given = {name: str(value).strip() for name, value in form.items() if value is not None and str(value).strip()}
        values: dict[str, Any] = {"model": "", **given}
        for name in (*_SIZES, *_LIMITS):
            if name in values:
                values[name] = _number(name, values[name], whole=name in _SIZES)
        return cls(**values)

    def options(self) -> dict[str, Any]:
        """Return the options of an estimate."""
        values = {name: getattr(self, name) for name in ("instance", *_SIZES)}
        return {name: value for name, value in values.items() if value is not None}

    def command(self, *more: str) -> str:
        """Return the command line that shows the same."""
        words = ["optimum-cli", "neuron", "estimate", self.model]
        for name, value in self.options().items():
            words += [f"--{name}", str(value)]
        return shlex.join([*words, *more])

    def verdicts(self, data: Mapping[str, Any]) -> list[dict[str, str]]:
        """Judge the limits against an estimate: kept at the upper end of the interval, uncertain, or missed."""
        results = []
        for name in _LIMITS:
            limit, quantity = getattr(self, name), data[name]
            if limit is None or quantity is None:
                continue
            verdict = "kept" if quantity["high"] <= limit else "missed" if quantity["low"] > limit else "uncertain"
            text = f"{QUANTITIES[name]} of at most {shown(name, limit)}: {verdict}"
            results.append({"verdict": verdict, "text": f"{text} (80 % interval {interval(name, quantity)})"})
        return results


def _number(name: str, text: str, *, whole: bool) -> float:
    try:
        value: float = int(text) if whole else float(text)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"{name}={text!r} is not {kind}.", hint="Enter digits.", option=name, value=text) from None
    if value <= 0:
        raise ConfigError(f"{name}={text} is not above 0.", hint="Enter a larger number.", option=name, value=text)
    return value
