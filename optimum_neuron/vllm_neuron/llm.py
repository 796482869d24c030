"""`LLM`: many prompts at once, in a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tqdm.auto import tqdm

from ..errors import ConfigError
from .adapters import LoRARequest
from .beams import search
from .chats import render
from .engine import LLMEngine
from .engine_args import DEFAULTS, EngineArgs
from .keywords import check_keywords
from .outputs import (
    BeamSearchOutput,
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    RequestOutput,
    ScoringRequestOutput,
)
from .pooling import classified, embedded, pooled, scored
from .requests import Job
from .sampling_params import BeamSearchParams, SamplingParams

Params = SamplingParams | Sequence[SamplingParams] | None
Progress = bool | Callable[..., Any]


class LLM:
    """A language model that answers many prompts at once.

    Keywords are those of `EngineArgs`, with vLLM's names and defaults. Those without effect on a simulated core are
    logged in one line, and those without counterpart are refused.

    Raises:
        TypeError: a keyword is unknown; the message names the nearest.
        ConfigError: a value is wrong, contradicts the checkpoint, or is not supported.
        ModelError: the model cannot be found or used.

    Example:
        ```python no-run
        llm = LLM(model="tiny_llama", max_model_len=128, max_num_seqs=4)
        outputs = llm.generate(["Hello"], SamplingParams(temperature=0.0, max_tokens=8))
        print(outputs[0].outputs[0].text)
        ```
    """

    def __init__(self, model: str, **options: object) -> None:
        check_keywords(options, DEFAULTS, what="LLM()")
        self.llm_engine = LLMEngine.from_engine_args(EngineArgs(model=model, **options))
        self._core = self.llm_engine.core

    # Answers.

    def generate(
        self,
        prompts: object = None,
        sampling_params: Params = None,
        prompt_token_ids: object = None,
        use_tqdm: Progress = True,
        lora_request: LoRARequest | list[LoRARequest | None] | None = None,
        priority: list[int] | None = None,
    ) -> list[RequestOutput]:
        """Return the answers to prompts, in their order.

        Args:
            prompts: a prompt or a list of prompts: texts, tokens, or mappings with `prompt` or `prompt_token_ids`.
            sampling_params: parameters of all prompts, or of each; None for the model's.
            prompt_token_ids: tokens of the prompts, in older scripts.
            use_tqdm: whether to show progress, or a function that makes the bar.
            lora_request: adapter of all prompts, or of each.
            priority: priority of each prompt; lower numbers come first.

        Raises:
            TypeError: `top_k` is no whole number.
            ConfigError: a parameter is out of range or not supported.
            ShapeError: a prompt is longer than `max_model_len`.
        """
        jobs = self._core.jobs(
            prompts, sampling_params, prompt_token_ids=prompt_token_ids, lora_request=lora_request, priority=priority
        )
        return self._run(jobs, use_tqdm)

    def _run(self, jobs: Sequence[Job], use_tqdm: Progress) -> list[RequestOutput]:
        futures = [self._core.loop.submit(self._core.whole(job)) for job in jobs]
        make = use_tqdm if callable(use_tqdm) else tqdm
        bar = make(total=len(jobs), desc="Processed prompts", dynamic_ncols=True) if use_tqdm else None
        try:
            outputs = []
            for future in futures:
                outputs.append(future.result())
                if bar is not None:
                    bar.update(1)
            return outputs
        finally:
            for future in futures:
                future.cancel()
            if bar is not None:
                bar.close()

    def chat(
        self,
        messages: Any,
        sampling_params: Params = None,
        use_tqdm: Progress = True,
        lora_request: LoRARequest | list[LoRARequest | None] | None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Return the answers to one conversation, or to several.

        Args:
            messages: a conversation, which is a list of mappings with `role` and `content`, or a list of conversations.
            sampling_params: as in `generate`.
            use_tqdm: as in `generate`.
            lora_request: as in `generate`.
            chat_template: template in Jinja; None for the tokenizer's.
            chat_template_content_format: "openai" keeps the parts of messages; "string" and "auto" join them.
            add_generation_prompt: whether the prompt ends with the begin of an answer.
            continue_final_message: whether the answer goes on from the last message.
            tools: functions that the model may call, in OpenAI's form.
            chat_template_kwargs: further variables of the template.
        """
        several = bool(messages) and isinstance(messages[0], (list, tuple))
        prompts = [
            render(
                self._core.generator.tokenizer,
                conversation,
                chat_template=chat_template,
                content_format=chat_template_content_format,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=tools,
                **(chat_template_kwargs or {}),
            )
            for conversation in (messages if several else [messages])
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, lora_request=lora_request)

    def beam_search(
        self,
        prompts: object,
        params: BeamSearchParams,
        lora_request: LoRARequest | list[LoRARequest | None] | None = None,
        use_tqdm: bool = False,
    ) -> list[BeamSearchOutput]:
        """Return the most probable sequences for each prompt.

        Args:
            prompts: as in `generate`.
            params: width, length, and length penalty.
            lora_request: as in `generate`.
            use_tqdm: no effect.
        """
        return search(self._core, prompts, params, lora_request=lora_request, run=self._run)

    # Vectors and scores.

    def embed(self, prompts: Any, use_tqdm: Progress = True, **options: Any) -> list[EmbeddingRequestOutput]:
        """Return the vector of each prompt.

        Args:
            prompts: as in `generate`.
            use_tqdm: no effect.
            **options: `pooling_params`, `truncate_prompt_tokens`.
        """
        return embedded(self._core, prompts, **options)

    def encode(self, prompts: object, pooling_params: object = None, **options: object) -> list[PoolingRequestOutput]:
        """Return what the model computes for each prompt, as a tensor.

        Args:
            prompts: as in `generate`.
            pooling_params: `PoolingParams`.
            **options: `pooling_task` ("embed" or "classify"), `truncate_prompt_tokens`, `use_tqdm`.
        """
        return pooled(self._core, prompts, pooling_params=pooling_params, **options)

    def classify(self, prompts: Any, use_tqdm: Progress = True, **options: Any) -> list[ClassificationRequestOutput]:
        """Return the probabilities of each prompt's classes.

        Args:
            prompts: as in `generate`.
            use_tqdm: no effect.
            **options: `pooling_params`, `truncate_prompt_tokens`.
        """
        return classified(self._core, prompts, **options)

    def score(
        self, data_1: Any, data_2: Any, /, use_tqdm: Progress = True, **options: Any
    ) -> list[ScoringRequestOutput]:
        """Return how well pairs of texts fit each other, by a cross-encoder or by the cosine of vectors.

        Args:
            data_1: a text for all pairs, or one for each.
            data_2: a text or several.
            use_tqdm: no effect.
            **options: `truncate_prompt_tokens`.
        """
        return scored(self._core, data_1, data_2, **options)

    # The engine.

    def get_tokenizer(self, lora_request: LoRARequest | None = None) -> Any:
        """Return the tokenizer."""
        return self._core.backend.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Return the parameters of prompts that have none, by the model's `generation_config.json`."""
        return self._core.default_params()

    @property
    def model_config(self) -> Any:
        """Facts of the model: `max_model_len`, `hf_config`, and others."""
        return self._core.facts

    def reset_prefix_cache(self) -> bool:
        """Forget what prompts begin with, between two steps."""
        manager = self._core.generator.manager
        with manager.pause():
            manager.engine.pool.forget_all()
        return True

    def _no_counterpart(self, name: str, hint: str) -> ConfigError:
        return ConfigError(f"LLM.{name} is not supported.", hint=hint, method=name)

    def start_profile(self) -> None:
        """Refuse: profiles are those of the compiled model."""
        raise self._no_counterpart("start_profile", "Set NEURON_RT_INSPECT_ENABLE=1, which profiles the process.")

    def stop_profile(self) -> None:
        """Refuse, as `start_profile`."""
        raise self._no_counterpart("stop_profile", "Set NEURON_RT_INSPECT_ENABLE=1, which profiles the process.")

    def sleep(self, level: int = 1) -> None:
        """Refuse: memory is freed with the object."""
        raise self._no_counterpart("sleep", "Delete the LLM, which frees its memory.")

    def collective_rpc(self, method: object, *args: object, **options: object) -> None:
        """Refuse: there are no workers."""
        raise self._no_counterpart("collective_rpc", "One process drives all cores: call its objects.")

    def apply_model(self, func: object) -> None:
        """Refuse: there are no workers."""
        raise self._no_counterpart("apply_model", "Read the checkpoint with transformers.")
