"""Patches of models that hear. Legend: B rows, T frames, C channels, D width."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from ....base.foreign import module_facts
from ....base.model_facts import facts_of
from ....base.transformers_types import PreTrainedModel
from ....upstream.contract import replaced
from .base import Arguments, Patch


def _xvector(
    model: PreTrainedModel, *, attention_mask: torch.Tensor, return_dict: bool = True, **arguments: object
) -> Any:
    from transformers.modeling_outputs import XVectorOutput

    output_hidden_states = arguments.pop("output_hidden_states", None)
    keep = True if model.config.use_weighted_layer_sum else output_hidden_states
    outputs = model.base_model(attention_mask=attention_mask, output_hidden_states=keep, return_dict=True, **arguments)
    if model.config.use_weighted_layer_sum:
        weights = nn.functional.softmax(model.layer_weights, dim=-1)
        hidden_BTD = (torch.stack(outputs.hidden_states, dim=1) * weights.view(-1, 1, 1)).sum(dim=1)
    else:
        hidden_BTD = outputs.last_hidden_state
    hidden_BTD = model.projector(hidden_BTD)
    for layer in model.tdnn:
        hidden_BTD = layer(hidden_BTD)
    lengths_B = model._get_feat_extract_output_lengths(attention_mask.sum(dim=1))
    lengths_B = lengths_B - sum(layer.dilation * (layer.kernel_size - 1) for layer in model.tdnn)
    valid_BT1 = (torch.arange(hidden_BTD.shape[1]) < lengths_B[:, None]).unsqueeze(-1)
    count_B1 = lengths_B[:, None].to(hidden_BTD.dtype)
    mean_BD = (hidden_BTD * valid_BT1).sum(dim=1) / count_B1
    squares_BD = ((hidden_BTD - mean_BD[:, None]).square() * valid_BT1).sum(dim=1)
    pooled = torch.cat([mean_BD, (squares_BD / (count_B1 - 1)).sqrt()], dim=-1)
    embeddings = model.feature_extractor(pooled)
    return XVectorOutput(
        logits=model.classifier(embeddings),
        embeddings=embeddings,
        hidden_states=outputs.hidden_states if output_hidden_states else None,
        attentions=outputs.attentions,
    )


XVECTOR = Patch(
    reason="each row is cut at its own length before mean and deviation are taken; masked sums take its place",
    applies=lambda config, task: task == "audio-xvector",
    around=lambda model, arguments: replaced(model, {"forward": functools.partial(_xvector, model)}),
)


@contextlib.contextmanager
def _normed_by_mask(model: nn.Module, arguments: Arguments) -> Iterator[None]:
    lengths_B = arguments["attention_mask"].sum(dim=1)
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            conv, norm = module_facts(module).conv, module_facts(module).layer_norm
            if isinstance(conv, nn.Conv1d) and isinstance(norm, nn.GroupNorm):
                frames_B = (lengths_B - conv.kernel_size[0]) // conv.stride[0] + 1
                stack.enter_context(masked_norm(norm, frames_B))
        yield


def masked_norm(norm: nn.GroupNorm, frames_B: torch.Tensor) -> AbstractContextManager[None]:
    """The norm takes its statistics, in float32 as torch's does, from the real frames of each row only."""
    assert norm.num_groups in (1, norm.num_channels), "one group of all channels, or one for each channel"
    dims, per_frame = ((1, 2), norm.num_channels) if norm.num_groups == 1 else ((2,), 1)

    def forward(hidden_BCT: torch.Tensor) -> torch.Tensor:
        valid_B1T = (torch.arange(hidden_BCT.shape[2]) < frames_B[:, None])[:, None]
        count_B11 = (frames_B * per_frame)[:, None, None].float()
        wide_BCT = hidden_BCT.float()
        centered_BCT = wide_BCT - (wide_BCT * valid_B1T).sum(dims, keepdim=True) / count_B11
        variance = (centered_BCT.square() * valid_B1T).sum(dims, keepdim=True) / count_B11
        scaled_BCT = centered_BCT * torch.rsqrt(variance + norm.eps)
        return (scaled_BCT * norm.weight[:, None] + norm.bias[:, None]).to(hidden_BCT.dtype)

    return replaced(norm, {"forward": forward})


GROUP_NORM = Patch(
    reason="the first layer normalizes over the whole recording; padding is left out of its statistics",
    applies=lambda config, task: facts_of(config).feat_extract_norm == "group",
    around=_normed_by_mask,
)


@contextlib.contextmanager
def _depthwise_by_mask(model: PreTrainedModel, arguments: Arguments) -> Iterator[None]:
    valid_BT = _valid_frames(model, arguments)
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "depthwise_conv"):
                stack.enter_context(_masked_frames(module.depthwise_conv, valid_BT))
        yield


@contextlib.contextmanager
def _positions_by_mask(model: PreTrainedModel, arguments: Arguments) -> Iterator[None]:
    valid_BT = _valid_frames(model, arguments)
    positions = next(module for path, module in model.named_modules() if path.endswith("pos_conv_embed"))
    original = positions.forward
    with contextlib.ExitStack() as stack:
        # A copy, because padding is cleared in place in what is handed over.
        stack.enter_context(replaced(positions, {"forward": lambda hidden_BTD: original(hidden_BTD.clone())}))
        for layer in positions.layers:
            stack.enter_context(_masked_frames(layer, valid_BT))
        yield


def _valid_frames(model: PreTrainedModel, arguments: Arguments) -> Callable[[int], torch.Tensor]:
    """Which of so many frames are real."""
    frames_B = model._get_feat_extract_output_lengths(arguments["attention_mask"].sum(dim=1))
    return lambda num_frames: torch.arange(num_frames) < frames_B[:, None]


def _masked_frames(module: nn.Module, valid_BT: Callable[[int], torch.Tensor]) -> AbstractContextManager[None]:
    """The module gets zeros [rows, width, frames] where frames are padding."""
    original = module.forward

    def forward(hidden_BDT: torch.Tensor) -> torch.Tensor:
        return original(hidden_BDT * valid_BT(hidden_BDT.shape[-1]).unsqueeze(1).to(hidden_BDT.dtype))

    return replaced(module, {"forward": forward})


_FRAMES_REASON = (
    "its convolutions read the frames beside each frame, padding too; padding is zero for them, as past an end"
)


DEPTHWISE = Patch(reason=_FRAMES_REASON, around=_depthwise_by_mask)


POSITIONS = Patch(reason=_FRAMES_REASON, around=_positions_by_mask)
