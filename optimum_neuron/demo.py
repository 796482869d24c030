"""The main job on the embedded default model: fetch, compile, load, answer, and say what each step took.

`optimum-cli neuron demo` shows what `run` returns. Times are this host's; the target is simulated.
"""

from __future__ import annotations

import time
from typing import Any

PROMPT = "What is the capital of France?"
"""Asked when no prompt is given."""

SEQUENCE_LENGTH = 512
"""Tokens of prompt and answer together."""


def run(prompt: str = PROMPT, max_new_tokens: int = 48, model: str = "smollm2") -> dict[str, Any]:
    """Compile or find the default chat model, ask it something, and return the answer with the times.

    Args:
        prompt: what to ask.
        max_new_tokens: longest answer, in tokens.
        model: a chat model with a chat template.

    Returns:
        Plain data: `answer`, `model`, `target`, `cache` (hit or miss with the reason), `compile_s`, `load_s`,
        `time_to_first_token_s`, `tokens_per_s`, `num_tokens`, `simulated`.
    """
    from transformers import AutoTokenizer

    from .modeling import NeuronModelForCausalLM

    start = time.perf_counter()
    neuron_model = NeuronModelForCausalLM.from_pretrained(model, export=True, sequence_length=SEQUENCE_LENGTH)
    ready_s = time.perf_counter() - start
    story = neuron_model.describe()
    tokenizer = AutoTokenizer.from_pretrained(neuron_model.source_folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    clock = TokenClock()
    tokens = neuron_model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False, streamer=clock)
    answer = tokens[0, inputs["input_ids"].shape[1] :]
    timings = story["timings_s"]
    return {
        "answer": tokenizer.decode(answer, skip_special_tokens=True),
        "model": model,
        "target": story["target"],
        "cache": story["cache"],
        "ready_s": round(ready_s, 3),
        "compile_s": round(timings["compile"] + timings["host_code"], 3),
        "load_s": timings["load"],
        "validate_s": timings["validate"],
        "time_to_first_token_s": round(clock.first_token_s, 4),
        "tokens_per_s": round(clock.tokens_per_s, 1),
        "num_tokens": len(answer),
        "simulated": True,
    }


class TokenClock:
    """A streamer for `generate` that only looks at the time."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        """Note the time of a token."""
        # The first call brings the prompt, before anything has run.
        if self._prompt_seen:
            self._times.append(time.perf_counter())
        self._prompt_seen = True

    def end(self) -> None:
        """Nothing is held back."""

    @property
    def first_token_s(self) -> float:
        """Seconds until the first token."""
        return self._times[1] - self._times[0]

    @property
    def tokens_per_s(self) -> float:
        """Rate after the first token; 0 where there was no second."""
        return (len(self._times) - 2) / (self._times[-1] - self._times[1]) if len(self._times) > 2 else 0.0
