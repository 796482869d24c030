"""What a rank does in each step of a pipeline, as plain tasks: to plan and compare schedules.

>>> from optimum_neuron.neuronx_distributed.scheduler import TrainSchedule
>>> next(TrainSchedule(num_microbatches=2, stages=2, stage_id=0).steps())
[ForwardPreprocessTask(mb=0), ForwardStepTask(mb=0)]

`NxDPPModel` runs the schedules of torch, which compute microbatches in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class PipelineTask:
    """One task of one microbatch."""

    mb: int
    """The microbatch."""
    model_chunk: int = dataclasses.field(default=0, repr=False)
    """Which of the rank's stages."""
    graph_break: bool = dataclasses.field(default=True, repr=False)
    """Whether a graph ends behind it."""


class ForwardPreprocessTask(PipelineTask):
    """Receive the inputs of a stage."""


class ForwardStepTask(PipelineTask):
    """Compute its outputs."""


class ForwardPostprocessTask(PipelineTask):
    """Send them."""


class BackwardPreprocessTask(PipelineTask):
    """Receive the gradients of its outputs."""


class BackwardStepTask(PipelineTask):
    """Compute the gradients of its inputs."""


class BackwardPostprocessTask(PipelineTask):
    """Send them."""


@dataclasses.dataclass(frozen=True)
class ReduceGradsTask:
    """Average gradients over ranks, at the end."""


Tasks = list[PipelineTask | ReduceGradsTask]


class PipeSchedule:
    """A schedule of one stage.

    Args:
        num_microbatches: number of microbatches of a batch.
        stages: number of stages.
        stage_id: the stage.
    """

    def __init__(self, num_microbatches: int, stages: int, stage_id: int) -> None:
        self.num_microbatches, self.stages, self.stage_id = num_microbatches, stages, stage_id

    def steps(self) -> Iterator[Tasks]:
        """Return the tasks of each step."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Tasks]:
        return self.steps()


class InferenceSchedule(PipeSchedule):
    """Forward alone."""

    def steps(self) -> Iterator[Tasks]:
        """Return the tasks of each step: of one microbatch."""
        for mb in range(self.num_microbatches):
            yield [ForwardPreprocessTask(mb), ForwardStepTask(mb), ForwardPostprocessTask(mb)]


class TrainSchedule(PipeSchedule):
    """1F1B: stage `s` of `S` computes microbatch `m` in step `s + 2m`, and its gradients in step `2S - 1 - s + 2m`."""

    def steps(self) -> Iterator[Tasks]:
        """Return the tasks of each step; values of a step are sent in the next one, after what that one receives."""
        last = 2 * (self.num_microbatches + self.stages - 1) - 1
        for step in range(last + 1):
            tasks = self._forward(step) if (step - self.stage_id) % 2 == 0 else self._backward(step)
            yield [*tasks, ReduceGradsTask()] if step == last else tasks

    def _forward(self, step: int) -> Tasks:
        tasks: Tasks = []
        done, mb = self._with_gradient(step - 1), self._computed(step)
        if done is not None and self.stage_id > 0:
            tasks.append(BackwardPostprocessTask(done))
        return tasks if mb is None else [*tasks, ForwardPreprocessTask(mb), ForwardStepTask(mb)]

    def _backward(self, step: int) -> Tasks:
        tasks: Tasks = []
        done, mb, has_next = self._computed(step - 1), self._with_gradient(step), self.stage_id < self.stages - 1
        if mb is not None and has_next:
            tasks.append(BackwardPreprocessTask(mb))
        if done is not None and has_next:
            tasks.append(ForwardPostprocessTask(done))
        return tasks if mb is None else [*tasks, BackwardStepTask(mb)]

    def _computed(self, step: int) -> int | None:
        return self._microbatch(step - self.stage_id)

    def _with_gradient(self, step: int) -> int | None:
        return self._microbatch(step - (2 * self.stages - 1 - self.stage_id))

    def _microbatch(self, distance: int) -> int | None:
        mb, rest = divmod(distance, 2)
        return mb if rest == 0 and 0 <= mb < self.num_microbatches else None
