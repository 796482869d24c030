"""From vLLM's parameters to a prompt of the server's generator, and from its pieces to `RequestOutput`s.

`prepare` checks a request before anything runs; `Progress` gathers its answers.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessor

from ..base.foreign import tokenizer_facts
from ..errors import ConfigError, ShapeError
from ..serving import Generation, Prompt, StructuredOutputs, grammar_of, make_prompt
from .inputs import Input
from .outputs import CompletionOutput, Logprob, Logprobs, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

if TYPE_CHECKING:
    from ..serving import Generator, Piece, TokenLogprob
    from .adapters import LoRARequest

_SAME = (
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p", "seed"),
    *("stop", "stop_token_ids", "ignore_eos", "min_tokens", "skip_special_tokens", "include_stop_str_in_output"),
    *("truncate_prompt_tokens", "allowed_token_ids", "bad_words"),
)
"""Parameters that the server has by the same name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A request that was checked."""

    request_id: str
    text: str | None
    params: SamplingParams
    prompt: Prompt
    lora_request: LoRARequest | None


def prepare(
    generator: Generator,
    given: Input,
    params: SamplingParams,
    *,
    number: int,
    request_id: str,
    max_logprobs: int,
    seed: int | None,
    lora_request: LoRARequest | None = None,
    priority: int = 0,
) -> Job:
    """Return a request that can run, after all checks.

    Args:
        generator: the loaded model.
        given: prompt.
        params: its parameters.
        number: its name in the engine, where a request that was aborted may not be over yet.
        request_id: its name in outputs.
        max_logprobs: most likeliest tokens that a request may ask for; -1 for any number.
        seed: seed of a request that names none.
        lora_request: its adapter.
        priority: requests with a lower number come first.
    """
    params.verify()
    for name in ("logprobs", "prompt_logprobs"):
        _check_logprobs(name, getattr(params, name), max_logprobs, generator.num_tokens)
    if not params.spaces_between_special_tokens and tokenizer_facts(generator.tokenizer).is_fast is False:
        raise ConfigError(
            "spaces_between_special_tokens=False is not supported for slow tokenizers.",
            hint="Leave it out.",
            option="spaces_between_special_tokens",
        )
    ids = given.ids if given.ids is not None else generator.encode(given.text or "", "prompt", add_special_tokens=True)
    body = _body(params, generator.num_tokens)
    num_kept = min(params.truncate_prompt_tokens or len(ids), len(ids))
    num_kept = generator.max_length - 1 if params.truncate_prompt_tokens == -1 else num_kept
    room = generator.max_length - num_kept
    if room < 1:
        message = (
            f"The prompt has {num_kept} tokens, but max_model_len={generator.max_length} tokens hold its answer too."
        )
        hint = "Shorten the prompt, or pass a larger max_model_len to LLM."
        raise ShapeError(message, hint=hint, option="max_model_len", size=num_kept, limit=generator.max_length)
    prompt = make_prompt(
        generator,
        body,
        ids,
        request_id=str(number),
        max_tokens=None if params.max_tokens is None else min(params.max_tokens, room),
        num_logprobs=_num_logprobs(params, generator.num_tokens),
        grammar=grammar_of(body),
        timeout_s=None,
        adapter=None,
        num_answers=params.num_answers,
    )
    own = params.logits_processors or ()
    return Job(
        request_id=request_id,
        text=given.text,
        params=params,
        lora_request=lora_request,
        prompt=dataclasses.replace(
            prompt,
            make_processors=_with_own(prompt.make_processors, own, len(prompt.ids)) if own else prompt.make_processors,
            seed=seed if params.seed is None else params.seed,
            priority=priority,
        ),
    )


def _check_logprobs(name: str, number: int | None, limit: int, num_tokens: int) -> None:
    wanted = num_tokens if number == -1 else number
    if wanted is not None and limit != -1 and wanted > limit:
        raise ConfigError(
            f"{name}={number} is more than max_logprobs={limit}.",
            hint=f"Pass max_logprobs={number} to LLM, or {name}={limit}.",
            option=name,
            value=number,
            limit=limit,
        )


def _num_logprobs(params: SamplingParams, num_tokens: int) -> int | None:
    """Likeliest tokens to note; answers of which the best are taken need those that were chosen."""
    if params.logprobs is None:
        return 0 if params.num_answers > params.n else None
    return num_tokens if params.logprobs == -1 else params.logprobs


def _body(params: SamplingParams, num_tokens: int) -> Generation:
    """The parameters as a body of the server; its limits for strangers do not hold here."""
    fields = {name: getattr(params, name) for name in _SAME}
    # As in vLLM, a token that the model does not have ends no answer; the server refuses it.
    fields["stop_token_ids"] = [token for token in params.stop_token_ids or () if token < num_tokens]
    fields["temperature"] = 0.0 if params.is_greedy else params.temperature
    fields["logit_bias"] = (
        None if not params.logit_bias else {str(key): bias for key, bias in params.logit_bias.items()}
    )
    constraint = params.constraint
    fields["structured_outputs"] = None if constraint is None else _structured(constraint)
    return Generation.model_construct(**fields)


def _structured(constraint: StructuredOutputsParams) -> StructuredOutputs:
    names = ("regex", "choice", "grammar", "json_object")
    given = {name: getattr(constraint, name) for name in names if getattr(constraint, name) is not None}
    schema: Any = constraint.json
    if hasattr(schema, "model_json_schema"):  # a class of pydantic
        schema = schema.model_json_schema()
    return StructuredOutputs.model_construct(**{**dict.fromkeys(names), **given, "json_": schema})


class OwnProcessor(LogitsProcessor):
    """A function of the user's, which sees tokens as a list and logits as a row, as in vLLM."""

    def __init__(self, function: Callable[..., torch.Tensor], num_prompt: int) -> None:
        self._function, self._num_prompt = function, num_prompt
        try:
            parameters = inspect.signature(function).parameters
            self._takes_prompt = len(parameters) == 3
        except (TypeError, ValueError):  # some functions in C have no signature
            self._takes_prompt = False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the changed logits of the only row."""
        ids = input_ids[0].tolist()
        prompt = [ids[: self._num_prompt]] if self._takes_prompt else []
        changed: torch.Tensor = self._function(*prompt, ids[self._num_prompt :], scores[0])
        return changed[None]


def _with_own(make: Callable[[], list[Any]], functions: Iterable[Any], num_prompt: int) -> Callable[[], list[Any]]:
    """Make the user's processors too, before the others."""

    def made() -> list[Any]:
        copies = [one.clone() if hasattr(one, "clone") else one for one in functions]
        return [*(OwnProcessor(one, num_prompt) for one in copies), *make()]

    return made


