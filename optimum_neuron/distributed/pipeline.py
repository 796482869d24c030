"""A model in stages, one on each core, run by torch.distributed.pipelining's 1F1B schedule.

A stage is the model with identities in place of the modules of other stages, so parameters keep their names. It does
not depend on trainers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, distribute_tensor

from ..base.foreign import module_facts
from ..base.labels import IGNORED, next_labels
from ..errors import ConfigError

_PARTS = {"embed_tokens", "layers", "norm"}
"""Children of a base model that transformers' `base_model_pp_plan` names, for decoders of one stack."""

Loss = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]
"""Loss of logits, labels of the next token, and the number of labels of the whole batch."""


class Absent(nn.Module):
    """Stands in for a module of another stage: returns its first argument."""

    twin: tuple[nn.Module, ...] = ()
    """The module of this stage whose weight is that of the absent one."""

    def forward(self, value: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        """Return the first argument."""
        return value


class Stage(nn.Module):
    """Part of a decoder: token ids or hidden states in, hidden states or logits out."""

    def __init__(self, model: nn.Module, *, is_first: bool, is_last: bool, has_shared: bool) -> None:
        super().__init__()
        self.model = model
        self.is_first, self.is_last = is_first, is_last
        self.has_shared = has_shared
        """Whether embeddings in the first stage and the head in the last one are one trained weight."""

    @property
    def shared(self) -> nn.Parameter | None:
        """This stage's copy of the weight that the first and the last stage share."""
        if not self.has_shared or not (self.is_first or self.is_last):
            return None
        ends = self.model.get_input_embeddings, self.model.get_output_embeddings
        weight: nn.Parameter = ends[self.is_last]().weight
        return weight

    def forward(self, value: torch.Tensor, **inputs: object) -> torch.Tensor:
        """Run the stage's layers."""
        inputs["input_ids" if self.is_first else "inputs_embeds"] = value
        if self.is_last:
            return self.model(**inputs, use_cache=False).logits
        return self.model.base_model(**inputs, use_cache=False).last_hidden_state


def require_stages(model: nn.Module, num_stages: int) -> None:
    """Reject a model that cannot be cut into stages."""
    parts = set(model.base_model.pp_plan or ())
    if not parts.issuperset(_PARTS) or not isinstance(module_facts(model).lm_head, nn.Module):
        problem = f"'{model.config.model_type}' has no pipeline plan in transformers, or the model has no head"
        hint = "Remove the option, or use a decoder that has base_model_pp_plan (llama, qwen3, gemma2)."
    elif (num_layers := len(model.base_model.layers)) < num_stages:
        problem, hint = f"it has {num_layers} layers", f"Pass pipeline_parallel_size={num_layers} or less."
    else:
        return
    message = f"pipeline_parallel_size={num_stages} is not supported for {type(model).__name__}: {problem}."
    raise ConfigError(message, hint=hint, option="pipeline_parallel_size", value=num_stages, problem=problem)


def _trains_shared(model: nn.Module) -> bool:
    """Return whether embeddings and head are one weight that is trained."""
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    weight = module_facts(head).weight
    return weight is not None and weight is embeddings.weight and weight.requires_grad


def cut(model: nn.Module, *, index: int, num_stages: int) -> Stage:
    """Leave one stage of a model that `require_stages` accepts, in place."""
    base, is_first, is_last = model.base_model, index == 0, index == num_stages - 1
    has_shared = _trains_shared(model)
    num_layers = len(base.layers)
    first, end = (num_layers * i // num_stages for i in (index, index + 1))
    for number in range(num_layers):
        if not first <= number < end:
            base.layers[number] = Absent()
    if not is_first:
        base.embed_tokens = Absent()
    if not is_last:
        base.norm, model.lm_head = Absent(), Absent()
    elif has_shared:
        base.embed_tokens.twin = (model.lm_head,)
    return Stage(model, is_first=is_first, is_last=is_last, has_shared=has_shared)


def num_microbatches(requested: int, *, batch_size: int, num_stages: int) -> int:
    """Choose the number of microbatches where -1 was requested, or check the number."""
    choices = [n for n in range(num_stages, batch_size + 1) if batch_size % n == 0]
    if requested == -1 and choices:
        return choices[0]  # the fewest equal parts that keep all stages busy
    if requested in choices:
        return requested
    batches = f"per_device_train_batch_size={num_stages} or a multiple of it, and dataloader_drop_last=True"
    message = f"A batch of {batch_size} has no equal microbatches for {num_stages} stages (requested: {requested})."
    hint = f"Pass {' or '.join(map(str, choices)) or batches}."
    raise ConfigError(message, hint=hint, option="pipeline_parallel_num_microbatches", value=requested, choices=choices)


class Pipeline:
    """Runs batches through the stages of a mesh of one dimension; the last one computes the loss.

    A training batch has `num_microbatches`, an evaluation as many as there are stages.
    """

    def __init__(self, stage: Stage, mesh: DeviceMesh, *, loss: Loss, num_microbatches: int) -> None:
        self.stage, self._mesh, self._loss, self._num_parts = stage, mesh, loss, num_microbatches
        self._schedules: dict[tuple[Any, ...], Schedule1F1B] = {}
        self._num_items: Any = None
        self._device = torch.device("neuron", torch.neuron.current_device())
        self._last = dist.get_global_rank(mesh.get_group(), mesh.size() - 1)

    @property
    def group(self) -> dist.ProcessGroup:
        """The processes of the stages, in order."""
        return self._mesh.get_group()

    def train(self, inputs: Mapping[str, torch.Tensor], num_items: torch.Tensor | int | None) -> torch.Tensor:
        """Run forward and backward of a batch; return the loss, on every stage."""
        with self._summed_gradient():
            _, loss = self._run("step", inputs, num_items)
        return loss

    @contextlib.contextmanager
    def _summed_gradient(self) -> Iterator[None]:
        """Add the other stage's gradient of a shared weight to that of a block: both stages step alike."""
        shared = self.stage.shared
        if shared is None:
            yield
            return
        before, shared.grad = shared.grad, None
        yield
        assert shared.grad is not None, "every batch passes through both ends"
        with torch.no_grad():
            # The two ends may divide the weight in different ways.
            grad = shared.grad
            whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
            total = whole + self._exchanged(whole.contiguous())
            if isinstance(shared, DTensor):
                total = distribute_tensor(total, shared.device_mesh, shared.placements, src_data_rank=None)
            shared.grad = total if before is None else before + total

    def _exchanged(self, own: torch.Tensor) -> torch.Tensor:
        """Return the tensor of the other end, which gets this one's."""
        other = dist.get_global_rank(self.group, 0 if self.stage.is_last else self._mesh.size() - 1)
        theirs = torch.empty_like(own)
        messages = [
            dist.P2POp(dist.isend, own, other, self.group),
            dist.P2POp(dist.irecv, theirs, other, self.group),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        return theirs

    def evaluate(
        self, inputs: Mapping[str, torch.Tensor], num_items: torch.Tensor | int | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return logits and loss of a batch, on every stage; no loss without labels."""
        logits, loss = self._run("eval", inputs, num_items)
        facts = [None if logits is None else (tuple(logits.shape), logits.dtype)]
        dist.broadcast_object_list(facts, src=self._last, group=self.group)
        if logits is None:
            assert facts[0] is not None
            shape, dtype = facts[0]
            logits = torch.empty(shape, dtype=dtype, device=self._device)
        logits = logits.contiguous()
        dist.broadcast(logits, src=self._last, group=self.group)
        return logits[: len(inputs["input_ids"])], loss if "labels" in inputs else None

    def clip(self, max_norm: float) -> torch.Tensor:
        """Clip gradients by their norm over all stages, and return it."""
        # Operators on lists take tensors of one mesh.
        kinds: dict[Any, list[nn.Parameter]] = {}
        for parameter in self.stage.parameters():
            if parameter.grad is not None:
                mesh = parameter.grad.device_mesh if isinstance(parameter.grad, DTensor) else None
                kinds.setdefault(mesh, []).append(parameter)
        counted_elsewhere = self.stage.shared if self.stage.is_last else None
        counted = [[p.grad for p in parameters if p is not counted_elsewhere] for parameters in kinds.values()]
        norms = [nn.utils.get_total_norm(gradients) for gradients in counted if gradients]
        whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
        square = torch.stack(whole).square().sum()
        dist.all_reduce(square, group=self.group)
        norm = square.sqrt()
        if max_norm != float("inf"):
            for parameters in kinds.values():
                nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    def _run(
        self, mode: str, inputs: Mapping[str, torch.Tensor], num_items: torch.Tensor | int | None
    ) -> tuple[Any, torch.Tensor]:
        num_parts = self._num_parts if mode == "step" else self._mesh.size()
        rows = padded(inputs, multiple=num_parts)
        tokens, labels = rows.pop("input_ids"), rows.pop("labels", None)
        if labels is not None:
            labels = rows.pop("shift_labels") if "shift_labels" in rows else next_labels(labels)
        self._num_items = num_items
        losses: list[torch.Tensor] = []
        first = (tokens,) if self.stage.is_first else ()
        target = {"target": labels, "losses": losses} if self.stage.is_last and labels is not None else {}
        schedule = self._schedule(mode, tuple(tokens.shape), num_parts, has_labels=labels is not None)
        logits = getattr(schedule, mode)(*first, **target, **rows)
        loss = torch.stack(losses).sum().detach() if losses else torch.zeros((), device=self._device)
        dist.broadcast(loss, src=self._last, group=self.group)
        return logits, loss

    def _schedule(self, mode: str, shape: tuple[int, ...], num_parts: int, *, has_labels: bool) -> Schedule1F1B:
        """Return the schedule for batches of a shape: the messages between stages have fixed shapes."""
        key = (mode, shape, num_parts, has_labels)
        if key not in self._schedules:
            index, num_stages = self._mesh.get_local_rank(), self._mesh.size()
            stage = PipelineStage(self.stage, index, num_stages, self._device, group=self.group)
            loss = (lambda logits, labels: self._loss(logits, labels, self._num_items)) if has_labels else None
            self._schedules[key] = Schedule1F1B(stage, num_parts, loss_fn=loss, scale_grads=False)
        return self._schedules[key]


def padded(inputs: Mapping[str, Any], *, multiple: int) -> dict[str, Any]:
    """Repeat the last row of a batch up to a multiple of rows; repeated rows have no labels."""
    num_rows = len(inputs["input_ids"])
    missing = -num_rows % multiple
    if not missing:
        return dict(inputs)

    def longer(name: str, value: object) -> Any:
        if not isinstance(value, torch.Tensor) or value.ndim == 0 or len(value) != num_rows:
            return value
        more = value[-1:].expand(missing, *value.shape[1:])
        return torch.cat([value, torch.full_like(more, IGNORED) if name in ("labels", "shift_labels") else more])

    return {name: longer(name, value) for name, value in inputs.items()}
