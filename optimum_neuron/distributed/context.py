"""Context parallelism: each core has a part of every sequence, and in attention the keys and values of all of it.

Elsewhere a decoder works on each token by itself. So three things are exchanged: keys and values (gathered, as in "The
Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.2), padding masks, and the loss, which is a sum over tokens.
FSDP2 averages gradients over the cores of a sequence as over replicas, so tensors shared in the forward pass are summed
in the backward pass. A model outside of `running` computes whole sequences. It does not depend on trainers.

    context = ContextParallel(model, mesh)
    with context.running():
        loss = context.sum(model(**context.split(batch)).loss)
        loss.backward()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from accelerate.utils import recursively_apply
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..base.labels import next_labels
from ..base.model_facts import facts_of
from ..errors import ConfigError, ModelError, raise_together
from .plans import CONTEXT_FAMILIES
from .styles import redistribute

if TYPE_CHECKING:
    from torch import nn

ATTENTION = "sdpa_of_parts"
"""Name of this attention among transformers' implementations."""

_current: ContextParallel | None = None
"""The sequences that the running forward pass is a part of: transformers passes no such argument to attention."""


class ContextParallel:
    """The exchange between the cores of a sequence.

    Args:
        model: a decoder that `require_context` accepts; its attention is changed in place.
        mesh: of one dimension, the cores of a sequence in the order of their tokens.
    """

    def __init__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        model.set_attn_implementation(ATTENTION)

    @property
    def group(self) -> dist.ProcessGroup:
        """The processes of a sequence, in the order of their tokens."""
        return self._mesh.get_group()

    @property
    def is_running(self) -> bool:
        """Whether the running pass works on shards."""
        return _current is self

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run forward and backward passes on parts."""
        global _current
        before, _current = _current, self
        try:
            yield
        finally:
            _current = before

    def split(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return this core's part of a batch, with labels of the next token of the whole sequence in `shift_labels`.

        Args:
            batch: inputs of a decoder; tensors whose second axis are tokens are split.
        """
        require_divisible(batch, self._mesh.size())
        num_rows, length = batch["input_ids"].shape
        whole = dict(batch)
        # transformers takes positions from 0 and, without a mask, a jump in them for the start of another document.
        whole.setdefault("position_ids", torch.arange(length, device=batch["input_ids"].device).expand(num_rows, -1))
        whole.setdefault("attention_mask", torch.ones_like(batch["input_ids"]))
        if "labels" in batch:
            whole["shift_labels"] = next_labels(batch["labels"])
        return {name: self._part(value) if _has_tokens(value, length) else value for name, value in whole.items()}

    def join(self, results: object, *, num_tokens: int) -> Any:
        """Return the results of whole sequences, without gradients, from any structure of tensors."""
        part = num_tokens // self._mesh.size()

        def whole(tensor: torch.Tensor) -> torch.Tensor:
            return redistribute(tensor, self._mesh, Shard(1), Replicate()) if _has_tokens(tensor, part) else tensor

        with torch.no_grad():
            return recursively_apply(whole, results)

    def gather(self, part: torch.Tensor, axis: int) -> torch.Tensor:
        """Return a tensor of all tokens; each core gets the gradients of its part from all cores."""
        return redistribute(part, self._mesh, Shard(axis), Replicate(), gradient=Partial())

    def sum(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the sum of the parts of a loss, on every core."""
        return redistribute(loss, self._mesh, Partial(), Replicate(), gradient=Partial())

    def mask(self, *, q_length: int, kv_length: int, attention_mask: torch.Tensor, **options: object) -> torch.Tensor:
        """Return the mask of this part's queries and all keys: 0 if a query sees a key, else minus infinity.

        From a Boolean mask, every layer would make one like this and keep it for the backward pass.
        """
        assert q_length == kv_length == attention_mask.shape[1]
        options |= {"q_offset": self._mesh.get_local_rank() * q_length, "allow_is_causal_skip": False}
        everyone = self.gather(attention_mask.to(torch.int32), 1).bool()
        seen = sdpa_mask(q_length=q_length, kv_length=everyone.shape[1], attention_mask=everyone, **options)
        return torch.zeros_like(seen, dtype=torch.float32).masked_fill(~seen, -torch.inf)

    def _part(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.chunk(self._mesh.size(), dim=1)[self._mesh.get_local_rank()].contiguous()


def require_context(model: nn.Module, size: int) -> None:
    """Reject a model whose sequences cannot be shared."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config, name = model.config, type(model).__name__
    problems = []
    if config.model_type not in CONTEXT_FAMILIES or name not in set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
        option, choices = "context_parallel_size", sorted(CONTEXT_FAMILIES)
        message = f"{option}={size} is not supported for {name} ('{config.model_type}')."
        hint = f"Remove it, or use a causal language model of {', '.join(choices)}."
        problems.append(ConfigError(message, hint=hint, option=option, value=size, choices=choices))
    elif config._attn_implementation != "sdpa":
        problems.append(_required_setting("attn_implementation", config._attn_implementation, "sdpa", size))
    if facts_of(config).output_router_logits:
        problems.append(_required_setting("output_router_logits", True, False, size))
    raise_together(problems)


def _required_setting(option: str, value: object, required: object, size: int) -> ConfigError:
    message = f"context_parallel_size={size} does not support {option}={value!r}."
    hint = f"Load the model with {option}={required!r}."
    return ConfigError(message, hint=hint, option=option, value=value, choices=[required])


def require_divisible(batch: Mapping[str, Any], size: int) -> None:
    """Reject a batch whose sequences cannot be split."""
    mask, positions = batch.get("attention_mask"), batch.get("position_ids")
    length = batch["input_ids"].shape[1] if "input_ids" in batch else 0
    if not length:
        problem, hint = "no input_ids", "Pass input_ids, not inputs_embeds."
    elif length % size:
        problem = f"sequences of {length} tokens, which is not a multiple of {size}"
        hint = f"Pass pad_to_multiple_of={size} to the data collator, or remove context_parallel_size."
    elif mask is not None and mask.ndim != 2:
        problem = f"an attention_mask with {mask.ndim} axes"
        hint = "Pass an attention_mask with one row of 0 and 1 per sequence."
    elif positions is not None and bool((positions.diff(dim=-1) != 1).any()):
        problem = "packed sequences: position_ids start over within a row"
        hint = "Pass packing=False, or remove context_parallel_size."
    else:
        return
    message = f"context_parallel_size={size} cannot split this batch: it has {problem}."
    raise ModelError(message, hint=hint, option="context_parallel_size", value=size, num_tokens=length)


def _has_tokens(value: object, length: int) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 1 and value.shape[1] == length


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: object,
) -> Any:
    if _current is not None:
        key, value = _current.gather(key, 2), _current.gather(value, 2)
    return sdpa_attention_forward(module, query, key, value, attention_mask, **options)


def _mask(**options: Any) -> torch.Tensor | None:
    return sdpa_mask(**options) if _current is None else _current.mask(**options)


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _mask)
