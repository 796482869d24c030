"""The loop of `sample`: filters in the documented order, draws from torch's generator, end tokens, streamers.

Each step divides by the temperature, keeps `top_k`, then `top_p` of the rest, and draws. It does not know models: it
gets a function from tokens to the next logits.

Shape legend: R rows, C columns, K tokens that are left, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import NoRepeatNGramLogitsProcessor

from ..errors import ConfigError

Next = Callable[[torch.Tensor], torch.Tensor]
"""From the newest tokens [R] to the next logits [R, V]."""


_OF_ROWS = ("top_k", "top_p", "temperature", "top_p_min_tokens")
"""Settings that may have a value for each row."""


@dataclasses.dataclass(kw_only=True)
class Sampling:
    """How tokens are drawn. A list of `top_k`, `top_p`, or `temperature` has a value for each row."""

    top_k: int | Sequence[int] = 50
    top_p: float | Sequence[float] = 1.0
    temperature: float | Sequence[float] = 1.0
    top_p_min_tokens: int | Sequence[int] = 1
    global_top_k: int | None = None
    """Largest logits that take part in any row; None: all."""
    deterministic: bool = False
    """Take the token where 0.5 falls in the cumulated probabilities, in place of a random number."""
    do_sample: bool = True
    no_repeat_ngram_size: int | None = None

    def __post_init__(self) -> None:
        for temperature in _each(self.temperature):
            if not isinstance(temperature, (int, float)) or not temperature > 0:
                raise _refused("temperature", temperature, "a number above 0, such as 0.7")
        for top_p in _each(self.top_p):
            if not isinstance(top_p, (int, float)) or not 0 < top_p <= 1:
                raise _refused("top_p", top_p, "a number above 0, at most 1")
        numbers = [("top_k", top_k) for top_k in _each(self.top_k)]
        for name in ("global_top_k", "no_repeat_ngram_size"):
            if (number := getattr(self, name)) is not None:
                numbers.append((name, number))
        for name, number in numbers:
            if not isinstance(number, int) or number < 1:
                raise _refused(name, number, "a whole number, at least 1")

    def draw(self, ids_RC: torch.Tensor, logits_RV: torch.Tensor) -> torch.Tensor:
        """Return the next tokens [R] after sequences."""
        scores_RV = logits_RV.float()
        if self.no_repeat_ngram_size:
            scores_RV = NoRepeatNGramLogitsProcessor(self.no_repeat_ngram_size)(ids_RC, scores_RV)
        if not self.do_sample or self.top_k == 1:
            return torch.from_numpy(scores_RV.numpy().argmax(-1))
        probabilities_RK, tokens_RK = self.filtered(scores_RV)
        if self.deterministic:
            cumulated_RK = probabilities_RK.cumsum(-1)
            drawn_R1 = (cumulated_RK < 0.5).sum(-1, keepdim=True)
        else:
            drawn_R1 = torch.multinomial(probabilities_RK, 1)
        return tokens_RK.gather(1, drawn_R1)[:, 0]

    def require_rows(self, num_rows: int) -> None:
        """Check that there is a setting for each row where rows have their own."""
        for name in _OF_ROWS:
            _column(getattr(self, name), num_rows)

    def of_row(self, row: int) -> Sampling:
        """Return the settings of one row."""
        lists = {name: value for name in _OF_ROWS if isinstance(value := getattr(self, name), (list, tuple))}
        return dataclasses.replace(self, **{name: value[row % len(value)] for name, value in lists.items()})

    def probabilities(self, logits_RV: torch.Tensor) -> torch.Tensor:
        """Return the probabilities [R, V] of all tokens, 0 where the filters leave none."""
        probabilities_RK, tokens_RK = self.filtered(logits_RV.float())
        return torch.zeros_like(logits_RV).scatter(1, tokens_RK, probabilities_RK)

    def filtered(self, logits_RV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the probabilities of the tokens that the filters leave, the likeliest first, and these tokens."""
        num_rows, num_tokens = logits_RV.shape
        scaled_RV = logits_RV / _column(self.temperature, num_rows)
        limit_R1 = _column(self.top_k, num_rows).clamp(max=min(num_tokens, self.global_top_k or num_tokens))
        values_RK, tokens_RK = scaled_RV.topk(int(limit_R1.max()), dim=-1)
        rank_K = torch.arange(values_RK.shape[1])
        values_RK = values_RK.masked_fill(rank_K >= limit_R1, -torch.inf)
        probabilities_RK = values_RK.softmax(-1)
        before_RK = probabilities_RK.cumsum(-1) - probabilities_RK
        is_left = (before_RK < _column(self.top_p, num_rows)) | (rank_K < _column(self.top_p_min_tokens, num_rows))
        width = int(is_left.sum(-1).max())  # a draw takes a random number for each column, as in upstream
        probabilities_RK = probabilities_RK.masked_fill(~is_left, 0.0)[:, :width]
        return probabilities_RK / probabilities_RK.sum(-1, keepdim=True), tokens_RK[:, :width]


