"""Recurrent layers over a fixed number of steps: matmuls and activations, unrolled."""

from __future__ import annotations

from .base import table

table(
    "recurrent",
    {
        "DotGeneral Add Neg Exp Div Tanh Mul": "gru lstm",
        "DotGeneral Add Max": "rnn_relu",
        "DotGeneral Add Tanh": "rnn_tanh",
    },
)
