"""What a rank does in each step of a pipeline, as plain tasks: to plan and compare schedules.

>>> from optimum_neuron.neuronx_distributed.scheduler import TrainSchedule
>>> next(TrainSchedule(num_microbatches=2, stages=2, stage_id=0).steps())
[ForwardPreprocessTask(mb=0), ForwardStepTask(mb=0)]

`NxDPPModel` runs the schedules of torch, which compute microbatches in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..errors import ConfigError


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


class TrainInterleavedSchedule(PipeSchedule):
    """1F1B with several stages for each rank: of `R` ranks, rank `r` has the stages `r`, `r + R`, ..., its chunks.

    Microbatches pass the chunks in groups of `R`. A rank computes some of them ahead, then one gradient for each
    further one, and the rest of the gradients.

    Args:
        num_microbatches: number of microbatches of a batch, a multiple of the ranks.
        num_model_chunks: stages of a rank.
        stages: number of ranks.
        stage_id: the rank.
        fused_send_recv: not used: whether hardware sends and receives at once.
        fused_fwd_bwd: not used: whether one program computes outputs and gradients.
        use_odd_even_scheduler: not used: which of two neighbors sends first.

    Raises:
        ConfigError: the ranks do not divide the microbatches.
    """

    def __init__(
        self,
        num_microbatches: int,
        num_model_chunks: int,
        stages: int,
        stage_id: int,
        fused_send_recv: bool = False,
        fused_fwd_bwd: bool = False,
        use_odd_even_scheduler: bool = False,
    ) -> None:
        super().__init__(num_microbatches, stages, stage_id)
        if num_microbatches % stages:
            message = f"{num_microbatches} microbatches cannot be interleaved over {stages} ranks."
            raise ConfigError(message, hint="Pass a multiple.", num_microbatches=num_microbatches)
        self.num_model_chunks = num_model_chunks

    def steps(self) -> Iterator[Tasks]:
        """Return the tasks of each step: of a microbatch, of a gradient, or of both."""
        total = self.num_microbatches * self.num_model_chunks
        ahead = 2 * (self.stages - self.stage_id - 1) + (self.num_model_chunks - 1) * self.stages
        ahead = total if self.num_microbatches == self.stages else min(ahead, total)
        for number in range(total + ahead):
            tasks: Tasks = []
            if number < total:
                mb, chunk = self._place(number)
                kinds = (ForwardPreprocessTask, ForwardStepTask, ForwardPostprocessTask)
                tasks += [kind(mb, chunk) for kind in kinds]
            if number >= ahead:
                mb, chunk = self._place(number - ahead)
                back = (BackwardPreprocessTask, BackwardStepTask, BackwardPostprocessTask)
                tasks += [kind(mb, self.num_model_chunks - 1 - chunk) for kind in back]
            yield [*tasks, ReduceGradsTask()] if number == total + ahead - 1 else tasks

    def _place(self, number: int) -> tuple[int, int]:
        """Microbatch and chunk of the n-th of all computations of a rank."""
        group, rest = divmod(number, self.stages * self.num_model_chunks)
        return group * self.stages + rest % self.stages, rest // self.stages