def require_floats(**options: object) -> None:
    """Check that the temperature and `top_p` of a call are no whole numbers, which `sample` of upstream refuses."""
    for name, value in options.items():
        if isinstance(value, int) and not isinstance(value, bool):
            raise _refused(name, value, f"a float, such as {float(value)}")


def _each(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _column(value: object, num_rows: int) -> torch.Tensor:
    """A setting as [R, 1], or [1, 1] if all rows share it."""
    values = _each(value)
    if len(values) not in (1, num_rows):
        message = f"There are {len(values)} settings for {num_rows} rows."
        raise ConfigError(message, hint=f"Pass one value, or {num_rows}.", num_settings=len(values), num_rows=num_rows)
    return torch.tensor(values)[:, None]


def _refused(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name}={value!r} is not {expected}.", hint=f"Pass {expected}.", option=name, value=value)


def run(
    ids_RC: torch.Tensor,
    logits_RV: torch.Tensor,
    following: Next,
    *,
    sampling: Sampling,
    sequence_length: int,
    end_tokens: Sequence[int],
    streamer: Any = None,
    stopping_criteria: Any = None,
    scores: list[torch.Tensor] | None = None,
) -> torch.Tensor:
    """Return prompts with their answers [R, at most `sequence_length`].

    Args:
        ids_RC: the prompts.
        logits_RV: logits after the prompts.
        following: adds tokens and returns the next logits.
        sampling: how tokens are drawn.
        sequence_length: tokens of the longest result, prompt included.
        end_tokens: tokens that end a row; a row that has ended is filled with the first of them.
        streamer: gets the tokens [R, 1] of each step, or the whole sequences if it has `response_with_prefix`.
        stopping_criteria: called with the sequences and the logits; True ends all rows.
        scores: list that gets the logits of each step.
    """
    length, num_rows = ids_RC.shape[1], len(ids_RC)
    ids_RL = torch.empty(num_rows, max(length, sequence_length), dtype=torch.long)
    ids_RL[:, :length] = ids_RC
    columns, has_ended = ids_RL.numpy(), [False] * num_rows  # an operator of torch takes longer between two steps
    while length < sequence_length:
        tokens_R = sampling.draw(ids_RL[:, :length], logits_RV)
        if scores is not None:
            scores.append(logits_RV)
        if end_tokens:
            tokens_R = _ended(tokens_R, has_ended, end_tokens)
        columns[:, length] = tokens_R.numpy()
        length += 1
        if streamer is not None:
            whole = getattr(streamer, "response_with_prefix", False)
            streamer.put(ids_RL[:, :length].clone() if whole else tokens_R[:, None])
        if all(has_ended) or length >= sequence_length:
            break
        if stopping_criteria is not None and _is_stopped(stopping_criteria, ids_RL[:, :length], logits_RV):
            break
        logits_RV = following(tokens_R)
    if streamer is not None:
        streamer.end()
    return ids_RL[:, :length].clone()


def _ended(tokens_R: torch.Tensor, has_ended: list[bool], ends: Sequence[int]) -> torch.Tensor:
    """Return tokens with the first end token in rows that have ended, and note the rows that end now."""
    tokens = tokens_R.tolist()
    if any(has_ended):
        tokens = [ends[0] if ended else token for token, ended in zip(tokens, has_ended, strict=True)]
        tokens_R = torch.tensor(tokens)
    has_ended[:] = [ended or token in ends for token, ended in zip(tokens, has_ended, strict=True)]
    return tokens_R


def _is_stopped(criteria: Any, ids_RC: torch.Tensor, logits_RV: torch.Tensor) -> bool:
    """Whether criteria end all rows: a list of them, or one call."""
    calls = criteria if isinstance(criteria, (list, tuple)) else [criteria]
    return any(bool(torch.as_tensor(call(ids_RC, logits_RV)).all()) for call in calls)
