"""The main job on the embedded default model: fetch, compile, load, answer, and time each step.

`optimum-cli neuron demo` prints the result of `run`. Times are this host's; the target is simulated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .base.progress import Step
from .base.wording import counted

if TYPE_CHECKING:
    from .modeling import NeuronModelForCausalLM

PROMPT = "What is the capital of Japan?"
"""Asked when no prompt is given; the margins of its answer are larger than rounding errors, which differ by CPU."""

SEQUENCE_LENGTH = 512
"""Tokens of prompt and answer together."""


def run(
    prompt: str = PROMPT,
    max_new_tokens: int = 48,
    model: str = "smollm2",
    *,
    wait_for_host_code: bool = False,
    on_answer: Callable[[str], None] = lambda answer: None,
) -> dict[str, Any]:
    """Compile or find the default chat model, prompt it, and return the answer with the times.

    The first answer does not wait for compiled host code; the same question is asked again at full speed.

    Args:
        prompt: Prompt for the model.
        max_new_tokens: longest answer, in tokens.
        model: a chat model with a chat template.
        wait_for_host_code: compile all host code before the first answer.
        on_answer: Called with the answer as soon as it is ready.

    Returns:
        Plain data: `answer`, `model`, `target`, `cache` (hit or miss with the reason), `host_code`, `download_s`
        (None if the checkpoint was here), `ready_s`, `compile_s`, `load_s`, `validate_s`, `first_token_after_s` and
        `full_speed_after_s` (since the process began, without the download), `time_to_first_token_s`,
        `tokens_per_s_at_first`, `tokens_per_s`, `num_tokens`, `simulated`.
    """
    from .modeling import NeuronModelForCausalLM

    download_s = _fetch(model)
    start = time.perf_counter()
    neuron_model = NeuronModelForCausalLM.from_pretrained(
        model, export=True, sequence_length=SEQUENCE_LENGTH, wait_for_host_code=wait_for_host_code
    )
    ready_s = time.perf_counter() - start
    story = neuron_model.describe()
    answer = _ask(neuron_model, prompt, max_new_tokens, on_answer, download_s or 0.0)
    return {
        **answer,
        "model": model,
        "target": story["target"],
        "cache": story["cache"],
        "host_code": neuron_model.describe()["host_code"],
        "download_s": None if download_s is None else round(download_s, 2),
        "ready_s": round(ready_s, 3),
        **{f"{name}_s": story["timings_s"][name] for name in ("compile", "load", "validate")},
        "simulated": True,
    }


def _fetch(model: str) -> float | None:
    """Download a checkpoint of the catalogue; return the seconds, or None if there was nothing to download."""
    from .checkpoints import find, is_fetched, resolve_model

    if os.path.isdir(model) or find(model) is None or is_fetched(model):
        return None
    start = time.perf_counter()
    resolve_model(model)
    return time.perf_counter() - start


def _ask(
    model: NeuronModelForCausalLM,
    prompt: str,
    max_new_tokens: int,
    on_answer: Callable[[str], None],
    download_s: float,
) -> dict[str, Any]:
    """Prompt the model twice: at once, and with all blocks compiled."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.source_folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    before_s = _process_age_s() - download_s
    first, tokens = _generate(model, inputs, max_new_tokens)
    answer = tokenizer.decode(tokens, skip_special_tokens=True)
    on_answer(answer)
    full_speed_s = _process_age_s() - download_s if _follow_compiling(model) else before_s
    best, _ = _generate(model, inputs, max_new_tokens)
    return {
        "answer": answer,
        "first_token_after_s": round(before_s + first.first_token_s, 2),
        "full_speed_after_s": round(full_speed_s, 2),
        "time_to_first_token_s": round(best.first_token_s, 4),
        "tokens_per_s_at_first": round(first.tokens_per_s, 1),
        "tokens_per_s": round(best.tokens_per_s, 1),
        "num_tokens": len(tokens),
    }


def _follow_compiling(model: NeuronModelForCausalLM) -> bool:
    """Wait for host code that is compiled in the background; return whether there is any."""
    host = model.prepared.host
    if host is None or host.compiling is None:
        return False
    blocks = counted(len(host.compiling.jobs), "block")
    with Step("Compiling host code in the background") as step:
        step.note(blocks)
        while not host.compiling.wait(0.5):
            step.show(f"{host.compiling.num_done} of {blocks}")
    return model.wait_for_host_code()


def _generate(model: NeuronModelForCausalLM, inputs: Any, max_new_tokens: int) -> tuple[TokenClock, Any]:
    clock = TokenClock()
    tokens = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False, streamer=clock)
    return clock, tokens[0, inputs["input_ids"].shape[1] :]


def _process_age_s() -> float:
    import psutil

    return time.time() - psutil.Process().create_time()


class TokenClock:
    """A streamer for `generate` that only looks at the time."""

    def __init__(self) -> None:
        self._start_s, self._times = time.perf_counter(), list[float]()

    def put(self, value: object) -> None:
        """Note the time of a token; the first call brings the prompt, before anything has run."""
        self._times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is held back."""

    @property
    def first_token_s(self) -> float:
        """Seconds until the first token."""
        return self._times[1] - self._start_s

    @property
    def tokens_per_s(self) -> float:
        """Rate after the first token; 0 where there was no second."""
        return (len(self._times) - 2) / (self._times[-1] - self._times[1]) if len(self._times) > 2 else 0.0
