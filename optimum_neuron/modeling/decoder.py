"""The base of compiled decoders, with or without images in their prompts: batching, KV cache, buckets, `generate`.

It packs a padded batch, picks the entry point and bucket, and returns logits. `GenerationMixin` picks the next tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from ..core import Choice
from ..engine import PromptImages, Steps, check_positions, make_decoder, plan_packing
from ..exporters import Prepared
from ..labels import IGNORED, next_labels
from .adapters import AdapterMethods, AdapterSlots
from .cache import NeuronCache, own_cache
from .checks import check_length, checked_mask, limit_length
from .generation import NeuronGenerativeModel, known_inputs
from .targets import check_labels, label_loss
from .two_step import TwoStepExport


class NeuronDecoderModel(AdapterMethods, NeuronGenerativeModel, TwoStepExport):
    """The base of the compiled models that continue a prompt; it has no `forward`."""

    main_input_name = "input_ids"

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._decoder = make_decoder(self.loaded, self._signature)
        self._adapters = AdapterSlots(prepared) if "adapters" in prepared.metadata else None
        self._text_config = self.config.get_text_config(decoder=True)
        self._inputs = frozenset(inspect.signature(type(self).forward).parameters)

    def _checked_mask(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, past_key_values: NeuronCache | None
    ) -> tuple[torch.Tensor, NeuronCache]:
        """Return the mask over all columns, and the cache that a call continues or begins."""
        cache = own_cache(past_key_values, self.loaded, self._signature)
        vocabulary = self._text_config.vocab_size
        return checked_mask(input_ids, attention_mask, num_past=cache.columns, vocabulary=vocabulary), cache

    def _logits_and_loss(
        self,
        input_ids: torch.Tensor,
        mask: torch.Tensor,
        position_ids: torch.Tensor | None,
        cache: NeuronCache,
        labels: torch.Tensor | None,
        logits_to_keep: int | torch.Tensor,
        images: PromptImages | None = None,
        adapter_names: Sequence[str] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return logits [batch, columns, V] of `logits_to_keep`, and the loss of all columns if there are labels."""
        packing = plan_packing(mask, cache.columns)
        check_positions(position_ids, packing)
        check_length(packing, self.sequence_length)
        num_rows, num_columns = input_ids.shape
        cache.reserve(num_rows, self.loaded)
        if adapter_names is not None or self._adapters is not None:
            cache.sequences.use_adapters(self.adapters.indices(adapter_names, num_rows))
        is_count = isinstance(logits_to_keep, int)
        num_logits = logits_to_keep if is_count and labels is None else 0
        logits = self._decoder(
            input_ids.long(), packing, cache.sequences, num_past=cache.columns, num_logits=num_logits, images=images
        )
        cache.add(num_columns, logits)
        loss = None if labels is None else next_token_loss(logits, labels)
        if not is_count:
            logits = logits[:, logits_to_keep]
        elif labels is not None:
            logits = logits[:, -logits_to_keep:]
        return logits, loss

    def _output_cache(self, cache: NeuronCache, use_cache: bool | None) -> NeuronCache | None:
        """Return the cache if `use_cache` is True; the default is the configuration's."""
        keep = getattr(self._text_config, "use_cache", True) if use_cache is None else use_cache
        return cache if keep else None

    # The interface of GenerationMixin.

    def _steps(self, cache: NeuronCache, model_kwargs: dict[str, Any]) -> Steps:
        return self._decoder.steps(cache.sequences, cache.lengths(model_kwargs.get("attention_mask")))

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Repeat the inputs of each prompt for beams and returned sequences, its adapter too."""
        input_ids, inputs = super()._expand_inputs_for_generation(expand_size, *args, **kwargs)
        if (names := inputs.get("adapter_names")) is not None:
            inputs["adapter_names"] = [name for name in names for _ in range(expand_size)]
        return input_ids, inputs

    def _get_candidate_generator(self, *args: Any, **kwargs: Any) -> Any:
        """Return transformers' generator of candidates; an assistant has adapters of its own."""
        generator = super()._get_candidate_generator(*args, **kwargs)
        getattr(generator, "assistant_kwargs", {}).pop("adapter_names", None)
        return generator

    def _limit_length(self, settings: GenerationConfig, attention_mask: torch.Tensor | None) -> None:
        limit_length(settings, attention_mask, self.sequence_length)

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, *args: Any, is_first_iteration: bool | None = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Prepare inputs as transformers does, without positions of later tokens and without foreign arguments.

        Positions come from the mask: `generate` counts on from the last column, which is padding after right padding.
        """
        inputs = super().prepare_inputs_for_generation(
            input_ids, *args, is_first_iteration=is_first_iteration, **kwargs
        )
        if not is_first_iteration:
            inputs.pop("position_ids", None)
        return known_inputs(inputs, self._inputs)

    def choose_bucket(self, num_tokens: int) -> Choice[int]:
        """Return the smallest prefill bucket that fits a prompt, with the reason.

        Raises:
            ShapeError: the prompt is longer than the largest bucket.
        """
        return self._decoder.choose_bucket(num_tokens)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Prompt lengths of the compiled prefill graphs, in tokens."""
        assert self.neuron_config.prefill_buckets is not None
        return self.neuron_config.prefill_buckets

    @property
    def sequence_length(self) -> int:
        """Longest sequence, prompt and answer together, in tokens."""
        assert self.neuron_config.sequence_length is not None
        return self.neuron_config.sequence_length


def next_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next token, as transformers' `ForCausalLMLoss`.

    Raises:
        ShapeError: labels are not token IDs, one for each token.
    """
    check_labels(labels, logits.shape[-1])
    hint = f"Pass one label for each token, {IGNORED} to skip it; labels are shifted here."
    return label_loss(logits, next_labels(labels), of="input_ids", hint=hint)
