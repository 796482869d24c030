"""The serving stacks of decoders, by SDK, and the compiled lengths that hold a request.

Published measurements differ by factors because of these rules, so an estimate says which it assumes. The facts are
from published benchmark pages and from the libraries' own documentation; times are in `data/constants.json`.

    >>> choose_stack("2.18").value.name, choose_stack(None).value.name
    ('transformers-neuronx', 'vllm')
    >>> choose_lengths(None, 300, 100, limit=4096)
    Lengths(sequence=400, prompt=300, answer=100)
    >>> choose_lengths(1024, None, None, limit=4096)
    Lengths(sequence=1024, prompt=512, answer=512)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..base.core import Choice
from ..errors import ConfigError, invalid_choice
from .machine import positive

DEFAULT_SDK = "2.27"
"""SDK that an estimate assumes."""
FIRST_NXD_SDK = (2, 20)
"""From here on decoders are served by libraries on NeuronX Distributed, with the fused attention kernel."""
FIRST_BATCH_FIRST_SDK = (2, 18, 1)
"""From here on (30 April 2024) published configurations have `attention_layout="BSH"`: aws-neuron-samples,
meta-llama-3-8b-sampling.ipynb and meta-llama-3-70b-sampling.ipynb; optimum-neuron, pull request 587."""
FIRST_FUSED_SDK = (2, 19)
"""From here on Transformers NeuronX has the fused attention kernel (its release notes, 0.11.351, 3 July 2024)."""
FIRST_PADDED_SDK = (2, 22)
"""From here on (2025) servers also pad the prompt of a batch of 1 to the compiled length."""
KNOWN_SDKS = ((2, 5), (2, 40))
"""Releases for neuronx-cc that a version can name."""
VLLM_TOKENS = 2048
"""`max_num_batched_tokens` of a vLLM server, unless it is given; optimum-neuron raises it to the length of the model
since its commit 5f8e901d, 3 March 2026."""
FIRST_BUCKET = 128
"""Smallest bucket of a prompt or of a cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """How one serving stack uses the device."""

    name: str
    """As `--stack` takes it."""
    what: str
    host: str
    tiled: bool
    """Weights are laid out in tiles ahead of time."""
    flash: bool
    """Prompts use the fused attention kernel."""
    batch_first: bool
    """Attention has the batch first, which "can reduce transposes" (Transformers NeuronX developer guide, BSH). With
    neither this nor the fused kernel, large graphs of prompts are slower: samples compile them at -O1."""
    replicate_kv_heads: bool
    """Each core keeps one key-value head where there are more cores than heads."""
    dense_experts: bool
    """A prompt sends each token through all experts, else through its own."""
    one_by_one: bool
    """Prompts are processed one after the other, else all rows of the batch in one run."""
    pads_prompt: bool
    """A prompt is padded to the compiled sequence length, else to the next power of two."""
    pads_single: bool
    """Also where the batch is 1, which has one prompt."""
    pads_cache: bool
    """A step attends to the compiled sequence length, else to the next power of two."""
    batched_tokens: int | None = None
    """Tokens of the prompts and of the running answers of a step, or the compiled length where that is more; None for
    no limit."""

    @property
    def description(self) -> str:
        """In words, with its attention."""
        layout = "" if self.batch_first else ", large prompts at -O1"
        return f"{self.what}; " + ("fused attention" if self.flash else f"attention not fused{layout}")


_TRANSFORMERS = Stack(
    name="transformers-neuronx",
    what="Transformers NeuronX: buckets are powers of two, prompts in one batch, weights in tiles",
    host="transformers-neuronx",
    tiled=True,
    flash=False,
    batch_first=False,
    replicate_kv_heads=False,
    dense_experts=False,
    one_by_one=False,
    pads_prompt=False,
    pads_single=False,
    pads_cache=False,
)
_NXD = dataclasses.replace(
    _TRANSFORMERS,
    name="nxd-inference",
    what="NxD Inference: buckets are powers of two, prompts in one batch",
    host="nxd-inference",
    tiled=False,
    flash=True,
    batch_first=True,
    replicate_kv_heads=True,
    dense_experts=True,
)

STACKS: Mapping[str, Stack] = {
    stack.name: stack
    for stack in (
        _TRANSFORMERS,
        dataclasses.replace(
            _TRANSFORMERS,
            name="tgi",
            what="Transformers NeuronX under TGI: prompts one by one, padded, as is the cache, to the sequence length",
            one_by_one=True,
            pads_prompt=True,
            pads_cache=True,
        ),
        dataclasses.replace(
            _NXD,
            name="vllm",
            what="NxD-based models under vLLM: prompts one by one, padded to the sequence length; steps in buckets",
            host="vllm",
            one_by_one=True,
            pads_prompt=True,
            batched_tokens=VLLM_TOKENS,
        ),
        _NXD,
    )
}


