"""The classes of each family: which checkpoints they take, and the arguments of their `sample`.

A new family is one class here and one row of the import names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PretrainedConfig

from ..errors import ConfigError, ModelError
from ..options.spelling import spelled
from ..sources import load_source
from .checks import left_padding
from .model import NeuronModelBase
from .options import KEYWORDS
from .positions import left_mask
from .sampling import Sampling, require_floats


class _TopK(NeuronModelBase):
    """Families whose `sample` has `top_k` only."""

    def sample(
        self,
        input_ids: torch.Tensor,
        sequence_length: int,
        start_ids: torch.Tensor | None = None,
        top_k: int = 50,
        streamer: object = None,
        output_scores: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor]]:
        """Return prompts with their answers, int64 [batch, at most `sequence_length`].

        Args:
            input_ids: prompts [batch, columns], padded on the left.
            sequence_length: tokens of the longest result, prompt included.
            start_ids: number of padding tokens of each prompt.
            top_k: likeliest tokens among which the next one is drawn; 1 takes the likeliest.
            streamer: gets the tokens of each step by `put`, and `end`.
            output_scores: return the logits of each step too.
        """
        scores: list[torch.Tensor] | None = [] if output_scores else None
        sampling = Sampling(top_k=top_k)
        ids = self._sample(
            input_ids, sequence_length, start_ids=start_ids, sampling=sampling, streamer=streamer, scores=scores
        )
        return ids if scores is None else (ids, scores)


class _TopP(NeuronModelBase):
    """Families whose `sample` has all filters."""

    def sample(
        self,
        input_ids: torch.Tensor,
        sequence_length: int,
        start_ids: torch.Tensor | None = None,
        top_k: int = 50,
        top_p: float = 1.0,
        eos_token_override: int | Sequence[int] | None = None,
        temperature: float = 1.0,
        streamer: object = None,
        stopping_criteria_list: object = None,
        no_repeat_ngram_size: int | None = None,
    ) -> torch.Tensor:
        """Return prompts with their answers, int64 [batch, at most `sequence_length`].

        Args:
            input_ids: prompts [batch, columns], padded on the left.
            sequence_length: tokens of the longest result, prompt included.
            start_ids: number of padding tokens of each prompt.
            top_k: likeliest tokens among which the next one is drawn; 1 takes the likeliest.
            top_p: share of probability that is drawn from.
            eos_token_override: tokens that end a row, in place of those of the configuration.
            temperature: divisor of logits, a float above 0.
            streamer: gets the tokens of each step by `put`, and `end`.
            stopping_criteria_list: calls with the sequences and the logits; True ends all rows.
            no_repeat_ngram_size: n-grams that may not occur twice.
        """
        require_floats(top_p=top_p, temperature=temperature)
        sampling = Sampling(
            top_k=top_k, top_p=top_p, temperature=temperature, no_repeat_ngram_size=no_repeat_ngram_size
        )
        return self._sample(
            input_ids,
            sequence_length,
            start_ids=start_ids,
            sampling=sampling,
            eos_token_override=eos_token_override,
            streamer=streamer,
            stopping_criteria=stopping_criteria_list,
        )


class LlamaForSampling(_TopP):
    """Llama and its kin."""

    model_types = ("llama",)

    def sample(  # type: ignore[override]  # the vendor's has `cache_ids` here
        self,
        input_ids: torch.Tensor,
        sequence_length: int,
        cache_ids: torch.Tensor | None = None,
        start_ids: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """Return prompts with their answers; `cache_ids` must be those of a whole prompt, which is the default."""
        if cache_ids is not None and int(torch.as_tensor(cache_ids).reshape(-1)[0]) != 0:
            raise ModelError(
                "sample begins new sequences: cache_ids has to begin at 0.",
                hint="Leave cache_ids out, or call forward in a loop.",
                option="cache_ids",
            )
        return super().sample(input_ids, sequence_length, start_ids, **options)


class MistralForSampling(_TopP):
    """Mistral."""

    model_types = ("mistral",)


class MixtralForSampling(_TopP):
    """Mixtral."""

    model_types = ("mixtral",)


class Qwen2ForSampling(_TopP):
    """Qwen 2."""

    model_types = ("qwen2",)


class Qwen3ForSampling(_TopP):
    """Qwen 3."""

    model_types = ("qwen3",)


class BloomForSampling(_TopK):
    """BLOOM."""

    model_types = ("bloom",)


class OPTForSampling(_TopK):
    """OPT."""

    model_types = ("opt",)


class OPTForGreedySearch(OPTForSampling):
    """OPT whose `sample` takes the likeliest tokens."""

    def sample(  # type: ignore[override]
        self, input_ids: torch.Tensor, sequence_length: int, start_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return prompts with their likeliest answers."""
        return self._sample(input_ids, sequence_length, start_ids=start_ids, sampling=Sampling(top_k=1))


