"""Recurrences of transformers' layers with a state that is a graph input and with padding that leaves no trace.

transformers runs them by functions of the model's file, with equal names in all files. While a model is traced these
take the state from the cache, and tokens that are padding get what changes no state: a time step of 0 (Mamba), a
decay of 1 and a learning rate of 0 (delta rule). Padding is behind a row's tokens, so no real token sees its results.

Shape legend: B rows, T tokens, D channels, N state width of a channel.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...upstream.contract import replaced
from ...upstream.modeling_files import DELTA_RULE, KIMI_DELTA_RULE, SELECTIVE_SCAN, STATE_SPACE_SCAN
from ..common import gated_delta_rule
from .cache import StateCache
from .recurrences import layers_from_cache, linear_recurrence

SCAN_LENGTH = 64
"""Tokens of which all states of a selective scan are in memory at once."""


@contextlib.contextmanager
def from_cache(model: nn.Module, cache: StateCache) -> Iterator[None]:
    """Run a model whose recurrences start from the states of a cache and see its real tokens only."""
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    with contextlib.ExitStack() as stack:
        for file in files:
            originals = {name: getattr(file, name) for name in _SCANS if hasattr(file, name)}
            scans = {name: functools.partial(_SCANS[name], cache, one) for name, one in originals.items()}
            stack.enter_context(replaced(file, scans))
        stack.enter_context(layers_from_cache(model, cache))
        yield


def _selective_scan(
    cache: StateCache,
    original: Callable[..., Any],
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **options: object,
) -> Any:
    """Mamba's selective scan (Gu and Dao 2023, algorithm 2) in log2(T) steps; transformers has a step for each token.

    transformers' version starts from zeros, also where a sequence goes on. Inputs are [B, D, T], B and C [B, N, T].
    """
    assert return_last_state, "a cache keeps the last state"
    x_BDT = hidden_states.float()
    dt_BDT = dt.float() if delta_bias is None else dt.float() + delta_bias[:, None]
    dt_BDT = F.softplus(dt_BDT) if delta_softplus else dt_BDT
    dt_BDT = torch.where(cache.real(dt.shape[2])[:, None], dt_BDT, 0.0)
    initial = cache.initial_state()
    if initial is not None and initial.ndim == 4:
        initial = initial[:, cache.num_scans - 1]  # Zamba scans one head after the other
    state_BDN = x_BDT.new_zeros(*x_BDT.shape[:2], A.shape[1]) if initial is None else initial
    outputs = []
    for start in range(0, x_BDT.shape[2], SCAN_LENGTH):
        x, step, b, c = (tensor[..., start : start + SCAN_LENGTH] for tensor in (x_BDT, dt_BDT, B.float(), C.float()))
        decay_BDTN = torch.exp(A[:, None] * step[..., None])
        added_BDTN = (step * x)[..., None] * b.transpose(1, 2)[:, None]
        states_BDTN = linear_recurrence(decay_BDTN, added_BDTN, state_BDN)
        state_BDN = states_BDTN[:, :, -1]
        outputs.append((states_BDTN * c.transpose(1, 2)[:, None]).sum(-1))
    y_BDT = torch.cat(outputs, -1)
    if D is not None:
        y_BDT = y_BDT + x_BDT * D[:, None]
    if z is not None:
        y_BDT = y_BDT * F.silu(z)
    return y_BDT, state_BDN


def _state_space(
    cache: StateCache,
    original: Callable[..., Any],
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    *arguments: object,
    chunk_size: int,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    **options: object,
) -> Any:
    """Mamba 2 (Dao and Gu 2024, sec. 6): the time steps are computed here, and those of padding are 0."""
    length = hidden_states.shape[1]
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = (F.softplus(dt) if dt_softplus else dt).clamp(*dt_limit)
    dt = torch.where(cache.real(length)[..., None], dt, 0.0)
    options |= {"initial_states": cache.initial_state(), "chunk_size": min(chunk_size, length)}
    return original(hidden_states, dt, *arguments, **options)


def _delta_rule(
    cache: StateCache,
    original: Callable[..., Any],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    **options: object,
) -> Any:
    """The gated delta rule, with a decay for each head or for each channel."""
    assert options["use_qk_l2norm_in_kernel"], "queries and keys are normalized"
    real_BT1 = cache.real(query.shape[1])[..., None]
    decay_BTNW = torch.where(real_BT1[..., None], g if g.ndim == 4 else g[..., None], 0.0)
    rate_BTN = torch.where(real_BT1, beta, 0.0)
    mixed, state = gated_delta_rule(query, key, value, decay_BTNW, rate_BTN, cache.initial_state())
    return mixed.to(query.dtype), state


_SCANS: dict[str, Callable[..., Any]] = {
    SELECTIVE_SCAN.name: _selective_scan,
    STATE_SPACE_SCAN.name: _state_space,
    DELTA_RULE.name: _delta_rule,
    KIMI_DELTA_RULE.name: _delta_rule,
}
"""Functions of modeling files, and what runs in their place."""
