"""`estimate_grid`: the same request at other batch sizes and compiled lengths, on the machine of an estimate.

rows = estimate_grid("meta-llama/Llama-3.1-8B", instance="inf2.48xlarge")
rows[0]["batch_size"], rows[0]["sequence_length"], rows[0]["tpot_ms"]["value"]
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DeviceMemoryError, ModelError
from ..options.option import source_options, takes_options
from .entry import estimate_request, is_compiled, source_of
from .request import EstimateRequest, request_of
from .result import Estimate

BATCHES = (1, 4, 16, 64)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
"""Sizes that are tried. A size that does not fit a core or the model is left out."""
TIMES = ("ttft_ms", "tpot_ms", "latency_ms", "tokens_per_s", "usd_per_1m")


@takes_options(EstimateRequest)
def estimate_grid(model: Any, of: Estimate | None = None, **options: Any) -> list[dict[str, Any]]:
    """Estimate a decoder over batch sizes and compiled lengths, where a prompt has half of the length.

    Args:
        model: as for `estimate`.
        of: estimate of the request, whose cores are kept; None for those that each size takes.
        **options: as for `estimate`; lengths and the batch size are replaced.

    Returns:
        Plain data for each pair that fits: `batch_size`, `sequence_length`, and the quantities in `TIMES` with
        intervals. Empty for models without output tokens, and for compiled models, whose sizes are fixed. Simulated.
    """
    request = request_of(options)
    if isinstance(model, (str, Path)) and is_compiled(Path(model)):
        return []
    if of is not None and "tpot_ms" not in of.quantities:
        return []
    cores: dict[str, Any] = (
        {} if of is None else {"tensor_parallel_size": of.num_cores.value, "instance": of.instance.value}
    )
    sizes: dict[str, Any] = dict.fromkeys(
        ("input_length", "output_length", "concurrency", "requests_per_s", "num_clients", "num_requests")
    )
    rows = []
    longest = _num_positions(model, options)
    for batch_size in BATCHES:
        for length in (length for length in LENGTHS if length <= longest):
            changed = dataclasses.replace(request, batch_size=batch_size, sequence_length=length, **sizes, **cores)
            try:
                one = estimate_request(model, changed)
            except (ConfigError, DeviceMemoryError, ModelError):
                continue  # larger than the model or the core
            data = one.to_dict()
            if data["tpot_ms"] is not None:
                rows.append(
                    {"batch_size": batch_size, "sequence_length": length, **{name: data[name] for name in TIMES}}
                )
    return rows


def _num_positions(model: Any, options: dict[str, Any]) -> int:
    """Return the tokens that a decoder has positions for; 0 for a model that is none."""
    from ..kinds.decoder import num_positions

    try:
        return num_positions(source_of(model, source_options(options)).config, LENGTHS[-1])
    except (ConfigError, ModelError):
        return 0
