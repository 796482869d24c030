"""Compiled cases of `ranks.py`, cold and then warm: `python -m tests.device.warm_ranks FOLDER CASE ...`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters

from tests.device.ranks import Rank, main


class WarmRank(Rank):
    """One process, whose graphs are host code that torch's caches store."""

    @staticmethod
    def compiled(function: Callable[..., Any]) -> Any:
        return torch.compile(function, backend="neuron")

    def _twice(self, case: Callable[[], None]) -> None:
        found = []
        for _ in range(2):
            torch._dynamo.reset()
            counters.clear()
            case()
            found.append(dict(counters["aot_autograd"]))
            graphs = torch.neuron.compile_report().graphs
        cold, warm = found
        assert cold["autograd_cache_miss"] == cold["autograd_cache_saved"] == warm["autograd_cache_hit"] == 1, found
        assert {graph.loaded_from for graph in graphs} == {"AOTAutograd's cache"}

    def warm_ddp(self) -> None:
        self._twice(self.compiled_ddp)

    def warm_collective(self) -> None:
        self._twice(self.compiled_collective)


if __name__ == "__main__":
    main(WarmRank)
