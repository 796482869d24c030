"""A model in stages, one or more on each rank of pipeline parallelism, run by the schedules of torch.

model = NxDPPModel(model, Layer, num_microbatches=4, output_loss_value_spec=True, pipeline_cuts=["layers.1"],
                   input_names=["input_ids", "labels"])
loss = model.run_train(input_ids=ids, labels=labels)
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.distributed import pipelining

from ..base.foreign import parameter_facts
from ..base.wording import listed
from ..errors import ConfigError, ModelError, RuntimeConfigError, ShapeError
from ..xla import mixed
from . import mappings
from .agreement import require_agreement
from .grads import bucket_allreduce_gradients
from .moving import get_device, mark_step, move_model_to_device
from .parallel_state import MESSAGES, PIPELINE, ZERO1
from .pipeline_graph import GraphStage, Leaf, Tracer, equal_cuts, stages_of
from .pipeline_trace import get_tracer_class
from .recorded_stage import RecordedStage
from .timeline import PPTimeline


class PostPartitionHooks:
    """Functions that are called once, when the stages of a model are made."""

    def __init__(self) -> None:
        self.hooks: list[Callable[[], Any]] = []

    def register_post_partition_hook(
        self, callable_function: Callable[..., Any], func_args: Sequence[Any] = (), func_kwargs: Any = None
    ) -> None:
        """Let a function be called.

        Args:
            callable_function: the function.
            func_args: its arguments.
            func_kwargs: its arguments by name.
        """
        self.hooks.append(functools.partial(callable_function, *func_args, **(func_kwargs or {})))

    def execute_all_hooks(self, model: nn.Module | None = None) -> list[Any]:
        """Call all functions, forget them, and return their results.

        Args:
            model: the model in stages; functions know their own arguments.
        """
        called, self.hooks = self.hooks, []
        return [hook() for hook in called]


HOOKS = PostPartitionHooks()
"""Functions for the next model in stages."""


class NxDPPModel(nn.Module):
    """A model whose stages ranks of pipeline parallelism have.

    Args:
        module: the model; ranks have the same weights.
        transformer_layer_cls: class of its layers, which are not cut.
        num_microbatches: how many parts a batch has.
        virtual_pipeline_size: how many stages a rank has; above 1 the schedule is interleaved 1F1B.
        output_loss_value_spec: where the loss is in the output: True, or a tuple or dict with True in its place; None:
            the output has no loss.
        return_mb_loss: return the losses of all microbatches.
        broadcast_and_average_loss: return the loss on every rank, averaged over data and context parallelism.
        use_zero1_optimizer: the optimizer averages gradients over data parallelism.
        use_optimizer_wrapper: likewise.
        pipeline_cuts: names of the layers behind which a stage ends.
        input_names: names of the inputs.
        leaf_module_cls: further classes, or their names, that are not traced.
        autowrap_functions: functions that are not traced.
        autowrap_modules: Python modules whose functions are not traced.
        tracer_cls: as of `pipeline_trace.get_tracer_class`.
        trace_file_path: file of a timeline of the microbatches; None: none is recorded.
        return_loss_on_cpu: move the loss to the CPU.
        auto_partition: divide the layers equally; later stages have the rest.
        deallocate_pipeline_outputs: not used; what hardware keeps of values that were sent.
        fuse_microbatches: not used; how many programs hardware runs.

    Raises:
        ConfigError: there are no groups of ranks, or the cuts do not give as many stages as ranks hold.
        ModelError: torch.fx cannot trace the model, or its forward does not use all of its layers.
    """

    def __init__(
        self,
        module: nn.Module,
        transformer_layer_cls: type[nn.Module],
        num_microbatches: int = 1,
        virtual_pipeline_size: int = 1,
        output_loss_value_spec: Any = None,
        return_mb_loss: bool = False,
        broadcast_and_average_loss: bool = False,
        use_zero1_optimizer: bool = False,
        use_optimizer_wrapper: bool = False,
        pipeline_cuts: Sequence[str] = (),
        input_names: Sequence[str] = (),
        leaf_module_cls: Sequence[Leaf] = (),
        autowrap_functions: Sequence[Callable[..., Any]] = (),
        autowrap_modules: Sequence[ModuleType] = (),
        tracer_cls: str | type[Tracer] | None = None,
        trace_file_path: str | os.PathLike[str] | None = None,
        return_loss_on_cpu: bool = True,
        auto_partition: bool = False,
        deallocate_pipeline_outputs: bool = False,
        fuse_microbatches: bool = False,
    ) -> None:
        options = dict(locals())
        super().__init__()
        if not PIPELINE.is_made():
            message = "NxDPPModel needs the groups of model parallelism."
            raise RuntimeConfigError(message, hint="Call initialize_model_parallel() first.")
        _require_alike(module, transformer_layer_cls, options)
        if return_mb_loss and broadcast_and_average_loss:
            raise ConfigError("Losses of microbatches are not averaged.", hint="Pass return_mb_loss=False.")
        self.num_microbatches, self._spec = num_microbatches, output_loss_value_spec
        self.return_mb_loss, self.broadcast_and_average_loss = return_mb_loss, broadcast_and_average_loss
        self._return_loss_on_cpu = return_loss_on_cpu
        self._reduces = not (use_zero1_optimizer or use_optimizer_wrapper)
        self._input_names = list(input_names)
        count = PIPELINE.size() * virtual_pipeline_size
        if auto_partition:
            pipeline_cuts = _equal_cuts(module, transformer_layer_cls, count, pipeline_cuts)
        _require_stages(pipeline_cuts, count)
        if virtual_pipeline_size > 1 and num_microbatches % PIPELINE.size():
            message = f"{num_microbatches} microbatches cannot be interleaved over {PIPELINE.size()} ranks."
            raise ConfigError(message, hint="Pass a multiple.", num_microbatches=num_microbatches)
        kind = get_tracer_class(module, tracer_cls)
        tracer = kind(input_names, (transformer_layer_cls, *leaf_module_cls), autowrap_functions, autowrap_modules)
        stages = stages_of(module, tracer, pipeline_cuts)
        _require_all_layers(module, stages)
        self._names = {name for stage in stages for name in stage.graph.state_dict()}
        stages[-1].loss_spec = output_loss_value_spec
        self._stages = {number: stages[number] for number in range(PIPELINE.rank(), count, PIPELINE.size())}
        self._num_stages = count
        shared = _shared_weights(stages, PIPELINE.size())
        self.local_stage_modules = nn.ModuleList(self._stages.values())
        move_model_to_device(self.local_stage_modules, get_device())
        self._shared: list[tuple[torch.Size, nn.Parameter | None]] = self._mark_shared(shared)
        self._schedules: dict[Any, Any] = {}
        self.timeline = PPTimeline(trace_file_path, PIPELINE.rank())
        HOOKS.execute_all_hooks(self)

    def _mark_shared(
        self, shared: list[tuple[nn.Parameter, dict[int, Place]]]
    ) -> list[tuple[torch.Size, nn.Parameter | None]]:
        """Mark weights that an earlier rank has too, and return those that train, each with its shape."""
        found = []
        for parameter, names in shared:
            own = self._parameter(names[PIPELINE.rank()]) if PIPELINE.rank() in names else None
            if own is not None:
                own.shared = PIPELINE.rank() != min(names)
            if parameter.requires_grad:
                found.append((parameter.shape, own))
        return found

    def _parameter(self, place: tuple[int, str]) -> nn.Parameter:
        number, name = place
        return self._stages[number].graph.get_parameter(name)

    def local_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return this rank's parameters under the names of the model."""
        seen: set[int] = set()
        for stage in self._stages.values():
            for name, parameter in stage.graph.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield name, parameter

    def local_parameters(self) -> Iterator[nn.Parameter]:
        """Return this rank's parameters."""
        return (parameter for _, parameter in self.local_named_parameters())

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Return this rank's parameters under the names of the model."""
        return self.local_named_parameters()

    def state_dict(self, *args: Any, keep_vars: bool = False, **kwargs: Any) -> Any:
        """Return this rank's states under the names of the model."""
        return self.local_state_dict(keep_vars=keep_vars)

    def local_state_dict(self, *, keep_vars: bool = False) -> dict[str, Any]:
        """Return this rank's states under the names of the model.

        Args:
            keep_vars: return the parameters themselves.
        """
        graphs = [stage.graph.state_dict(keep_vars=keep_vars) for stage in self._stages.values()]
        return {name: value for states in graphs for name, value in states.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> None:
        """Load states of this rank, or of the whole model.

        Args:
            state_dict: the states, under the names of the model.
            strict: require all of this rank's states, and none that no stage has.
            assign: as of torch.

        Raises:
            ModelError: no stage has states of these names.
        """
        unknown = [name for name in state_dict if name not in self._names]
        if strict and unknown:
            message = f"No stage has {listed(unknown, 5)}."
            raise ModelError(message, hint="Load states of this model.", names=unknown)
        for stage in self._stages.values():
            own = {name: state_dict[name] for name in stage.graph.state_dict() if name in state_dict}
            stage.graph.load_state_dict(own, strict=strict, assign=assign)

    def run_train(self, **inputs: torch.Tensor) -> Any:
        """Compute the loss and gradients of a batch, in microbatches.

        Args:
            **inputs: the inputs, with the batch first.

        Returns:
            The loss, on the last stage's rank, or on every rank with `broadcast_and_average_loss`; None elsewhere.
        """
        if self._spec is None:
            hint = "Pass output_loss_value_spec, which says where the output has it."
            raise ConfigError("The model has no loss to train.", hint=hint, option="output_loss_value_spec")
        before = [None if one is None else _taken(one) for _, one in self._shared]
        losses: list[torch.Tensor] = []
        self.local_stage_modules.train()
        self._run("step", inputs, losses)
        self._sum_shared(before)
        if self._reduces and ZERO1.size() > 1:
            bucket_allreduce_gradients([one.grad for one in self.local_parameters() if one.grad is not None])
        mark_step()
        self.timeline.mark_step_end()
        return self._loss([one.detach() for one in losses])

    @torch.no_grad()
    def run_eval(self, **inputs: torch.Tensor) -> Any:
        """Return the loss of a batch, as `run_train` does, or the outputs of a model without loss.

        Args:
            **inputs: the inputs, with the batch first.
        """
        self.local_stage_modules.eval()
        outputs = self._run("eval", inputs, [])
        self.timeline.mark_step_end()
        if self._spec is None:
            return outputs
        return self._loss([] if outputs is None else list((outputs / self.num_microbatches).unbind()))

    def _run(self, mode: str, inputs: Mapping[str, torch.Tensor], losses: list[torch.Tensor]) -> Any:
        if set(inputs) != set(self._input_names):
            message = f"The inputs are {', '.join(sorted(inputs))}, and the model was traced with others."
            raise ConfigError(message, hint=f"Pass {', '.join(self._input_names)}.", names=sorted(inputs))
        shapes = {f"the shape of {name}": list(inputs[name].shape) for name in self._input_names}
        require_agreement("batches", {"mode": mode, **shapes}, PIPELINE.group())  # messages have fixed sizes
        sizes = {name: len(value) for name, value in inputs.items()}
        if len(set(sizes.values())) != 1 or next(iter(sizes.values())) % self.num_microbatches:
            message = f"Batches of {sizes} have no {self.num_microbatches} equal microbatches."
            raise ShapeError(message, hint="Pass batches of one size, which num_microbatches divides.", sizes=sizes)
        moved = {name: value.to(get_device()) for name, value in inputs.items()}
        key = (mode, tuple((name, value.shape, value.dtype) for name, value in moved.items()))
        if key not in self._schedules:
            self._schedules[key] = self._schedule(has_loss=mode == "step")
        any_input = next(iter(moved.values()))
        first = (any_input,) if 0 in self._stages else ()
        last = {"target": any_input, "losses": losses} if mode == "step" and self._has_last else {}
        with mixed.without_reentrant_checkpoints():  # torch's stages ask for the gradients of what they receive
            return getattr(self._schedules[key], mode)(*first, **last, **moved)

    @property
    def _has_last(self) -> bool:
        return self._num_stages - 1 in self._stages

    def _schedule(self, *, has_loss: bool) -> Any:
        """A schedule for batches of a shape: the messages between stages have fixed shapes."""
        count, group = self.num_microbatches, MESSAGES.group()
        stages = [
            RecordedStage(self.timeline, stage, number, self._num_stages, torch.device(get_device()), group=group)
            for number, stage in self._stages.items()
        ]
        loss = (lambda output, _: output.mean() / count) if has_loss else None
        if len(stages) > 1:
            return pipelining.ScheduleInterleaved1F1B(stages, count, loss_fn=loss, scale_grads=False)
        # 1F1B needs as many microbatches as stages.
        kind = pipelining.Schedule1F1B if count >= self._num_stages else pipelining.ScheduleGPipe
        return kind(stages[0], count, loss_fn=loss, scale_grads=False)

    @torch.no_grad()
    def _sum_shared(self, before: Sequence[torch.Tensor | None]) -> None:
        """Give all stages that have a weight the sum of its gradients."""
        for (shape, one), older in zip(self._shared, before, strict=True):
            own = None if one is None else _gradient(one)
            total = mappings.reduce(
                torch.zeros(shape, device=get_device()) if own is None else own.float(), PIPELINE.group()
            )
            if one is None or not one.requires_grad:
                continue
            if own is None:
                one.grad = own = torch.zeros_like(one)
            own.copy_(total if older is None else older + total)

    def _loss(self, parts: list[torch.Tensor]) -> Any:
        """The loss, whose parts the last stage has."""
        loss = self._loss_on_device(parts)
        return loss.cpu() if self._return_loss_on_cpu and isinstance(loss, torch.Tensor) else loss

    def _loss_on_device(self, parts: list[torch.Tensor]) -> Any:
        if self.return_mb_loss:
            return [one * self.num_microbatches for one in parts] if self._has_last else None
        if not self.broadcast_and_average_loss:
            return torch.stack(parts).sum() if self._has_last else None
        own = torch.stack(parts).sum() if self._has_last else torch.zeros((), device=get_device())
        mean = mappings.reduce(own, ZERO1.group()) / ZERO1.size()
        return mappings.reduce(mean, PIPELINE.group())


def _gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient, which ZeRO-1 can keep in `main_grad`."""
    main = parameter_facts(parameter).main_grad
    return parameter.grad if main is None else main


def _taken(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient until now, which is cleared, so that the next one is of the next batch alone."""
    own = _gradient(parameter)
    if own is None:
        return None
    older = own.clone()
    if own is parameter.grad:
        parameter.grad = None
    else:
        own.zero_()
    return older


def _equal_cuts(module: nn.Module, layer: type[nn.Module], count: int, cuts: Sequence[str]) -> list[str]:
    if cuts:
        message = "auto_partition chooses the cuts, and pipeline_cuts names them."
        raise ConfigError(message, hint="Pass one of both.", option="pipeline_cuts")
    return equal_cuts(module, layer, count)


def _require_stages(cuts: Sequence[str], count: int) -> None:
    if len(cuts) + 1 != count:
        message = f"{len(cuts)} cuts make {len(cuts) + 1} stages, and ranks hold {count}."
        raise ConfigError(message, hint=f"Pass {count - 1} pipeline_cuts.", cuts=list(cuts), stages=count)


_LISTS = ("pipeline_cuts", "input_names")
_ALIKE = (
    *("num_microbatches", "virtual_pipeline_size", "auto_partition", "output_loss_value_spec", "return_mb_loss"),
    *("broadcast_and_average_loss", "use_zero1_optimizer", "use_optimizer_wrapper"),
)


def _require_alike(module: nn.Module, layer: type[nn.Module], options: Mapping[str, Any]) -> None:
    """Require that ranks cut models of the same sizes in the same way."""
    facts: dict[str, Any] = {
        "num_layers": sum(isinstance(one, layer) for one in module.modules()),
        "num_elements": sum(one.numel() for one in module.parameters()),
        **{name: options[name] for name in _ALIKE},
        **{name: list(options[name]) for name in _LISTS},
    }
    require_agreement("options of the pipeline", facts)


def _require_all_layers(module: nn.Module, stages: Sequence[GraphStage]) -> None:
    """Require that stages hold all parameters: the others would neither train nor be saved."""
    held = {id(parameter) for stage in stages for parameter in stage.graph.parameters()}
    unused = [name for name, parameter in module.named_parameters() if id(parameter) not in held]
    if unused:
        message = f"No stage holds {listed(unused, 5)}: the forward of {type(module).__name__} does not use them."
        raise ModelError(message, hint="Remove these layers, or name the inputs that they need.", names=unused)


Place = tuple[int, str]


def _shared_weights(stages: Sequence[GraphStage], num_ranks: int) -> list[tuple[nn.Parameter, dict[int, Place]]]:
    """Weights that stages of several ranks have, and where each rank has them."""
    found: dict[int, tuple[nn.Parameter, dict[int, Place]]] = {}
    for number, stage in enumerate(stages):
        for name, parameter in stage.graph.named_parameters():
            _, places = found.setdefault(id(parameter), (parameter, {}))
            places.setdefault(number % num_ranks, (number, name))
    return [(parameter, places) for parameter, places in found.values() if len(places) > 1]