def choose_stack(sdk: str | None, stack: str | None = None) -> Choice[Stack]:
    """The stack of that name, or the usual one of an SDK such as "2.18" or "2.27.0"."""
    release = parse_sdk(sdk or DEFAULT_SDK)
    if stack is not None:
        if stack not in STACKS:
            raise invalid_choice("stack", stack, STACKS)
        named = stack_at(stack, release)
        return Choice(value=named, reason=f"stack={stack!r}: {named.description}")
    usual = stack_at("vllm" if release >= FIRST_NXD_SDK else "transformers-neuronx", release)
    named_sdk = sdk or f"{DEFAULT_SDK}, the default"
    return Choice(value=usual, reason=f"usual with SDK {named_sdk}: {usual.description}")


def stack_at(name: str, release: tuple[int, ...]) -> Stack:
    """A stack as it was at a release of the SDK.

    >>> stack_at("tgi", (2, 18)).flash, stack_at("tgi", (2, 19)).flash
    (False, True)
    >>> stack_at("tgi", (2, 18)).batch_first, stack_at("tgi", (2, 18, 1)).batch_first
    (False, True)
    """
    stack = STACKS[name]
    return dataclasses.replace(
        stack,
        flash=stack.flash or release >= FIRST_FUSED_SDK,
        batch_first=stack.batch_first or release >= FIRST_BATCH_FIRST_SDK,
        replicate_kv_heads=stack.replicate_kv_heads or release >= FIRST_FUSED_SDK,
        pads_single=stack.pads_prompt and release >= FIRST_PADDED_SDK,
    )


def parse_sdk(sdk: str) -> tuple[int, ...]:
    """The release as numbers, with the patch if it is given; a ConfigError if the text is no Neuron SDK release.

    >>> parse_sdk("2.18"), parse_sdk("2.18.1")
    ((2, 18), (2, 18, 1))
    """
    known = re.fullmatch(r"\d+\.\d+(\.\d+)?", sdk.strip())
    release = tuple(map(int, sdk.split("."))) if known else ()
    if not KNOWN_SDKS[0] <= release[:2] <= KNOWN_SDKS[1]:
        first, last = (".".join(map(str, known)) for known in KNOWN_SDKS)
        message = f"sdk={sdk!r} is not a known release of the Neuron SDK."
        hint = f"Pass a release from {first} to {last}, for example {DEFAULT_SDK}."
        raise ConfigError(message, hint=hint, option="sdk", value=sdk)
    return release


def bucket(tokens: int) -> int:
    """The power of two, from `FIRST_BUCKET` on, that holds `tokens`."""
    return max(FIRST_BUCKET, 1 << (tokens - 1).bit_length())


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Tokens of each request."""

    sequence: int
    prompt: int
    answer: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Padding:
    """The compiled sizes that a prompt and its answer run in."""

    input_tokens: int
    prefill_tokens: int
    """Tokens that the prefill graphs of the prompt compute, padding included."""
    decode_slots: int | None
    """Cache slots that the middle step of the answer attends to; None for an encoder-decoder."""
    cached_tokens: int = 0
    """Tokens of the prompt that are found in the prefix cache and are not computed."""

    @property
    def share(self) -> float:
        """Share of the prefill that is padding."""
        return 1 - (self.input_tokens - self.cached_tokens) / self.prefill_tokens

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self) | {"share": self.share}


def choose_lengths(sequence: int | None, prompt: int | None, answer: int | None, *, limit: int) -> Lengths:
    """Fill in the lengths that a request leaves out.

    Args:
        sequence: compiled length; None for prompt and answer if both are given, otherwise `limit`.
        prompt: tokens of a prompt; None for what the answer leaves.
        answer: tokens of an answer; None for what the prompt leaves, or half of the compiled length.
        limit: compiled length of a request that gives none.
    """
    given = {"sequence_length": sequence, "input_length": prompt, "output_length": answer}
    for name, value in given.items():
        if value is not None:
            positive(name, value)
    length = sequence or (prompt + answer if prompt and answer else limit)
    if answer is None:
        answer = max(length // 2, 1) if prompt is None else length - prompt
    if prompt is None:
        prompt = length - answer
    if prompt < 1 or answer < 1 or prompt + answer > length:
        if given["input_length"] is None:
            message = f"output_length={answer} leaves no room for a prompt in sequence_length={length}."
        elif given["output_length"] is None:
            message = f"input_length={prompt} leaves no room for an answer in sequence_length={length}."
        else:
            message = f"input_length={prompt} and output_length={answer} exceed sequence_length={length}."
        hint = "Pass a longer sequence_length, or a shorter prompt or answer."
        raise ConfigError(message, hint=hint, **{**given, "sequence_length": length})
    return Lengths(sequence=length, prompt=prompt, answer=answer)


def steps_by_bucket(prompt: int, answer: int, bucket_of: Callable[[int], int]) -> dict[int, int]:
    """Count the steps of an answer by the cache slots that each attends to.

    A step attends to the prompt, the tokens before it, and its own.

    >>> steps_by_bucket(100, 200, lambda tokens: 128 if tokens <= 128 else 512)
    {128: 28, 512: 172}
    """
    counts: dict[int, int] = {}
    first, last = prompt + 1, prompt + answer
    while first <= last:
        slots = bucket_of(first)
        end = last if slots < first else min(slots, last)
        counts[slots] = counts.get(slots, 0) + end - first + 1
        first = end + 1
    return counts
