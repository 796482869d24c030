"""Run the encoder of a compiled encoder-decoder on any batch size.

Inputs are padded before: they have the length of a compiled bucket.
"""

from __future__ import annotations

import torch

from ..runtime.loaded import LoadedProgram
from .calls import run_all


def encode_rows(loaded: LoadedProgram, bucket: int, inputs: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return `last_hidden_state`, and the outputs of each layer, such as "hidden_states.0", if the graph has them.

    Args:
        loaded: the program.
        bucket: compiled length of the inputs.
        inputs: tensors in the order of the graph, of any batch size.
    """
    graph = f"encode_{bucket}"
    size = next(iter(loaded.program.graphs[graph].inputs.values())).shape[0]
    state = loaded.take_state()
    try:
        starts = range(0, inputs[0].shape[0], size)
        parts = [run_all(loaded, graph, [rows[start : start + size] for rows in inputs], state) for start in starts]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    finally:
        loaded.give_back(state)
