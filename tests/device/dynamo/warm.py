"""Helpers for tests of torch's caches: restart in this process, and list loaded graphs."""

from __future__ import annotations

import torch
from torch._dynamo.utils import counters

AOTAUTOGRAD, INDUCTOR = "AOTAutograd's cache", "Inductor's cache"


def restart() -> None:
    """Forget the graphs compiled by this process; caches on disk stay."""
    torch._dynamo.reset()
    counters.clear()


def lookups() -> dict[str, int]:
    """Hits, misses and bypasses of AOTAutograd's cache since the last restart."""
    names = ("hit", "miss", "bypass")
    return {name: result for name in names if (result := counters["aot_autograd"][f"autograd_cache_{name}"])}


def loaded_from() -> list[str | None]:
    return [graph.loaded_from for graph in torch.neuron.compile_report().graphs]


def compiled(function, **options):
    return torch.compile(function, backend="neuron", options=options)


def scaled(x):
    return (x @ x).tanh() * 3
