"""A small pool of blocks with made-up times, for tests of scheduling."""

from __future__ import annotations

from optimum_neuron.runtime import ServingCost
from optimum_neuron.simulator.continuous import ServedPool

COST = ServingCost(chunk_s=0.5, step_s=0.25, row_s=0.125, copy_bytes_per_s=1.0, basis="a test")
POOL = ServedPool(
    num_rows=2,
    num_blocks=9,
    block_size=4,
    block_bytes=3,
    chunk_s={8: {16: 1.0, 32: 2.0}},
    step_s={16: 0.125, 32: 0.25},
    cost=COST,
    num_prompt=12,
    num_answer=3,
)