class GPT2ForSampling(_TopK):
    """GPT-2."""

    model_types = ("gpt2",)

    def beam_search(
        self, input_ids: torch.Tensor, num_beams: int, sequence_length: int, start_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the beams of each prompt, int64 [batch, `num_beams`, at most `sequence_length`], the best first.

        Args:
            input_ids: prompts [batch, columns], padded on the left.
            num_beams: beams of a prompt; `batch_size` is the beams of all prompts.
            sequence_length: tokens of the longest result, prompt included.
            start_ids: number of padding tokens of each prompt.
        """
        length = self.length_with_room(input_ids, sequence_length, num_beams)
        self.reset()
        starts = left_padding(start_ids, len(input_ids), self.neuron_config.padding_side)
        with spelled(KEYWORDS):
            beams = self.compiled.generate(
                input_ids.long(),
                attention_mask=left_mask(input_ids, starts),
                max_length=length,
                num_beams=num_beams,
                num_return_sequences=num_beams,
                do_sample=False,
            )
        return beams.reshape(len(input_ids), num_beams, -1)


class GPT2ForSamplingWithContextBroadcasting(GPT2ForSampling):
    """GPT-2 whose `sample` continues each prompt several times, with `prompt_batch_size` below `batch_size`."""

    defaults: ClassVar[dict[str, Any]] = {**GPT2ForSampling.defaults, "prompt_batch_size": None}

    def __init__(self, config: PretrainedConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self.prompt_batch_size: int | None = options.get("prompt_batch_size")
        """Prompts of a call; None: any number, each continued once."""
        num_prompts, num_rows = self.prompt_batch_size, self.num_rows
        if num_prompts is not None and (not isinstance(num_prompts, int) or num_prompts < 1 or num_rows % num_prompts):
            raise ConfigError(
                f"prompt_batch_size={num_prompts!r} does not divide batch_size={num_rows}.",
                hint=f"Pass a divisor of {num_rows}.",
                option="prompt_batch_size",
                value=num_prompts,
                batch_size=num_rows,
            )

    def sample(
        self,
        input_ids: torch.Tensor,
        sequence_length: int,
        start_ids: torch.Tensor | None = None,
        top_k: int = 50,
        streamer: object = None,
        output_scores: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor]]:
        """Return prompts with their answers: `batch_size` rows if there are `prompt_batch_size` prompts.

        Args:
            input_ids: prompts; row i has answers i * n to (i + 1) * n - 1, where n is batch_size / prompt_batch_size.
            sequence_length: tokens of the longest result, prompt included.
            start_ids: number of padding tokens of each prompt.
            top_k: likeliest tokens among which the next one is drawn; 1 takes the likeliest.
            streamer: gets the tokens of each step by `put`, and `end`.
            output_scores: return the logits of each step too.
        """
        if len(input_ids) == self.prompt_batch_size:
            number = self.num_rows // self.prompt_batch_size
            input_ids = input_ids.repeat_interleave(number, 0)
            start_ids = None if start_ids is None else torch.as_tensor(start_ids).repeat_interleave(number, 0)
        return super().sample(input_ids, sequence_length, start_ids, top_k, streamer, output_scores)


class GPTJForSampling(_TopK):
    """GPT-J."""

    model_types = ("gptj",)


class GPTNeoXForSampling(_TopK):
    """GPT-NeoX."""

    model_types = ("gpt_neox",)


AUTO: dict[str, type[NeuronModelBase]] = {
    "bloom": BloomForSampling,
    "gpt2": GPT2ForSamplingWithContextBroadcasting,
    "gpt_neox": GPTNeoXForSampling,
    "gptj": GPTJForSampling,
    "llama": LlamaForSampling,
    "mistral": MistralForSampling,
    "mixtral": MixtralForSampling,
    "opt": OPTForSampling,
    "qwen2": Qwen2ForSampling,
    "qwen3": Qwen3ForSampling,
}
"""Class of each architecture."""


class NeuronAutoModelForCausalLM:
    """Chooses the class of a checkpoint's architecture."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_path: str | Path, *model_args: object, **options: object
    ) -> NeuronModelBase:
        """Return a model of the class for the checkpoint, as that class's `from_pretrained` does.

        Raises:
            ModelError: no class is for its architecture.
        """
        model_type = load_source(pretrained_model_path, with_weights=False).config.model_type
        if model_type not in AUTO:
            raise ModelError(
                f"The model type {model_type!r} has no class in transformers_neuronx.",
                hint=f"Use one of {', '.join(AUTO)}, or NeuronModelForCausalLM, which has all decoders.",
                model_type=model_type,
                supported=list(AUTO),
            )
        return AUTO[model_type].from_pretrained(pretrained_model_path, *model_args, **options)
