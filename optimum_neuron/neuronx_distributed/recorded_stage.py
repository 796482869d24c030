"""A stage of torch's pipelines that records when it computes; it does not know what.

stage = RecordedStage(PPTimeline("timeline.json", rank), module, number, num_stages, device, group=group)
"""

from __future__ import annotations

from typing import Any

from torch.distributed import pipelining

from .timeline import PPTimeline


class RecordedStage(pipelining.PipelineStage):
    """A stage whose passes of microbatches are events of a timeline.

    Args:
        timeline: the timeline of its rank.
        *args: as of `PipelineStage`.
        **kwargs: as of `PipelineStage`.
    """

    def __init__(self, timeline: PPTimeline, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timeline = timeline

    def _label(self, microbatch: int, way: str) -> str:
        chunk = f"_chunk_{self.stage_index // self.group_size}" if self.num_stages > self.group_size else ""
        return f"mb_{microbatch}{chunk}_{way}Step"

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of a microbatch.

        Args:
            fwd_chunk_id: number of the microbatch.
            *args: as of `PipelineStage`.
            **kwargs: as of `PipelineStage`.
        """
        with self._timeline.event(self._label(fwd_chunk_id, "Forward")):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of a microbatch.

        Args:
            bwd_chunk_id: number of the microbatch.
            *args: as of `PipelineStage`.
            **kwargs: as of `PipelineStage`.
        """
        with self._timeline.event(self._label(bwd_chunk_id, "Backward")):
            super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
