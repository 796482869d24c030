"""Distance of a tensor from its reference, and its limit: error statistics, tolerances, and records of what passed.

    record = COMPARISONS.find({"neff": ..., "atol": None})

It imports no torch by itself, for `neuron cache`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files.records import Records, hash_of_sources, installed_versions
from ...options.configuration import CompileConfig
from ...weights import parse_schemes

if TYPE_CHECKING:
    import torch

UNIT_ROUNDOFF = {
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "bf16": 2.0**-8,
    "bfloat16": 2.0**-8,
    "fp16": 2.0**-11,
    "float16": 2.0**-11,
    "fp8_e4m3": 2.0**-4,
}
"""Largest relative rounding error of each arithmetic (Higham 2002, table 2.1; FP8: Micikevicius 2022, table 1)."""

TOLERANCE_ROUNDOFFS = 8
"""Tolerance in roundoffs of the largest logit: 3 were measured after 30 layers of SmolLM2."""

FLOAT32_TOLERANCE = 1e-3
"""Absolute tolerance where nothing is rounded below float32, as in Optimum's exporters."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputError:
    """Differences of one result from its reference."""

    output: str
    """Scenario and result."""
    max_abs_error: float
    mean_abs_error: float
    sqnr_db: float
    """Power of the reference over power of the difference, in decibels."""
    top1_agreement: float
    """Share of positions whose most likely token is the same."""
    tolerance: float
    """Largest absolute difference that passes; see `allow_rounding` for tokens whose results rounding decides."""
    ties: int = 0
    """Nearly tied experts that the reference model chose the other way for it, see `ties.py`."""
    tie_margin: float = 0.0
    """Largest difference between values of such experts, over what rounding changes values of the router at most."""

    @property
    def ok(self) -> bool:
        """Whether the output passes; a NaN does not."""
        return self.max_abs_error <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self) | {"ok": self.ok}

    def to_json(self) -> dict[str, Any]:
        """The same for JSON, which has no infinity: the ratio of equal tensors is the text "inf"."""
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.to_dict().items()
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> OutputError:
        """Rebuild from plain data, in which infinities may be text; fields with a default are newer than some files."""
        kinds = {"output": str, "ties": int}
        names = [
            field.name
            for field in dataclasses.fields(cls)
            if field.name in data or field.default is dataclasses.MISSING
        ]
        return cls(**{name: kinds.get(name, float)(data[name]) for name in names})


def compare(output: str, actual: torch.Tensor, expected: torch.Tensor, *, tolerance: float) -> OutputError:
    """Return the statistics of the difference between two tensors, for example logits [..., V]."""
    import torch

    difference = (actual.double() - expected.double()).abs()
    noise, signal = difference.pow(2).sum().item(), expected.double().pow(2).sum().item()
    agreement = (actual.argmax(-1) == expected.argmax(-1)).to(torch.float64).mean().item()
    if noise in (0, math.inf):
        sqnr_db = math.inf if noise == 0 else -math.inf
    else:
        sqnr_db = 10 * math.log10(max(signal, 1e-300) / noise)
    return OutputError(
        output=output,
        max_abs_error=difference.max().item(),
        mean_abs_error=difference.mean().item(),
        sqnr_db=sqnr_db,
        top1_agreement=agreement,
        tolerance=tolerance,
    )


def allow_rounding(error: OutputError, rounded: OutputError) -> OutputError:
    """Return an error with a larger tolerance, if rounding alone makes one of that size.

    Args:
        error: of a result of the compiled model that does not pass.
        rounded: of the reference model's result in the dtype of the compiled model. Where rounding decides the result
            of a token, the largest error may be twice this one; the noise of all tokens may be twice as strong.
    """
    largest = 2 * rounded.max_abs_error
    is_rounding = error.max_abs_error <= largest and error.sqnr_db >= rounded.sqnr_db - 10 * math.log10(2)
    return dataclasses.replace(error, tolerance=largest) if is_rounding and math.isfinite(largest) else error


def allow_chaos(
    errors: Sequence[OutputError], rounded: Sequence[OutputError], powers: Sequence[float]
) -> list[OutputError]:
    """Return errors with a larger tolerance, if rounding makes as large ones in some results or others.

    Args:
        errors: of the results of the compiled model.
        rounded: of the same results of the reference model in the dtype of the compiled model.
        powers: sums of the squares of each result of the reference model.
    """
    limit = allow_rounding(_joined(errors, powers), _joined(rounded, powers)).tolerance
    return [
        error if error.ok else dataclasses.replace(error, tolerance=max(limit, error.tolerance)) for error in errors
    ]


def _joined(errors: Sequence[OutputError], powers: Sequence[float]) -> OutputError:
    """Largest error and signal-to-noise ratio of all results; no error passes."""
    noise = sum(power / 10 ** (error.sqnr_db / 10) for error, power in zip(errors, powers, strict=True))
    return OutputError(
        output="all results",
        max_abs_error=max(error.max_abs_error for error in errors),
        mean_abs_error=0.0,
        sqnr_db=10 * math.log10(max(sum(powers), 1e-300) / noise) if 0 < noise < math.inf else -math.inf,
        top1_agreement=0.0,
        tolerance=0.0,
    )


def rounds_to_8_bits(config: CompileConfig) -> bool:
    """Return whether a model rounds to 8 bits while it runs: keys and values, or what layers multiply.

    A value in the middle between two numbers then becomes one of them here, and the other one there.
    """
    is_dynamic = config.quantization is not None and parse_schemes(config.quantization)[0].is_dynamic
    return is_dynamic or config.kv_cache_dtype != "auto"


def rounding_dtype(config: CompileConfig) -> str:
    """Return the dtype whose rounding errors results may have: also of float32, where rounding to 8 bits adds to it."""
    return "bfloat16" if config.torch_dtype == "float32" and rounds_to_8_bits(config) else config.torch_dtype


def default_tolerance(config: CompileConfig, largest: float) -> float:
    """Return the absolute tolerance of a result whose largest value is given, under the configuration's arithmetic."""
    narrow = config.auto_cast_type if config.auto_cast != "none" else rounding_dtype(config)
    if narrow == "float32":
        return FLOAT32_TOLERANCE
    return TOLERANCE_ROUNDOFFS * UNIT_ROUNDOFF[narrow] * largest


_LIBRARIES = ("torch", "transformers", "diffusers", "compressed_tensors", "gguf")
"""Their models and weights are what ours are compared with."""


@functools.cache
def _versions() -> dict[str, str]:
    package = hash_of_sources(Path(__file__).parents[2], ["."], (".py", ".h", ".cpp"))
    return {"package": package, **installed_versions(*_LIBRARIES)}


COMPARISONS = Records(name="validated", versions=lambda: _versions())
"""Records of comparisons that passed, by everything that decides one besides the model."""
