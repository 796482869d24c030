"""The base of compiled decoders, with images, audio, or text alone in prompts: batching, cache, buckets, `generate`.

It packs a padded batch, picks the entry point and bucket, and returns logits. `GenerationMixin` picks the next tokens.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..base.core import Choice, Rejected
from ..base.labels import IGNORED, next_labels
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedModel, PreTrainedTokenizerBase
from ..engine import Draft, PromptFeatures, SequenceDraft, Steps, check_positions, make_decoder, plan_packing
from ..errors import ConfigError
from ..exporters import Prepared
from ..models import Reach, reach_of
from ..upstream.cache_argument import CACHE
from ..upstream.transformers import prepare_attention_mask, prepare_position_ids, prepare_token_type_ids
from .adapters import AdapterMethods, AdapterSlots
from .cache import NeuronCache, own_cache
from .checks import check_length, checked_mask, limit_length
from .generation import NeuronGenerativeModel, known_inputs, limit_candidates
from .speculation import GeneratedCandidates, Speculation, SpeculativeSteps
from .targets import check_labels, label_loss
from .token_loop import TRANSFORMERS, TokenLoop, choose_loop
from .two_step import TwoStepExport

if TYPE_CHECKING:
    from transformers.generation.streamers import BaseStreamer

    from ..options.configuration import NeuronConfig

logger = logging.getLogger(__name__)


class NeuronDecoderModel(AdapterMethods, NeuronGenerativeModel, TwoStepExport):
    """The base of the compiled models that continue a prompt; it has no `forward`."""

    neuron_config: NeuronConfig

    main_input_name = "input_ids"

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._decoder = make_decoder(self.loaded, self._signature)
        self._adapters = AdapterSlots(prepared) if "adapters" in prepared.metadata else None
        self._text_config = self.config.get_text_config(decoder=True)
        self._output_type: Any = CausalLMOutputWithPast
        self._inputs = frozenset(inspect.signature(type(self).forward).parameters)

    @functools.cached_property
    def _reach(self) -> Reach | None:
        """What is limited in how far layers see."""
        return reach_of(self._text_config)

    def _checked_mask(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, cache: NeuronCache | None
    ) -> tuple[torch.Tensor, NeuronCache]:
        """Return the mask over all columns, and the cache that a call continues or begins."""
        cache = own_cache(cache, self.loaded, self._signature)
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
        features: PromptFeatures | None = None,
        adapter_names: Sequence[str] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return logits [batch, columns, V] of `logits_to_keep`, and the loss of all columns if there are labels."""
        packing = plan_packing(mask, cache.columns)
        check_positions(position_ids, packing)
        check_length(packing, self.sequence_length)
        num_rows, num_columns = input_ids.shape
        cache.reserve(num_rows, self.loaded)
        cache.check_mask(mask, self._reach)
        if adapter_names is not None or self._adapters is not None:
            cache.sequences.use_adapters(self.adapters.indices(adapter_names, num_rows))
        is_count = isinstance(logits_to_keep, int)
        num_logits = logits_to_keep if is_count and labels is None else 0
        results = self._decoder.results(
            input_ids.long(), packing, cache.sequences, num_past=cache.columns, num_logits=num_logits, features=features
        )
        logits = results.pop("logits")
        cache.note_mask(mask)
        cache.add(num_columns, logits)
        cache.hidden = results
        loss = None if labels is None else next_token_loss(logits, labels)
        if not is_count:
            logits = logits[:, logits_to_keep]
        elif labels is not None:
            logits = logits[:, -logits_to_keep:]
        return logits, loss

    def _output(
        self,
        logits_and_loss: tuple[torch.Tensor, torch.Tensor | None],
        cache: NeuronCache,
        use_cache: bool | None,
        return_dict: bool | None,
        **more: object,
    ) -> Any:
        """Return the result of `forward`, with the cache if `use_cache`; the default is the configuration's."""
        logits, loss = logits_and_loss
        keep = facts_of(self._text_config).use_cache is not False if use_cache is None else use_cache
        output = self._output_type(loss=loss, logits=logits, **{CACHE: cache if keep else None}, **more)
        return output.to_tuple() if return_dict is False else output

    # The interface of GenerationMixin.

    last_speculation: Speculation | None = None
    """Candidates of the last assisted `generate`, and how many were accepted; None in transformers' loop."""

    def decode_steps(self, cache: NeuronCache, attention_mask: torch.Tensor | None = None) -> Steps:
        """Return the next decode steps of the sequences in a cache: calls from tokens [batch] to results by name.

        Steps skip the checks of `forward`. Afterwards, tell the cache of them: `cache.add(num_steps, logits)`.

        Args:
            cache: the cache of an earlier call of `forward`.
            attention_mask: the mask of that call.
        """
        return self._decoder.steps(cache.sequences, cache.lengths(attention_mask))

    def _steps(self, cache: NeuronCache, model_kwargs: dict[str, Any]) -> Steps:
        return self.decode_steps(cache, model_kwargs.get("attention_mask"))

    def _has_holes(self, model_kwargs: dict[str, Any]) -> bool:
        mask, cache = model_kwargs.get("attention_mask"), model_kwargs[CACHE]
        if self._reach is None or mask is None or mask.ndim != 2 or len(mask) != (cache.num_rows or len(mask)):
            return False
        return cache.has_holes(mask)

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Repeat the inputs of each prompt for beams and returned sequences, its adapter too."""
        input_ids, inputs = super()._expand_inputs_for_generation(expand_size, *args, **kwargs)
        if (names := inputs.get("adapter_names")) is not None:
            inputs["adapter_names"] = [name for name in names for _ in range(expand_size)]
        return input_ids, inputs

    def _get_candidate_generator(self, *args: object, **kwargs: object) -> Any:
        """Return transformers' generator of candidates; an assistant has its own adapters."""
        generator = super()._get_candidate_generator(*args, **kwargs)
        getattr(generator, "assistant_kwargs", {}).pop("adapter_names", None)
        return generator

    def _limit_length(self, settings: GenerationConfig, attention_mask: torch.Tensor | None) -> None:
        limit_length(settings, attention_mask, self.sequence_length)

    def _assisted_decoding(
        self,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: BaseStreamer | None = None,
        inputs_tensor: torch.Tensor | None = None,
        assistant_model: PreTrainedModel | None = None,
        assistant_tokenizer: PreTrainedTokenizerBase | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        **model_kwargs: object,
    ) -> Any:
        """Add tokens with the help of a draft: in checks of compiled chunks, or in transformers' loop."""
        options = {"inputs_tensor": inputs_tensor, "assistant_model": assistant_model}
        options |= {"assistant_tokenizer": assistant_tokenizer, "tokenizer": tokenizer}
        self.last_speculation = None
        if isinstance(cache := model_kwargs.get(CACHE), NeuronCache):
            cache.require_croppable()  # transformers finds out behind the prompt
        choice = self._speculation_loop(input_ids, generation_config, model_kwargs, synced=synced_gpus)
        self.last_loop = choice
        if choice.value == TRANSFORMERS:
            if isinstance(assistant_model, Draft):
                message = f"{assistant_model.name} cannot draft here: {choice.reason}."
                hint = "Remove assistant_model, or the setting."
                raise ConfigError(message, hint=hint, option="assistant_model", reason=choice.reason)
            options |= {"synced_gpus": synced_gpus, "streamer": streamer, **model_kwargs}
            return super()._assisted_decoding(
                input_ids, logits_processor, stopping_criteria, generation_config, **options
            )
        draft = self._draft(input_ids, logits_processor, generation_config, model_kwargs, **options)
        is_first = not generation_config.is_assistant
        outputs = self._prefill(input_ids, generation_config, model_kwargs, is_first_iteration=is_first)
        cache = outputs[CACHE]
        check = self._decoder.check(cache.sequences, int(cache.lengths(model_kwargs.get("attention_mask"))))
        mask = model_kwargs.get("attention_mask")
        steps = SpeculativeSteps(check, cache, draft, input_ids, mask, generation_config.max_length)
        loop = TokenLoop(generation_config, logits_processor, stopping_criteria, streamer)
        try:
            ids = loop.run(input_ids, outputs.logits[:, -1:], steps, cache)
        finally:
            self.last_speculation = steps.report
            logger.info("%s", steps.report)
        return loop.output(ids, cache, has_encoder=False)

    def _speculation_loop(
        self, input_ids: torch.Tensor, settings: GenerationConfig, model_kwargs: dict[str, Any], *, synced: bool
    ) -> Choice[str]:
        """Choose the loop that checks candidates, with the reason."""
        choice = choose_loop(self, settings, model_kwargs, synced=synced)
        if choice.value == TRANSFORMERS:
            return choice
        if len(input_ids) > 1:
            reason = "candidates are checked for one sequence only"
        elif self._decoder.extend_length == 1:
            reason = "extend_length=1 has no graph that checks several tokens"
        elif (
            settings.use_mtp or settings.speculation_type is not None or settings.assistant_ensemble_weight is not None
        ):
            reason = "the settings choose a draft that reads the model's layers, or its own scores"
        else:
            return choice
        return Choice(value=TRANSFORMERS, reason=reason, rejected=(Rejected(candidate=choice.value, reason=reason),))

    def _draft(
        self,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList | None,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        *,
        inputs_tensor: torch.Tensor | None,
        assistant_model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        assistant_tokenizer: PreTrainedTokenizerBase,
    ) -> Draft:
        """Return the source of candidates that the settings choose."""
        if isinstance(assistant_model, Draft):
            return assistant_model
        length = input_ids.shape[1] + 1  # candidates follow the first token of the answer
        model_kwargs = prepare_attention_mask(model_kwargs.copy(), length, is_encoder_decoder=False)
        model_kwargs = prepare_position_ids(model_kwargs, length, is_encoder_decoder=False)
        model_kwargs = prepare_token_type_ids(model_kwargs, length)
        generator = self._get_candidate_generator(
            generation_config=generation_config,
            input_ids=input_ids,
            inputs_tensor=inputs_tensor,
            assistant_model=assistant_model,
            logits_processor=logits_processor,
            target_tokenizer=tokenizer,
            assistant_tokenizer=assistant_tokenizer,
            model_kwargs=model_kwargs,
        )
        limit_candidates(generator, self._decoder.extend_length - 1, "a compiled chunk checks no more")
        return GeneratedCandidates(generator, "prompt lookup" if assistant_model is None else "assistant model")

    def request_draft(
        self, prompt: Sequence[int], settings: GenerationConfig, assistant_model: PreTrainedModel
    ) -> SequenceDraft | None:
        """Return the draft of a request of continuous batching; None if its settings choose none."""
        if assistant_model is None and settings.prompt_lookup_num_tokens is None:
            return None
        if names := sorted(name for name, state in self._signature.states.items() if not state.has_slots):
            message = f"Requests to this model cannot have a draft: {', '.join(names)} cannot forget rejected tokens."
            raise ConfigError(message, hint="Remove the draft from the request.", states=names)
        if self._decoder.extend_length == 1:
            message = "This model has no graph that checks candidates of a draft."
            hint = "Export with extend_length=8, and speculation=True for fast host code."
            raise ConfigError(message, hint=hint, option="extend_length", value=1)
        settings = copy.deepcopy(settings)
        settings.num_return_sequences = 1
        ids = torch.tensor([prompt])
        options = {"inputs_tensor": ids, "assistant_model": assistant_model}
        options |= {"tokenizer": None, "assistant_tokenizer": None}
        inputs = {"attention_mask": torch.ones_like(ids), "use_cache": True}
        # A draft gets no processors: they may count their calls, which belong to the answer.
        return SequenceDraft(self._draft(ids, None, settings, inputs, **options))

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, *args: object, is_first_iteration: bool | None = False, **kwargs: object
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
        """Return the smallest prefill bucket that fits a prompt, with the reason."""
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
    """Return the mean cross-entropy of the next token, as transformers' `ForCausalLMLoss`."""
    check_labels(labels, logits.shape[-1])
    hint = f"Pass one label for each token, {IGNORED} to skip it; labels are shifted here."
    return label_loss(logits, next_labels(labels), of="input_ids", hint=hint)
