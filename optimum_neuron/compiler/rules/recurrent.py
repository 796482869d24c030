"""Recurrent layers over a fixed number of steps: products and activations, unrolled."""

from __future__ import annotations

from .base import table

table(
    "recurrent",
    {
        "aten.gru": "DotGeneral Add Neg Exp Div Tanh Mul",
        "aten.lstm": "DotGeneral Add Neg Exp Div Tanh Mul",
        "aten.rnn_relu": "DotGeneral Add Max",
        "aten.rnn_tanh": "DotGeneral Add Tanh",
    },
)
