"""Parameters of sampling for each row, and the sampler that NxD Inference compiles into decode steps.

Of the largest `global_topk` logits, each row keeps its `top_k`, divides them by its temperature, keeps its `top_p`, and
takes the token where a uniform random number falls, or 0.5 with `deterministic`.

Shape legend: R rows, K likeliest tokens, V vocabulary.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ..errors import ConfigError, ShapeError

if TYPE_CHECKING:
    from .keywords import Keywords

logger = logging.getLogger(__name__)

Numbers: TypeAlias = float | Sequence[float] | torch.Tensor
_IGNORED = -3000.0
"""In place of logits that are left out: their probability is 0."""
_COLUMNS = 3


def prepare_sampling_params(
    batch_size: int, top_k: Numbers = 1, top_p: Numbers = 1.0, temperature: Numbers = 1.0
) -> torch.Tensor:
    """Return top_k, top_p, and temperature of each row as a tensor [batch, 3].

    Args:
        batch_size: number of rows.
        top_k: likeliest tokens to choose from, one number for all rows or one for each; 1 takes the likeliest.
        top_p: sum of probabilities of these tokens, likewise.
        temperature: divisor of the logits, likewise.

    Raises:
        ShapeError: there are values for another number of rows.
    """
    if batch_size < 1:
        message = f"batch_size={batch_size} is not a number of at least 1."
        raise ConfigError(message, hint="Pass the number of prompts.", option="batch_size", value=batch_size)
    given = {"top_k": top_k, "top_p": top_p, "temperature": temperature}
    columns = {name: _column(name, value) for name, value in given.items()}
    for name, column in columns.items():
        if len(column) not in (1, batch_size):
            raise ShapeError(
                f"{name} has {len(column)} values for {batch_size} rows.",
                hint=f"Pass one value, or {batch_size}.",
                argument=name,
                num_values=len(column),
                num_rows=batch_size,
            )
    return torch.stack([column.expand(batch_size) for column in columns.values()], dim=1)


def _column(name: str, value: Numbers) -> torch.Tensor:
    """The numbers of an argument."""
    try:
        return torch.as_tensor(value, dtype=torch.float32).reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        message = f"{name}={value!r} is no number and no list of numbers."
        raise ConfigError(message, hint="Pass one number for all rows, or one for each.", option=name) from error


def validate_sampling_params(params: torch.Tensor, on_device_sampling_config: Any) -> None:
    """Check parameters [batch, 3] of each row.

    Args:
        params: top_k, top_p, and temperature.
        on_device_sampling_config: the compiled configuration, or a mapping with `global_topk`.

    Raises:
        ShapeError: the tensor has another shape.
        ConfigError: a value is out of range.
    """
    params = torch.as_tensor(params)
    if params.ndim != 2 or params.shape[1] != _COLUMNS:
        raise ShapeError(
            f"Expected tensor of shape (batch_size, 3), not {tuple(params.shape)}.",
            hint="Pass the result of prepare_sampling_params.",
            shape=list(params.shape),
        )
    given = on_device_sampling_config
    limit = given["global_topk"] if isinstance(given, Mapping) else given.global_topk
    limit = limit if limit > 0 else math.inf  # 0: all tokens
    top_k, top_p, temperature = params.float().unbind(1)
    _require("top-k", top_k, (top_k == -1) | ((top_k >= 0) & (top_k <= limit)), f"-1, or from 0 to global_topk={limit}")
    is_whole = top_k == top_k.floor()
    if not bool(is_whole.all()):
        message = f"top-k values should be able to be represented as integer values: {top_k[~is_whole].tolist()}."
        raise ConfigError(message, hint="Pass whole numbers.", option="top-k", values=top_k.tolist())
    _require("top-p", top_p, (top_p > 0) & (top_p <= 1), "above 0, at most 1")
    _require("temperature", temperature, temperature >= 0, "at least 0")
    if bool(((temperature == 0) & (top_k < 1)).any()):
        message = "Invalid sampling parameters found: temperature 0 is greedy, and top_k is not 1."
        raise ConfigError(message, hint="Pass top_k=1.", option="top-k", values=top_k.tolist())
    if bool((top_k < 1).any()):
        logger.warning("top_k 0 and -1 pick any of the likeliest tokens with equal probability.")


def _require(name: str, values: torch.Tensor, is_valid: torch.Tensor, range_: str) -> None:
    if not bool(is_valid.all()):
        message = f"Invalid {name} values found: {values[~is_valid].tolist()}."
        raise ConfigError(message, hint=f"Pass values {range_}.", option=name, values=values.tolist())


def infer_sampling_params(params: torch.Tensor) -> torch.Tensor:
    """Set top_k and top_p to 1, in place, where the temperature is 0; return the parameters."""
    if bool((is_greedy := params[:, 2] == 0).any()):
        logger.warning("A temperature of 0 is greedy: top_k and top_p become 1.")
        params[is_greedy, :2] = 1
    return params


class Sampler(torch.nn.Module):
    """Picks tokens from logits.

    Args:
        neuron_config: has `on_device_sampling_config`.
        do_sample: whether tokens are drawn; None: as the configuration says.
    """

    def __init__(self, neuron_config: Keywords, do_sample: bool | None = None) -> None:
        super().__init__()
        config = neuron_config.on_device_sampling_config
        if config is None:
            hint = "Pass OnDeviceSamplingConfig()."
            raise ConfigError("There is no on_device_sampling_config.", hint=hint, option="on_device_sampling_config")
        self.neuron_config, self.dynamic = neuron_config, config.dynamic
        self.do_sample = config.do_sample if do_sample is None else do_sample
        self.deterministic, self.global_topk = config.deterministic, config.global_topk

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, whatever the parameters are."""
        return not (self.do_sample or self.dynamic)

    def forward(
        self,
        token_logits: torch.Tensor,
        sampling_params: torch.Tensor | None = None,
        return_values: bool = False,
        rank_id: torch.Tensor | None = None,
    ) -> Any:
        """Return a token for each row of logits [R, V], or for each token of [R, T, V], in one dimension.

        Args:
            token_logits: the logits.
            sampling_params: parameters [R, 3] of `prepare_sampling_params`; a greedy sampler needs none.
            return_values: return the likeliest tokens and their probabilities, of which none is drawn.
            rank_id: not needed: logits are whole here.
        """
        if self.is_greedy:
            tokens = token_logits.argmax(-1)
            return (tokens, torch.ones_like(tokens, dtype=token_logits.dtype)) if return_values else tokens
        if sampling_params is None:
            raise ConfigError("Sampling needs sampling_params.", hint="Pass the result of prepare_sampling_params.")
        logits_K, tokens_K = self._likeliest(token_logits)
        shape = (-1, *[1] * (token_logits.ndim - 1))
        top_k, top_p, temperature = (column.reshape(shape) for column in sampling_params.float().unbind(1))
        top_k, top_p = (torch.where(temperature == 0, 1.0, column) for column in (top_k, top_p))
        logits_K = logits_K.masked_fill(torch.arange(logits_K.shape[-1]) >= top_k, _IGNORED)
        logits_K = logits_K / torch.where(temperature == 0, 1.0, temperature)
        cumulated_K = logits_K.softmax(-1).cumsum(-1)
        is_left_out = cumulated_K > top_p
        is_left_out[..., 0] = False
        probabilities_K = logits_K.masked_fill(is_left_out, _IGNORED).softmax(-1)
        if return_values:
            return tokens_K, probabilities_K
        return tokens_K.gather(-1, self._multinomial(probabilities_K, dim=-1)).flatten()

    def _likeliest(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The largest logits, in order, and their tokens."""
        number = logits.shape[-1] if self.global_topk <= 0 else min(self.global_topk, logits.shape[-1])
        values, tokens = logits.float().topk(number, dim=-1)
        return values, tokens

    def _multinomial(self, probabilities: torch.Tensor, dim: int = -1, num_samples: int = 1) -> torch.Tensor:
        """Return the places, with one dimension of 1, where random numbers fall in the cumulated probabilities."""
        cumulated = probabilities.cumsum(dim)
        cumulated = cumulated / cumulated[..., -1:]
        cumulated[..., -1:] = 1  # rounding must not leave a number behind the last place
        return (self._rand_selector(cumulated, num_samples) > cumulated).sum(dim, keepdim=True)

    def _rand_selector(self, cumulated: torch.Tensor, num_samples: int = 1) -> torch.Tensor:
        """Return a number between 0 and 1 for each row."""
        shape = (cumulated.shape[0], *[1] * (cumulated.ndim - 2), num_samples)
        return torch.full(shape, 0.5) if self.deterministic else torch.rand(shape)


def check_params(params: torch.Tensor, on_device_sampling_config: Any, num_rows: int) -> None:
    """Check parameters of sampling, one row for each of the batch."""
    validate_sampling_params(params, on_device_sampling_config)
    if len(params) != num_rows:
        raise ShapeError(
            f"sampling_params has {len(params)} rows for {num_rows} prompts.",
            hint=f"Pass prepare_sampling_params(batch_size={num_rows}, ...).",
            num_params=len(params),
            num_rows=num_rows,
        )


def cumsum(tensor_in: torch.Tensor, dim: int, on_cpu: bool = False) -> torch.Tensor:
    """Return cumulated sums; `on_cpu` is not needed: torch's operator runs on both."""
    return torch.cumsum(tensor_in, dim)


def create_sampler(
    neuron_config: Keywords, lm_head_tp_degree: int | None = None, do_sample: bool | None = None
) -> Sampler:
    """Return the sampler of a configuration.

    Args:
        neuron_config: has `on_device_sampling_config`.
        lm_head_tp_degree: not needed: logits are whole here.
        do_sample: whether tokens are drawn; None: as the configuration says.
    """
    return Sampler(neuron_config, do_sample)
