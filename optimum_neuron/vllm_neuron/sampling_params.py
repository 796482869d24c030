"""vLLM's parameters of a request, with its ranges and classes of errors.

Fields have vLLM's defaults. Those that change results in a way that the engine does not have are refused, with the
alternative, if they are set.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import logging
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError
from ..options.value_types import check_types
from .keywords import checked

logger = logging.getLogger(__name__)

GREEDY_BELOW = 1e-5
"""A lower temperature is greedy decoding."""
_LOWEST = 1e-2
"""The lowest temperature that is not greedy."""
_CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_TUNING = ("disable_any_whitespace", "backend", "disable_fallback")
"""Fields about how a constraint is compiled: there is one library, without blanks between tokens."""


class RequestOutputKind(enum.Enum):
    """What each `RequestOutput` of a stream has."""

    CUMULATIVE = 0
    """The whole output so far."""
    DELTA = 1
    """What is new."""
    FINAL_ONLY = 2
    """There is one, at the end."""


@checked
@dataclasses.dataclass
class StructuredOutputsParams:
    """A constraint of an answer, of which a request has one."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    backend: str | None = None
    disable_fallback: bool = False
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in _CONSTRAINTS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"A request has several constraints: {', '.join(given)}.", hint="Pass one.", given=given)
        reasons = {
            "structural_tag": "Use json, regex, or grammar.",
            "whitespace_pattern": "JSON is written without optional blanks; use grammar for others.",
            "disable_additional_properties": 'Write "additionalProperties": false in the schema.',
        }
        for name, hint in reasons.items():
            if value := getattr(self, name):
                raise ConfigError(f"{name}={value!r} is not supported.", hint=hint, option=name, value=value)


@checked
@dataclasses.dataclass
class GuidedDecodingParams(StructuredOutputsParams):
    """The name of `StructuredOutputsParams` before vLLM 0.11."""


