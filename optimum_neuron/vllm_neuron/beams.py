"""Beam search over an engine of requests: every step asks for the likeliest next tokens of each beam."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .inputs import TokensPrompt
from .outputs import BeamSearchOutput, BeamSearchSequence, RequestOutput
from .sampling_params import BeamSearchParams, SamplingParams

if TYPE_CHECKING:
    from .core import Core

Beams = list[BeamSearchSequence]


def search(
    core: Core,
    prompts: Any,
    params: BeamSearchParams,
    *,
    lora_request: Any,
    run: Callable[[Sequence[Any], bool], list[RequestOutput]],
) -> list[BeamSearchOutput]:
    """Return the best sequences of each prompt, by their probability over their length to the power of a penalty.

    Args:
        core: the engine.
        prompts: prompts.
        params: width, length, and penalty.
        lora_request: adapter of all prompts, or of each.
        run: answers jobs, without a bar of progress.
    """
    step = SamplingParams(logprobs=2 * params.beam_width, max_tokens=1, temperature=params.temperature)
    first = core.jobs(prompts, dataclasses.replace(step, logprobs=0), lora_request=lora_request)
    ends = set() if params.ignore_eos else set(first[0].prompt.end_ids)
    end = core.generator.tokenizer.eos_token_id
    running: list[Beams] = [[BeamSearchSequence(list(job.prompt.ids), [], job.lora_request)] for job in first]
    done: list[Beams] = [[] for _ in first]
    for _ in range(params.max_tokens):
        flat = [beam for beams in running for beam in beams if len(beam.tokens) < core.generator.max_length]
        if not flat:
            break
        jobs = core.jobs(
            [TokensPrompt(prompt_token_ids=beam.tokens) for beam in flat],
            step,
            lora_request=[beam.lora_request for beam in flat],
            max_logprobs=-1,  # the limit is for users; a step needs twice the width
        )
        found = dict(zip(map(id, flat), run(jobs, False), strict=True))
        for index, beams in enumerate(running):
            new = [one for beam in beams if id(beam) in found for one in _longer(beam, found[id(beam)])]
            done[index] += [one for one in new if one.tokens[-1] in ends]
            going = [one for one in new if one.tokens[-1] not in ends]
            running[index] = _best(going, params, end)
    outputs = []
    for beams, over in zip(running, done, strict=True):
        best = _best([*over, *beams], params, end)
        for beam in best:
            beam.text = core.generator.tokenizer.decode(beam.tokens)
        outputs.append(BeamSearchOutput(sequences=best))
    return outputs


def _longer(beam: BeamSearchSequence, output: RequestOutput) -> Beams:
    """A beam with each of its likeliest next tokens."""
    (answer,) = output.outputs
    assert answer.logprobs is not None, "a step asks for them"
    (found,) = answer.logprobs
    return [
        BeamSearchSequence(
            tokens=[*beam.tokens, token],
            logprobs=[*beam.logprobs, found],
            lora_request=beam.lora_request,
            cum_logprob=beam.cum_logprob + one.logprob,
        )
        for token, one in found.items()
    ]


def _best(beams: Beams, params: BeamSearchParams, end: int | None) -> Beams:
    def score(beam: BeamSearchSequence) -> float:
        length = len(beam.tokens) - (beam.tokens[-1] == end)
        return beam.cum_logprob / length**params.length_penalty

    return sorted(beams, key=score, reverse=True)[: params.beam_width]
