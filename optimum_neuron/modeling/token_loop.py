"""The loop of `generate` for greedy decoding and sampling: one decode step a token, and little else.

transformers' own loop prepares masks, positions, and outputs for every token, which costs more than a tenth of a step
of a small model. This one keeps its results: processors, stopping criteria, streamers, and recorded scores are
transformers' objects, called in the same order, and sampling draws from the same random stream.

Shape legend: R rows, C columns of tokens so far, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from transformers.generation import (
    EosTokenCriteria,
    GenerateDecoderOnlyOutput,
    GenerateEncoderDecoderOutput,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
)

from ..base.core import Choice, Rejected
from ..batching import CandidateSampler, candidate_sampler
from ..engine import NEXT_TOKEN, TOP_LOGITS, TOP_TOKENS
from ..upstream.cache_argument import CACHE
from .cache import NeuronCache

if TYPE_CHECKING:
    from transformers import GenerationConfig

NextLogits = Callable[[torch.Tensor], dict[str, torch.Tensor]]
"""From the newest token of each row to the logits [R, 1, V] of the next, such as `engine.Steps`."""

COMPILED_STEPS, TRANSFORMERS = "compiled steps", "transformers"
_HOOKS = ("__call__", "forward", "prepare_inputs_for_generation", "_update_model_kwargs_for_generation")
"""Methods that transformers' loop calls for each token, and this one does not."""


def choose_loop(model: Any, settings: GenerationConfig, model_kwargs: dict[str, Any], *, synced: bool) -> Choice[str]:
    """Choose the loop that adds tokens to prompts, with the reason."""
    changed = [name for name in _HOOKS if not _is_known(getattr(model, name))]
    if synced:
        reason = "synced_gpus=True runs steps until other processes have ended"
    elif not isinstance(model_kwargs.get(CACHE), NeuronCache) or not model_kwargs.get("use_cache"):
        reason = "without a cache, every token runs the whole sequence again"
    elif settings.output_attentions or settings.output_hidden_states:
        reason = "results of each layer are requested"
    elif changed:
        reason = f"{', '.join(changed)} of the model was replaced"
    elif model._has_holes(model_kwargs):
        reason = "attention_mask has holes, which are checked for each token"
    else:
        rejected = Rejected(candidate=TRANSFORMERS, reason="it prepares masks and positions again for each token")
        return Choice(value=COMPILED_STEPS, reason="a token needs one decode step only", rejected=(rejected,))
    return Choice(value=TRANSFORMERS, reason=reason, rejected=(Rejected(candidate=COMPILED_STEPS, reason=reason),))


def _is_known(method: object) -> bool:
    return method.__module__.partition(".")[0] in (__name__.partition(".")[0], "transformers")


class Ends:
    """Which rows go on: transformers' criteria of lengths and end tokens on plain numbers, others as they are."""

    def __init__(self, criteria: StoppingCriteriaList) -> None:
        lengths = [one.max_length for one in criteria if type(one) is MaxLengthCriteria]
        self._max_length = min(lengths, default=math.inf)
        ends = [one.eos_token_id.reshape(-1).tolist() for one in criteria if type(one) is EosTokenCriteria]
        self._end_tokens = frozenset(token for tokens in ends for token in tokens)
        plain = (MaxLengthCriteria, EosTokenCriteria)
        self._others = StoppingCriteriaList(one for one in criteria if type(one) not in plain)

    @property
    def need_ids(self) -> bool:
        """Whether a criterion reads the tokens so far."""
        return bool(self._others)

    def __call__(
        self, num_columns: int, ids_RC: torch.Tensor, tokens_R: torch.Tensor, scores: torch.Tensor
    ) -> list[bool]:
        """Return for each row whether it goes on after these tokens, of which `ids_RC` has all if they are needed."""
        goes_on = [num_columns < self._max_length] * len(tokens_R)
        if self._end_tokens:
            goes_on = [
                one and token not in self._end_tokens for one, token in zip(goes_on, tokens_R.tolist(), strict=True)
            ]
        if self._others:
            stops = self._others(ids_RC, scores).tolist()
            goes_on = [one and not stop for one, stop in zip(goes_on, stops, strict=True)]
        return goes_on