@checked
@dataclasses.dataclass
class BeamSearchParams:
    """Parameters of `LLM.beam_search`."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        for name in ("beam_width", "max_tokens"):
            value = getattr(self, name)
            if not _is_int(value) or value < 1:
                raise _wrong(name, value, "a whole number, at least 1")


_TYPES = {
    **dict.fromkeys(("ignore_eos", "detokenize", "skip_special_tokens", "spaces_between_special_tokens"), bool),
    **dict.fromkeys(("include_stop_str_in_output", "skip_clone"), bool),
    **dict.fromkeys(("stop_token_ids", "allowed_token_ids"), list[int]),
    "bad_words": list[str],
    "logit_bias": dict[Any, float],
}
"""Types of fields without a range."""
_REFUSED = {
    "prompt_logprob_token_ids": "Pass prompt_logprobs.",
    "prompt_logprob_start": "Pass prompt_logprobs, and take the rows that you need.",
    "logprob_token_ids": "Pass logprobs=-1, and take the tokens that you need.",
    "flat_logprobs": "Leave it out: logprobs are a list of mappings.",
    "extra_args": "Pass logits_processors.",
    "skip_reading_prefix_cache": "Pass enable_prefix_caching=False to LLM.",
    "thinking_token_budget": "Pass max_tokens.",
    "repetition_detection": "Pass repetition_penalty or frequency_penalty.",
    "routed_experts_prompt_start": "Leave it out: experts are not returned.",
    "trace_decode_token_ids": "Pass prompt_logprobs with the tokens in the prompt.",
    "stream_interval": "Leave it out: every token is streamed.",
}
"""Fields that the engine has no counterpart of, with the alternative."""


@checked
@dataclasses.dataclass
class SamplingParams:
    """Parameters of a request: how tokens are chosen, when an answer ends, and what is returned."""

    n: int = 1
    """Answers to a prompt."""
    best_of: int | None = None
    """Answers of which the `n` most probable are returned."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    """0 is greedy decoding."""
    top_p: float = 1.0
    top_k: int = 0
    """0 and -1 take all tokens."""
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    """Texts that end an answer."""
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    """Most tokens of an answer; None for as many as fit."""
    min_tokens: int = 0
    """Tokens before an answer may end."""
    logprobs: int | None = None
    """Likeliest tokens to report for each token of the answer, beside the token itself; -1 for all."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt."""
    detokenize: bool = True
    """Whether outputs have texts."""
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    """Has a meaning for slow tokenizers only."""
    logits_processors: list[Callable[..., Any]] | None = None
    """Called with the answer's tokens and logits, or with the prompt's tokens before them; return the logits."""
    include_stop_str_in_output: bool = False
    truncate_prompt_tokens: int | None = None
    """Tokens at the end of a prompt that are kept; -1 for as many as fit."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    guided_decoding: StructuredOutputsParams | None = None
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    skip_clone: bool = False
    """Whether `clone` returns the object itself."""
    prompt_logprob_token_ids: list[int] | None = None
    prompt_logprob_start: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    stream_interval: int | None = None
    extra_args: dict[str, Any] | None = None
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: Any = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        for name in ("stop_token_ids", "allowed_token_ids", "bad_words"):
            if isinstance(value := getattr(self, name), (set, frozenset, tuple)):
                setattr(self, name, list(value))
        check_types(vars(self), _TYPES)
        if isinstance(self.temperature, (int, float)) and 0 < self.temperature < _LOWEST:
            logger.warning("temperature=%s becomes %s, the lowest that is not greedy.", self.temperature, _LOWEST)
            self.temperature = _LOWEST
        self.seed = None if self.seed == -1 else self.seed
        if not isinstance(self.stop, str | list | tuple | None):
            raise _wrong("stop", self.stop, "a text, or a list of texts")
        self.stop = [self.stop] if isinstance(self.stop, str) else list(self.stop or [])
        self.stop_token_ids, self.bad_words = list(self.stop_token_ids or []), list(self.bad_words or [])
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is True:
                setattr(self, name, 1)
        self.verify()
        if self.is_greedy:
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0

    @classmethod
    def from_optional(cls, **fields: Any) -> SamplingParams:
        """Return parameters of which None leaves the default."""
        given = {name: value for name, value in fields.items() if value is not None or name == "max_tokens"}
        if bias := given.get("logit_bias"):
            given["logit_bias"] = {int(token): min(100.0, max(-100.0, value)) for token, value in bias.items()}
        return cls(**given)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def constraint(self) -> StructuredOutputsParams | None:
        """The constraint, by either of its names."""
        return self.structured_outputs or self.guided_decoding

    @property
    def num_answers(self) -> int:
        """Answers that are generated."""
        return self.best_of or self.n

    def clone(self) -> SamplingParams:
        """Return a copy; processors of logits are shared unless they have `clone`."""
        if self.skip_clone:
            return self
        shared = {id(one): one.clone() if hasattr(one, "clone") else one for one in self.logits_processors or ()}
        return copy.deepcopy(self, memo=shared)

    def verify(self) -> None:
        """Check values and ranges; fields may have been set since the object was made."""
        _verify_sampling(self)
        _verify_lengths(self)
        for name, hint in _REFUSED.items():
            if value := getattr(self, name):
                raise ConfigError(f"{name}={value!r} is not supported.", hint=hint, option=name, value=value)
        kinds = {"output_kind": RequestOutputKind, "guided_decoding": StructuredOutputsParams | None}
        kinds["structured_outputs"] = kinds["guided_decoding"]
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                raise _wrong(name, value, "an object of its class")
        if not isinstance(self.logits_processors, list | None) or not all(map(callable, self.logits_processors or ())):
            raise _wrong("logits_processors", self.logits_processors, "a list of functions")
        if self.structured_outputs is not None and self.guided_decoding is not None:
            names = ["structured_outputs", "guided_decoding"]
            raise ConfigError(f"{' and '.join(names)} are both given.", hint="Pass one.", given=names)


def _verify_sampling(params: SamplingParams) -> None:
    if not _is_int(params.top_k):
        raise TypeError(f"top_k must be a whole number, not {params.top_k!r}.")
    ranges: dict[str, tuple[Callable[[float], bool], str]] = {
        **dict.fromkeys(("presence_penalty", "frequency_penalty"), (lambda x: -2 <= x <= 2, "in [-2, 2]")),
        "repetition_penalty": (lambda x: 0 < x < float("inf"), "greater than 0"),
        "temperature": (lambda x: 0 <= x < float("inf"), "0 or greater"),
        "top_p": (lambda x: 0 < x <= 1, "in (0, 1]"),
        "top_k": (lambda x: x >= -1, "0 or -1 for all tokens, or at least 1"),
        "min_p": (lambda x: 0 <= x <= 1, "in [0, 1]"),
    }
    for name, (is_right, expected) in ranges.items():
        value = getattr(params, name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not is_right(value):
            raise _wrong(name, value, expected)
    for name in ("n", "best_of"):
        value = getattr(params, name)
        if value is not None and (not _is_int(value) or value < 1):
            raise _wrong(name, value, "a whole number, at least 1")
    if params.num_answers < params.n:
        raise _wrong("best_of", params.best_of, f"at least n={params.n}")
    if params.is_greedy and params.num_answers > 1:
        name, value = ("best_of", params.best_of) if params.best_of else ("n", params.n)
        raise _wrong(name, value, "1 for greedy decoding, whose answers are all the same")
    if params.num_answers > params.n and params.output_kind is RequestOutputKind.DELTA:
        raise _wrong("best_of", params.best_of, f"n={params.n} with output_kind=DELTA")


def _verify_lengths(params: SamplingParams) -> None:
    least = {"max_tokens": 1, "min_tokens": 0, "logprobs": -1, "prompt_logprobs": -1, "truncate_prompt_tokens": -1}
    for name, limit in least.items():
        value = getattr(params, name)
        if value is not None and (not _is_int(value) or value < limit):
            raise _wrong(name, value, f"a whole number, at least {limit}")
    if params.seed is not None and not _is_int(params.seed):
        raise _wrong("seed", params.seed, "a whole number")
    if params.truncate_prompt_tokens == 0:
        raise _wrong("truncate_prompt_tokens", 0, "at least 1, or -1")
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise _wrong("min_tokens", params.min_tokens, f"at most max_tokens={params.max_tokens}")
    if wrong := [token for token in params.stop_token_ids or () if not _is_int(token)]:
        raise _wrong("stop_token_ids", wrong[0], "a list of whole numbers")
    if any(not isinstance(text, str) or not text for text in params.stop or ()):
        raise _wrong("stop", params.stop, "a list of texts that are not empty")
    if params.stop and not params.detokenize:
        raise _wrong("stop", params.stop, "empty with detokenize=False, because texts are compared")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name} must be {expected}, not {value!r}.", option=name, value=value)
