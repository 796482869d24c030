"""`/v1/completions`: text that goes on from a prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ..errors import RequestError
from .answers import Call, Event, Gathered, completion_logprobs, gather, together, token_name, usage
from .generator import Generator, Piece, Prompt
from .logits import TokenLogprob
from .protocol import CompletionRequest
from .sampling import make_prompt
from .structured import grammar_of


async def complete(
    generator: Generator, body: CompletionRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any] | AsyncIterator[Event]:
    """Return the answer to a body, or its chunks."""
    limits: dict[str, Any] = {"num_bytes": call.num_bytes, "timeout_s": call.within(body.timeout_s).timeout_s}
    prompts = await generator.run(_prompts, generator, body, call, adapter, **limits)
    echoes = [await generator.run(_echo, generator, body, prompt) for prompt in prompts]
    job = _Job(generator, body, call, name, prompts, echoes)
    return job.stream() if body.stream else await job.whole()


def _prompts(generator: Generator, body: CompletionRequest, call: Call, adapter: str | None) -> list[Prompt]:
    given: list[Any]
    if isinstance(body.prompt, str) or (body.prompt and isinstance(body.prompt[0], int)):
        given = [body.prompt]
    else:
        given = list(body.prompt)
    if not given:
        raise RequestError("The body has no prompt.", hint="Send one.", status=400, param="prompt")
    grammar = grammar_of(body)
    adds = body.add_special_tokens is not False
    num_answers = body.best_of or body.n
    ranks = num_answers > body.n
    return [
        make_prompt(
            generator,
            body,
            _ids(generator, body, prompt, adds) if isinstance(prompt, str) else prompt,
            request_id=f"{call.request_id}-{index}",
            max_tokens=body.max_tokens,
            num_logprobs=0 if body.logprobs is None and ranks else body.logprobs,
            grammar=grammar,
            timeout_s=call.within(body.timeout_s).timeout_s,
            adapter=adapter,
            num_answers=num_answers,
        )
        for index, prompt in enumerate(given)
    ]


def _ids(generator: Generator, body: CompletionRequest, text: str, adds: bool) -> list[int]:
    """Tokens of a prompt; of one that is cut to its end, the begin of a long text is not tokenized."""
    if body.truncate_prompt_tokens:
        text = text[-generator.max_characters :]
    return generator.encode(text, "prompt", add_special_tokens=adds)


def _echo(generator: Generator, body: CompletionRequest, prompt: Prompt) -> Gathered:
    """The prompt as the begin of an answer, if the body wants it."""
    if not body.echo:
        return Gathered()
    text = generator.tokenizer.decode(prompt.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    scored = generator.score(prompt.ids, body.logprobs) if body.logprobs is not None else []
    return Gathered(text=text, tokens=list(prompt.ids), logprobs=scored)


class _Job:
    """One body: prompts, and how their answers are written."""

    def __init__(
        self,
        generator: Generator,
        body: CompletionRequest,
        call: Call,
        name: str,
        prompts: list[Prompt],
        echoes: list[Gathered],
    ) -> None:
        self.generator, self.body, self.prompts, self.echoes = generator, body, prompts, echoes
        self._head = {
            "id": f"cmpl-{body.request_id or call.request_id}",
            "object": "text_completion",
            "created": call.created,
            "model": name,
        }
        self._num_prompt = sum(len(prompt.ids) for prompt in prompts)

    def _pieces(self, prompt: Prompt) -> AsyncIterator[Piece]:
        if self.body.max_tokens == 0:
            return _nothing(prompt.num_answers)
        return self.generator.answer(prompt)

    async def whole(self) -> dict[str, Any]:
        """Return all answers of all prompts."""
        choices: list[dict[str, Any]] = []
        num_tokens = num_cached = 0
        gathered = await together(gather(self._pieces(prompt), prompt.num_answers) for prompt in self.prompts)
        for prompt, echo, answers in zip(self.prompts, self.echoes, gathered, strict=True):
            num_tokens += sum(len(answer.tokens) for answer in answers)
            num_cached += max(answer.num_cached for answer in answers)
            if prompt.num_answers > self.body.n:
                answers = sorted(answers, key=_mean_logprob, reverse=True)[: self.body.n]
            choices += [self._choice(len(choices) + index, answer, echo) for index, answer in enumerate(answers)]
        return {**self._head, "choices": choices, "usage": usage(self._num_prompt, num_tokens, num_cached)}

    async def stream(self) -> AsyncIterator[Event]:
        """Yield chunks, prompt after prompt."""
        num_tokens = 0
        cached = dict.fromkeys(range(len(self.prompts)), 0)
        for number, (prompt, echo) in enumerate(zip(self.prompts, self.echoes, strict=True)):
            lengths = dict.fromkeys(range(prompt.num_answers), 0)
            async for piece in self._pieces(prompt):
                num_tokens += len(piece.tokens)
                cached[number] = max(cached[number], piece.num_cached)
                part = Gathered(finish_reason=piece.finish_reason, stop_reason=piece.stop_reason)
                part.add(piece)
                first = echo if not lengths[piece.index] else Gathered()
                choice = self._choice(number * self.body.n + piece.index, part, first, offset=lengths[piece.index])
                lengths[piece.index] += len(choice["text"]) or 1
                event = {**self._head, "choices": [choice]}
                if self.body.stream_options is not None and self.body.stream_options.continuous_usage_stats:
                    event["usage"] = usage(self._num_prompt, num_tokens, sum(cached.values()))
                yield event
        if self.body.sends_usage:
            yield {**self._head, "choices": [], "usage": usage(self._num_prompt, num_tokens, sum(cached.values()))}

    def _choice(self, index: int, answer: Gathered, echo: Gathered, offset: int = 0) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "text": echo.text + answer.text,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        }
        if self.body.logprobs is not None:
            first: list[TokenLogprob | int] = [*echo.tokens[:1], *echo.logprobs]
            every = [*first, *answer.logprobs]
            as_ids = self.body.return_tokens_as_token_ids
            choice["logprobs"] = completion_logprobs(self.generator, every, as_ids=as_ids, offset=offset)
        if self.body.return_token_ids:
            choice["token_ids"] = answer.tokens
        return choice


async def _nothing(num_answers: int) -> AsyncIterator[Piece]:
    """Answers without tokens, for a prompt that is only scored."""
    for index in range(num_answers):
        yield Piece(index=index, text="", tokens=[], logprobs=[], finish_reason="length")


def _mean_logprob(answer: Gathered) -> float:
    return sum(one.logprob for one in answer.logprobs) / max(len(answer.logprobs), 1)


def tokenized(generator: Generator, ids: list[int], *, with_texts: bool) -> dict[str, Any]:
    """Return the answer of `/tokenize`."""
    texts = [token_name(generator, token) for token in ids] if with_texts else None
    return {"count": len(ids), "max_model_len": generator.max_length, "tokens": ids, "token_strs": texts}
