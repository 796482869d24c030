"""Rows of states without slots, for calls whose rows are not those of the state.

A step of continuous batching has a row for each state, in order. A chunk of a prompt has its own row, and an
input of its graph says which state it continues.

Shape legend: R rows of a state, B rows of a call.
"""

from __future__ import annotations

import torch


def state_of_rows(state_R: torch.Tensor, rows_B: torch.Tensor | None) -> torch.Tensor:
    """Return the states of a call's rows; `rows_B` is None where they are all states, in order."""
    return state_R if rows_B is None else state_R[rows_B]


def keep_state(state_R: torch.Tensor, new_B: torch.Tensor, rows_B: torch.Tensor | None) -> None:
    """Write the new states of a call's rows in place."""
    if rows_B is None:
        state_R.copy_(new_B)
    else:
        state_R[rows_B] = new_B.to(state_R.dtype)
