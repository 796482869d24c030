"""Schedules against messages between stages, and graphs against torch.fx."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError, NotSupportedError
from optimum_neuron.neuronx_distributed import pipeline_graph, pipeline_trace, scheduler
from optimum_neuron.neuronx_distributed.pipeline import PostPartitionHooks
from optimum_neuron.neuronx_distributed.scheduler import (
    BackwardPostprocessTask,
    BackwardPreprocessTask,
    BackwardStepTask,
    ForwardPostprocessTask,
    ForwardPreprocessTask,
    ForwardStepTask,
    ReduceGradsTask,
)

TASKS = [ForwardPreprocessTask, ForwardStepTask, ForwardPostprocessTask]
BACKWARD = [BackwardPreprocessTask, BackwardStepTask, BackwardPostprocessTask]


@pytest.mark.parametrize("stages, microbatches", [(1, 2), (2, 1), (2, 5), (4, 2), (4, 8), (5, 7)])
def test_stages_receive_what_others_have_sent(stages: int, microbatches: int) -> None:
    """In each step: values arrive that a stage sent before or now, and no stage keeps more than 1F1B does."""
    plans = [list(scheduler.TrainSchedule(microbatches, stages, stage).steps()) for stage in range(stages)]
    done: set[tuple[int, object]] = set()
    for tasks_of_stages in zip(*plans, strict=True):
        done |= {(stage, task) for stage, tasks in enumerate(tasks_of_stages) for task in tasks}
        for stage, tasks in enumerate(tasks_of_stages):
            for task in tasks:
                if isinstance(task, ForwardPreprocessTask) and stage > 0:
                    assert (stage - 1, ForwardPostprocessTask(task.mb)) in done
                if isinstance(task, BackwardPreprocessTask):
                    assert (stage + 1, BackwardPostprocessTask(task.mb)) in done
            computed = sum(1 for place, task in done if place == stage and isinstance(task, ForwardStepTask))
            returned = sum(1 for place, task in done if place == stage and isinstance(task, BackwardStepTask))
            assert 0 <= computed - returned <= stages - stage
    for stage, plan in enumerate(plans):
        tasks = list(itertools.chain.from_iterable(plan))
        assert tasks[-1] == ReduceGradsTask()
        for kind in (*TASKS, *BACKWARD):
            is_left_out = kind is BackwardPostprocessTask and stage == 0
            is_left_out |= kind in (ForwardPostprocessTask, BackwardPreprocessTask) and stage == stages - 1
            assert [one.mb for one in tasks if type(one) is kind] == list(range(0 if is_left_out else microbatches))


def test_inference_runs_forward_alone() -> None:
    steps = list(scheduler.InferenceSchedule(2, 4, 1))
    assert steps == [[kind(mb) for kind in TASKS] for mb in range(2)]


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x: torch.Tensor, scale: float = 2.0, offset: torch.Tensor | None = None) -> torch.Tensor:
        x = self.layers(x) * scale
        return x if offset is None else x + offset


def test_a_graph_of_chosen_inputs() -> None:
    model, x = _Model(), torch.rand(2, 3)
    assert pipeline_trace.get_concrete_args(model, args=(x,)) == {"scale": 2.0, "offset": None}
    traced = pipeline_trace.trace_model(model, input_names=["x", "offset"], leaf_modules=["Sequential"])
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["layers"]
    torch.testing.assert_close(traced(x, x), model(x, offset=x))
    inner = pipeline_trace.trace_model(model, args=(x,), tracer_cls="hf")
    expected = torch.fx.symbolic_trace(model.layers)
    called = [[node.target for node in one.graph.nodes if node.op == "call_module"] for one in (inner, expected)]
    assert called[0] == [f"layers.{name}" for name in called[1]]
    torch.testing.assert_close(inner(x), model(x))


def test_wrong_names() -> None:
    with pytest.raises(ConfigError):
        pipeline_trace.get_concrete_args(_Model(), ["y"])
    with pytest.raises(ConfigError):
        pipeline_trace.get_tracer_class(_Model(), "other")
    with pytest.raises(NotSupportedError):
        pipeline_trace.trace_model(_Model(), input_names=["x"], autowrap_obj_methods={object(): [len]})


def test_hooks_are_called_once() -> None:
    hooks = PostPartitionHooks()
    hooks.register_post_partition_hook(divmod, [7, 2])
    hooks.register_post_partition_hook(dict, func_kwargs={"a": 1})
    assert hooks.execute_all_hooks() == [(3, 1), {"a": 1}]
    assert hooks.execute_all_hooks() == []


@pytest.mark.parametrize("ranks, chunks, microbatches", [(2, 2, 2), (2, 2, 6), (4, 2, 8), (3, 4, 6), (1, 3, 2)])
def test_interleaved_stages_wait_for_each_other_without_end(ranks: int, chunks: int, microbatches: int) -> None:
    """Each rank does its next task once what it needs is done; all tasks are done, and each once."""
    schedules = [scheduler.TrainInterleavedSchedule(microbatches, chunks, ranks, rank) for rank in range(ranks)]
    last, waiting = ranks * chunks - 1, []
    for schedule in schedules:
        steps = list(schedule)
        assert isinstance(steps[-1][-1], ReduceGradsTask)
        tasks = [task for step in steps for task in step]
        waiting.append([task for task in tasks if isinstance(task, ForwardStepTask | BackwardStepTask)])
    done: set[tuple[bool, int, int]] = set()
    held = [0] * ranks
    while any(waiting):
        before = len(done)
        for rank, tasks in enumerate(waiting):
            while tasks:
                task, is_forward = tasks[0], isinstance(tasks[0], ForwardStepTask)
                stage = task.model_chunk * ranks + rank
                if is_forward:
                    needs = {(True, task.mb, stage - 1)} if stage else set()
                else:
                    needs = {(True, task.mb, stage)} | ({(False, task.mb, stage + 1)} if stage < last else set())
                if not needs <= done:
                    break
                assert (is_forward, task.mb, stage) not in done
                done.add((is_forward, task.mb, stage))
                held[rank] += 1 if is_forward else -1
                assert held[rank] <= max((chunks + 1) * ranks, microbatches * chunks if microbatches == ranks else 0)
                tasks.pop(0)
        assert len(done) > before, "the ranks wait for each other"
    assert len(done) == 2 * microbatches * (last + 1)
    with pytest.raises(ConfigError):
        scheduler.TrainInterleavedSchedule(3, chunks, 2, 0)


class Turned(nn.Module):
    def forward(self, value: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return value.transpose(0, 1), other


def test_stages_send_values_and_gradients_without_gaps() -> None:
    stage = pipeline_graph.GraphStage(Turned(), ["value", "other"], [])
    values = (torch.randn(2, 3, requires_grad=True), torch.randn(4, requires_grad=True))
    sent, _ = stage(*values)
    assert sent.is_contiguous()
    torch.testing.assert_close(sent, values[0].T, rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(sent, values[:1], torch.randn(3, 2))
    assert gradient.is_contiguous()


def test_losses_of_outputs_of_transformers_are_counted_as_tuples() -> None:
    output = {"loss": torch.ones(()), "aux_loss": None, "logits": torch.zeros(2)}
    assert pipeline_graph.loss_in(output, (True, False)) is output["loss"]
    assert pipeline_graph.loss_in(output, {"loss": True, "logits": False}) is output["loss"]
    with pytest.raises(ConfigError):
        pipeline_graph.loss_in(output, (False, True))
