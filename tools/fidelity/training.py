"""Training: published sequences per second as a share of the peak; the median is the one constant of the estimate.

Models of a step by operator, pipeline bubbles, and exchanges of gradients did no better on other families than this
constant.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cases import Row, model_config, sizes_of

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.simulator import parse_sdk
from optimum_neuron.simulator.work import step_flops

FIRST_SDK = (2, 18)
"""First release whose training an estimate is of: 2.16 made that of language models "up to 15%" faster, and 2.18
made it faster again (release notes of the Neuron SDK)."""


def published_mfu(row: Row) -> float:
    """Share of the 16-bit peak of a row's instances."""
    config, sequence_length = model_config(row.model), row.sequence_length or 128
    if row.model.startswith("bert"):
        num_parameters, num_layers, hidden = 303_000_000, config.num_hidden_layers, config.hidden_size
    else:
        sizes = sizes_of(row.model)
        num_parameters = sizes.num_parameters - sizes.hidden * sizes.vocab
        num_layers, hidden = sizes.num_layers, sizes.hidden
    flops = step_flops(
        num_parameters=num_parameters,
        num_layers=num_layers,
        hidden=hidden,
        tokens=sequence_length,
        sequence_length=sequence_length,
    )
    instance = INSTANCES[row.instance]
    peak = (row.nodes or 1) * instance.num_chips * instance.chip.tflops["bfloat16"] * 1e12
    return row.value * flops / peak


def training_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows of training in 16-bit arithmetic."""
    return [row for row in rows if row.category == "training" and row.arithmetic != "FP32"]


def is_current(row: Row) -> bool:
    """Whether a row is of a release that estimates are of."""
    return parse_sdk(row.sdk) >= FIRST_SDK


def training_mfu(rows: Iterable[Row]) -> float:
    """Median over the current rows of language models with several kinds of parallelism that are not held out."""
    own = [row for row in training_rows(rows) if is_current(row) and not row.model.startswith("bert") and not row.use]
    return float(np.median([published_mfu(row) for row in own]))


def training_errors(rows: Iterable[Row]) -> list[float]:
    """Relative errors of sequences per second of current rows, each predicted without its family."""
    rows = [row for row in training_rows(rows) if is_current(row)]
    usual = {family: training_mfu(row for row in rows if row.family != family) for family in {r.family for r in rows}}
    return [usual[row.family] / published_mfu(row) - 1 for row in rows]
