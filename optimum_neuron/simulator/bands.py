"""Which interval an estimate has: by kind of model, by quantity, and by what is published of the target.

band_of("decoder", "tpot_ms", target, constants).low
"""

from __future__ import annotations

from ..hardware import Target
from .constants import Band, Constants

WIDE = Band(low=0.4, high=2.5, num_rows=0, basis="no published value of this class: a judgment")
"""For classes without published values."""
MEMORY = Band(low=0.95, high=1.3, num_rows=2, basis="one published breakdown; collectives and DMA rings come on top")
"""Footprint of a core."""
EXACT = Band(low=0.995, high=1.005, num_rows=15, basis="counted, and compared with 15 device profiles")
"""Bytes that a step reads."""

_SAME_AS = {
    "mfu": "profile.prefill_mfu",
    "mbu": "profile.decode_mbu",
}
"""Metrics of a decoder's device that are published as profiles."""


def band_of(kind: str, metric: str, target: Target, constants: Constants) -> Band:
    """The 80 % interval of one quantity, as factors."""
    if metric == "hbm_bytes_per_core":
        return MEMORY
    if metric == "hbm_bytes_per_step":
        return EXACT if kind in ("decoder", "encoder") else WIDE if kind == "mixture" else MEMORY
    generation = target.core.generation
    if generation >= 4 or (generation == 3 and kind != "decoder"):
        return WIDE
    if generation == 3:
        return constants.bands.get(f"trn2.{metric}", constants.bands["trn2.ttft_ms"])
    if kind == "decoder" and metric in _SAME_AS:
        return constants.bands[_SAME_AS[metric]]
    if metric in ("mfu", "mbu"):
        metric = "throughput_per_s"
    return constants.bands.get(f"{kind}.{metric}", WIDE)