@dataclasses.dataclass
class TokenLoop:
    """Adds tokens to prompts until all rows are finished."""

    settings: GenerationConfig
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    streamer: Any = None
    scores: tuple[torch.Tensor, ...] | None = None
    """Scores of each token, if requested."""
    logits: tuple[torch.Tensor, ...] | None = None
    """Logits of each token, if requested."""
    reads_all: str = ""
    """Why a token needs all logits; empty if it needs only the largest."""

    def __post_init__(self) -> None:
        self._sampler: CandidateSampler | None = None
        if self.settings.return_dict_in_generate:
            self.scores = () if self.settings.output_scores else None
            self.logits = () if self.settings.output_logits else None
        self._has_end = any(hasattr(criterion, "eos_token_id") for criterion in self.criteria)
        if self.scores is not None or self.logits is not None:
            self.reads_all = "the results have them"
        elif self.settings.do_sample:
            sampler = candidate_sampler(self.processors)
            if isinstance(sampler, str):
                self.reads_all = sampler
            else:
                self._sampler = sampler
        elif self.processors:
            self.reads_all = f"{', '.join(type(one).__name__ for one in self.processors)} changes them"

    def reading(self, num_candidates: int) -> str:
        """Return what is read of steps that return so many of the largest logits, with the reason."""
        if self.reads_all:
            return f"all logits are read: {self.reads_all}"
        if self._sampler is None:
            return "one token is read"
        if self._sampler.top_k >= num_candidates:
            return f"all logits are read: top_k={self._sampler.top_k} is not below max_topk={num_candidates}"
        return f"{num_candidates} candidates are read"

    def run(
        self, ids_RC: torch.Tensor, logits_R1V: torch.Tensor, steps: NextLogits, cache: NeuronCache
    ) -> torch.Tensor:
        """Return prompts with their answers [R, C].

        Args:
            ids_RC: the prompts.
            logits_R1V: logits after the prompts.
            steps: adds a token to each sequence and returns the next logits.
            cache: the cache, which gets all tokens but the last.
        """
        ends, goes_on, num_steps = Ends(self.criteria), [True] * len(ids_RC), 0
        results, num_prompt, answer = {"logits": logits_R1V}, ids_RC.shape[1], []
        needs_ids = ends.need_ids or (bool(self.processors) and self._sampler is None)
        try:
            while True:
                tokens_R = self._next(ids_RC, results)
                if self._has_end and not all(goes_on):
                    tokens_R = torch.where(torch.tensor(goes_on), tokens_R, self.settings._pad_token_tensor)
                answer.append(tokens_R)
                if needs_ids:
                    ids_RC = torch.cat([ids_RC, tokens_R[:, None]], 1)
                go_on = ends(num_prompt + len(answer), ids_RC, tokens_R, self.scores)
                goes_on = [a and b for a, b in zip(goes_on, go_on, strict=True)]
                if self.streamer is not None:
                    self.streamer.put(tokens_R)
                if not any(goes_on):
                    break
                results = steps(tokens_R)
                num_steps += 1
        finally:
            cache.add(num_steps, results["logits"])
        if self.streamer is not None:
            self.streamer.end()
        return ids_RC if needs_ids else torch.cat([ids_RC, torch.stack(answer, 1)], 1)

    def _next(self, ids_RC: torch.Tensor, results: dict[str, torch.Tensor]) -> torch.Tensor:
        """Pick the next token of each row."""
        if not self.reads_all and (tokens_R := self._likely(results)) is not None:
            return tokens_R
        logits_RV = results["logits"][:, -1].float()
        scores_RV = self.processors(ids_RC, logits_RV)
        if self.scores is not None:
            self.scores += (scores_RV,)
        if self.logits is not None:
            self.logits += (logits_RV,)
        if self.settings.do_sample:
            return torch.multinomial(scores_RV.softmax(-1), 1).squeeze(1)
        return _argmax(scores_RV)

    def _likely(self, results: dict[str, torch.Tensor]) -> torch.Tensor | None:
        """Pick tokens from the largest logits only; None where rounding decides."""
        logits_R1V, sampler = results["logits"], self._sampler
        if sampler is None:
            return results[NEXT_TOKEN].flatten() if NEXT_TOKEN in results else _argmax(logits_R1V)
        if TOP_LOGITS in results and sampler.top_k < results[TOP_LOGITS].shape[-1]:
            return sampler.pick(results[TOP_LOGITS][:, 0], results[TOP_TOKENS][:, 0], logits_R1V.shape[-1])
        return sampler.pick_from(logits_R1V[:, -1].float())

    def output(self, ids_RC: torch.Tensor, cache: NeuronCache, *, has_encoder: bool) -> Any:
        """Return the tokens, or transformers' class of results if the settings request it."""
        if not self.settings.return_dict_in_generate:
            return ids_RC
        kind = GenerateEncoderDecoderOutput if has_encoder else GenerateDecoderOnlyOutput
        return kind(sequences=ids_RC, scores=self.scores, logits=self.logits, **{CACHE: cache})


def _argmax(scores: torch.Tensor) -> torch.Tensor:
    """Return the first maximum of each row of scores [R, V] or [R, 1, V]; NumPy finds it ten times as fast as torch."""
    array = (scores if scores.dtype == torch.float32 else scores.float()).numpy()
    return torch.from_numpy(array.argmax(-1).reshape(-1))