def logprobs_of(generator: Generator, one: TokenLogprob) -> Logprobs:
    """Return the logarithmic probabilities in the place of a token: its own, and the likeliest."""
    rows = {one.token: (one.logprob, one.rank)}
    for rank, (token, logprob) in enumerate(one.top, start=1):
        rows.setdefault(token, (logprob, rank))
    return {
        token: Logprob(logprob=logprob, rank=rank, decoded_token=generator.tokenizer.decode([token]))
        for token, (logprob, rank) in rows.items()
    }


class Progress:
    """The answers of one request so far."""

    def __init__(self, generator: Generator, job: Job) -> None:
        self._generator, self.job = generator, job
        self.prompt_logprobs: list[Logprobs | None] | None = None
        self._answers = [
            CompletionOutput(index=index, text="", token_ids=[], lora_request=job.lora_request)
            for index in range(job.params.num_answers)
        ]
        wants_logprobs = job.prompt.num_logprobs is not None
        for answer in self._answers if wants_logprobs else ():
            answer.logprobs, answer.cumulative_logprob = [], 0.0
        self._num_cached = 0

    @property
    def is_finished(self) -> bool:
        """Whether all answers are complete."""
        return all(answer.finished() for answer in self._answers)

    def add(self, piece: Piece) -> CompletionOutput:
        """Add new tokens of an answer; return what is new of it."""
        answer = self._answers[piece.index]
        new = [logprobs_of(self._generator, one) for one in piece.logprobs]
        part = CompletionOutput(
            index=piece.index,
            text=piece.text if self.job.params.detokenize else "",
            token_ids=list(piece.tokens),
            finish_reason=piece.finish_reason,
            stop_reason=piece.stop_reason,
            lora_request=answer.lora_request,
        )
        answer.text += part.text
        answer.token_ids += part.token_ids
        answer.finish_reason, answer.stop_reason = piece.finish_reason, piece.stop_reason
        if answer.logprobs is not None and answer.cumulative_logprob is not None:
            answer.logprobs += new
            answer.cumulative_logprob += sum(one.logprob for one in piece.logprobs)
            part.logprobs, part.cumulative_logprob = new, answer.cumulative_logprob
        self._num_cached = max(self._num_cached, piece.num_cached)
        return part

    def output(self, new: CompletionOutput | None = None) -> RequestOutput:
        """Return the request's output: all answers so far, or a part of one that is new."""
        outputs = [dataclasses.replace(one, token_ids=[*one.token_ids]) for one in self._answers]
        if new is not None and self.job.params.output_kind is RequestOutputKind.DELTA:
            outputs = [new]
        elif self.is_finished:
            outputs = self._best(outputs)
        return RequestOutput(
            request_id=self.job.request_id,
            prompt=self.job.text,
            prompt_token_ids=list(self.job.prompt.ids),
            prompt_logprobs=self.prompt_logprobs,
            outputs=outputs,
            finished=self.is_finished,
            lora_request=self.job.lora_request,
            num_cached_tokens=self._num_cached,
        )

    def aborted(self) -> RequestOutput:
        """Return the last output of a request that was aborted: all that was said until then, or nothing new of it."""
        unfinished = [answer for answer in self._answers if not answer.finished()]
        for answer in unfinished:
            answer.finish_reason = "abort"
        output = self.output()
        if self.job.params.output_kind is RequestOutputKind.DELTA:
            output.outputs = [
                CompletionOutput(one.index, "", [], finish_reason="abort", lora_request=one.lora_request)
                for one in unfinished
            ]
        return output

    def _best(self, outputs: Sequence[CompletionOutput]) -> list[CompletionOutput]:
        """The `n` most probable answers, without probabilities that were noted for this alone."""
        params = self.job.params
        if params.num_answers == params.n:
            return list(outputs)
        best = sorted(outputs, key=lambda one: -(one.cumulative_logprob or 0.0))[: params.n]
        kept: dict[str, Any] = {} if params.logprobs is not None else {"logprobs": None, "cumulative_logprob": None}
        return [dataclasses.replace(one, index=index, **kept) for index, one in enumerate(best)]
