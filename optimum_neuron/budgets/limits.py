"""What a budget can limit: names, directions, and meanings.

>>> LIMITS["model"]["tpot_ms"].keeps(2.4, limit=2.5), LIMITS["model"]["tokens_per_s"].keeps(90.0, limit=100)
(True, False)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

Value = float | bool
By = Literal["facts", "validation", "tokens", "dataset"]


@dataclasses.dataclass(frozen=True)
class Limit:
    """One quantity that can have a limit."""

    kind: Literal["most", "least", "is"]
    """Whether the limit is the largest value, the smallest one, or the only one."""
    meaning: str
    """What is measured."""
    by: By = "facts"
    """What measures it: "facts" always; the others, which take weights or a data set, where a limit asks for them."""

    def keeps(self, value: Value, *, limit: Value) -> bool:
        """Return whether a value is within a limit."""
        if self.kind == "is":
            return value == limit
        return value <= limit if self.kind == "most" else value >= limit


LIMITS: Mapping[str, Mapping[str, Limit]] = {
    "model": {
        "compiles": Limit("is", "whether every operator runs on the target and the model fits its core"),
        "num_graphs": Limit("most", "graphs that are compiled"),
        "num_host_operators": Limit("most", "calls of operators that run on the host"),
        "num_operators": Limit("most", "calls of operators in one run of every graph that is captured"),
        "flops": Limit("most", "floating-point operations in one run of every graph that is captured"),
        "ttft_ms": Limit("most", "time to first token, simulated"),
        "tpot_ms": Limit("most", "time between output tokens, simulated"),
        "latency_ms": Limit("most", "latency of a request, simulated"),
        "throughput_per_s": Limit("least", "requests of all replicas in a second, simulated"),
        "tokens_per_s": Limit("least", "output tokens of all replicas in a second, simulated"),
        "usd_per_1m": Limit("most", "price of a million output tokens, or of a million requests, simulated"),
        "hbm_bytes_per_core": Limit("most", "weights, cache, scratch and code in the HBM of a core"),
        "validated": Limit("is", "whether every result is within the tolerance that exports have", "validation"),
        "max_abs_error": Limit("most", "largest difference from transformers in float32, by validation", "validation"),
        "num_equal_tokens": Limit("least", "of 64 greedy tokens, those before one differs from transformers", "tokens"),
        "padding_share": Limit("most", "padding tokens for each token of the data set's prompts", "dataset"),
    },
    "kernel": {
        "total_us": Limit("most", "time of the kernel on one core, simulated"),
        "num_instructions": Limit("most", "instructions of one core"),
        "hbm_bytes": Limit("most", "bytes from and to HBM"),
        "sbuf_bytes": Limit("most", "bytes of a partition of SBUF that tiles need at the same time"),
        "psum_bytes": Limit("most", "bytes of a partition of PSUM that tiles need at the same time"),
        "roofline_share": Limit("least", "shortest possible time, divided by the simulated one"),
    },
    "script": {
        "num_graphs": Limit("most", "graphs that are compiled for the device xla and by torch.compile"),
        "num_recompiles": Limit("most", "graphs that are compiled again, for other shapes or after a guard fails"),
        "num_reads": Limit("most", "values that the host read while their graph was recorded, which ended it"),
        "device_ms": Limit("most", "time of all calls on their cores, simulated"),
        "num_calls": Limit("most", "calls of graphs and of eager operators' kernels"),
    },
}
"""By kind of entry, `Entry.kind`."""
