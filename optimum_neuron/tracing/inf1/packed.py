"""LSTMs of packed sequences: three operators of torch that a core runs together, at the full length.

Packing is data-dependent, so a core never packs: a step computes all rows, and rows whose sequence has ended keep their
state. What the LSTM returns is then what it returns for the packed sequence, padded. Supported are the patterns of the
torch-neuron LSTM guide: pack_padded_sequence, LSTM, pad_packed_sequence, and final states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from .graph import Operation, Value

PACK, LSTM, PAD = "aten::_pack_padded_sequence", "aten::lstm", "aten::_pad_packed_sequence"


def is_packed(operation: Operation) -> bool:
    """Return whether an LSTM reads a packed sequence."""
    return operation.kind == LSTM and operation.node.schema().startswith("aten::lstm.data(")


def internal_values(operation: Operation) -> tuple[Value, ...]:
    """Return the results that only the same segment can read: on a core they are padded."""
    if operation.kind == PACK:
        return operation.outputs
    return operation.outputs[:1] if is_packed(operation) else ()


def packed_problem(operation: Operation) -> str:
    """Say why an operator of packed sequences cannot run on a core; "" where it can, or is another operator."""
    if operation.kind == PAD:
        return _maker_problem(operation.inputs[0], LSTM)
    if not is_packed(operation):
        return ""
    states, parameters = operation.inputs[2].elements or (), operation.inputs[3].elements or ()
    per_direction = 4 if operation.inputs[4].literal() else 2
    directions = operation.inputs[5].literal() * (2 if operation.inputs[8].literal() else 1)
    if len(parameters) != per_direction * directions:
        return "an LSTM with projections of its states"
    if any(_is_of_packed_data(state) for state in states):
        return "initial states of an LSTM are made of packed data"
    return _maker_problem(operation.inputs[0], PACK)


def _maker_problem(value: Value, kind: str) -> str:
    made_by = value.producer.kind if value.producer is not None else "an input of the model"
    return "" if made_by == kind else f"a packed sequence is made by {made_by}, not by {kind}"


def _is_of_packed_data(value: Value) -> bool:
    producer = value.producer
    if producer is None:
        return False
    return value in internal_values(producer)[:1] or any(
        _is_of_packed_data(read) for read in producer.inputs if read.is_tensor
    )


def _pack(padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def _lstm(
    padded: torch.Tensor,
    lengths: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run an LSTM on padded rows; dropout is off, because models are traced for inference."""
    per_direction, directions = 4 if has_biases else 2, 2 if bidirectional else 1
    hidden, cells = [], []
    for layer in range(num_layers):
        results = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = parameters[index * per_direction : (index + 1) * per_direction]
            result, h, c = _one_direction(
                padded, lengths, (states[0][index], states[1][index]), weights, direction == 1
            )
            results.append(result)
            hidden.append(h)
            cells.append(c)
        padded = torch.cat(results, 2) if bidirectional else results[0]
    return padded, torch.stack(hidden), torch.stack(cells)


def _one_direction(
    padded: torch.Tensor,
    lengths: torch.Tensor,
    state: tuple[torch.Tensor, torch.Tensor],
    weights: Sequence[torch.Tensor],
    backward: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run one layer in one direction: backward, a row begins at the end of its own sequence."""
    (h, c), biases = state, weights[2:] or (None, None)
    inputs, num_steps = F.linear(padded, weights[0], biases[0]), padded.shape[0]
    results: list[Any] = [None] * num_steps
    for step in reversed(range(num_steps)) if backward else range(num_steps):
        i, f, g, o = (inputs[step] + F.linear(h, weights[1], biases[1])).chunk(4, 1)
        new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        new_h = torch.sigmoid(o) * torch.tanh(new_c)
        is_running = (lengths > step).unsqueeze(1)
        h, c = torch.where(is_running, new_h, h), torch.where(is_running, new_c, c)
        results[step] = torch.where(is_running, new_h, torch.zeros_like(new_h))
    return torch.stack(results), h, c


def _pad(
    padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    num_steps = padded.shape[0]
    if padding_value:
        steps = torch.arange(num_steps).unsqueeze(1)
        padded = padded.masked_fill((steps >= lengths.unsqueeze(0)).unsqueeze(2), padding_value)
    total_length = num_steps if total_length <= 0 else total_length
    padded = F.pad(padded[:total_length], (0, 0, 0, 0, 0, max(0, total_length - num_steps)), value=padding_value)
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def on_core(operation: Operation) -> Callable[..., Any] | None:
    """Return how a core computes an operator of packed sequences, None for other operators."""
    return _lstm if is_packed(operation) else _ON_CORE.get(operation.kind)


_ON_CORE: Mapping[str, Callable[..., Any]] = {PACK: _pack, PAD: _pad}
