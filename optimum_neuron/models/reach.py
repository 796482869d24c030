"""How far layers of a transformers model see, read from its configuration alone.

transformers measures these distances in columns of a padded batch, and a compiled decoder in tokens.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from .generic import FULL_WITHIN_WINDOW

if TYPE_CHECKING:
    import torch

_DISTANCE_OF_COLUMNS = ("mpt",)
"""Model types whose ALiBi counts columns; that of Bloom and Falcon counts tokens."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reach:
    """Distances that matter to the layers of a model."""

    windows: tuple[int, ...] = ()
    """Windows of its layers, each of which sees so many places back, itself included."""
    chunk: int | None = None
    """Layers see places of the query's own chunk only, which begin at multiples of this number."""
    every_distance: bool = False
    """Whether every distance matters, as with ALiBi."""

    def first_seen(self, places: torch.Tensor) -> list[torch.Tensor]:
        """Return for each window, and for the chunk, the index of the first token that each token sees.

        Args:
            places: place of each token, rising: [tokens].
        """
        import torch

        begins = [places - window + 1 for window in self.windows]
        if self.chunk is not None:
            begins.append(places // self.chunk * self.chunk)
        return [torch.searchsorted(places, begin) for begin in begins]

    def same(self, places: torch.Tensor) -> torch.Tensor:
        """Return which tokens see the same tokens at these places as at places without gaps."""
        import torch

        counted = torch.arange(len(places))
        if self.every_distance:
            return places - places[:1] == counted
        same = torch.ones(len(places), dtype=torch.bool)
        for ours, others in zip(self.first_seen(counted), self.first_seen(places), strict=True):
            same &= ours == others
        return same


def reach_of(config: PreTrainedConfig) -> Reach | None:
    """Return what is limited in a model of a text configuration; None if its layers see every earlier token alike."""
    kinds = set(facts_of(config).layer_types or ["sliding_attention"])
    local = {"sliding_attention", "hybrid_sliding"} & kinds or config.model_type in FULL_WITHIN_WINDOW
    window = facts_of(config).sliding_window if local else None
    windows = set(window) if isinstance(window, (list, tuple)) else {window}
    if "local" in (facts_of(config).attention_layers or ()):  # GPT-Neo
        windows.add(config.window_size)
    chunk = facts_of(config).attention_chunk_size if "chunked_attention" in kinds else None
    reach = Reach(
        windows=tuple(sorted(size for size in windows if size)),
        chunk=chunk or None,
        every_distance=config.model_type in _DISTANCE_OF_COLUMNS,
    )
    return None if reach == Reach() else reach
