"""`generate` of transformers over a loaded model, with parameters of sampling for each row.

generation_model = HuggingFaceGenerationAdapter(model)
generation_model.generate(input_ids, attention_mask=mask, max_length=64, sampling_params=params)
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, GenerationMixin, LogitsProcessor, PreTrainedModel

from ..errors import ConfigError
from ..modeling import require_rows, sequences_each
from ..options.spelling import spelled
from .application import NeuronBaseForCausalLM
from .config import NeuronConfig
from .inputs import checked_prompts, fitting, padded_left, require_room
from .options import KEYWORDS, num_rows
from .parts import OnDeviceSamplingConfig
from .sampling import Sampler, check_params, prepare_sampling_params

SETTINGS = {"top_k": 50, "top_p": 1.0, "temperature": 1.0}
"""Settings of sampling, with the defaults of transformers."""


def no_token(model: NeuronBaseForCausalLM) -> int:
    """Return an `eos_token_id` that no answer has: None would be that of the checkpoint."""
    return int(model.config.get_text_config().vocab_size)


class _Drawn(LogitsProcessor):
    """Leaves only the tokens that a sampler has drawn."""

    def __init__(self, sampler: Sampler, params_R3: torch.Tensor) -> None:
        self._sampler, self._params_R3 = sampler, params_R3

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores of which one in each row is finite."""
        params_R3 = self._params_R3
        if len(scores) % len(params_R3) == 0:  # several sequences of each prompt
            params_R3 = params_R3.repeat_interleave(len(scores) // len(params_R3), 0)
        tokens_R = self._sampler(scores, params_R3)
        return torch.full_like(scores, -torch.inf).scatter(1, tokens_R[:, None], 0.0)


class HuggingFaceGenerationAdapter(PreTrainedModel, GenerationMixin):
    """A loaded model, as transformers calls it.

    Args:
        model: a model whose `load` was called.
        input_start_offsets: not needed: the mask says where prompts begin.
        capture_draft_logits: must be False: logits of drafts are not kept.
    """

    main_input_name = "input_ids"
    _supports_sdpa = _supports_flash_attn = True

    def __init__(
        self, model: NeuronBaseForCausalLM, input_start_offsets: object = None, capture_draft_logits: bool = False
    ) -> None:
        if capture_draft_logits:
            message = "capture_draft_logits=True is not supported."
            raise ConfigError(message, hint="Leave it out.", option="capture_draft_logits")
        super().__init__(model.compiled.config)
        self.generation_config = model.compiled.generation_config
        self.neuron_model, self.neuron_config = model, model.neuron_config
        self.on_device_sampling = model.on_device_sampling

    @property
    def device(self) -> torch.device:
        """Where inputs belong."""
        return torch.device("cpu")

    def forward(self, *args: object, **options: object) -> Any:
        """Call the model; see `NeuronBaseForCausalLM.forward`."""
        return self.neuron_model(*args, **options)

    @torch.no_grad()
    @spelled(KEYWORDS)
    def generate(
        self,
        input_ids: torch.Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        sampling_params: torch.Tensor | None = None,
        adapter_ids: Any = None,
        assistant_model: Any = None,
        **options: Any,
    ) -> Any:
        """Generate as transformers does.

        Args:
            input_ids: prompts [batch, columns], with padding on either side.
            generation_config: settings; None: the checkpoint's.
            sampling_params: parameters [batch, 3] of each row; None: those of the settings.
            adapter_ids: LoRA adapter of each row.
            assistant_model: a draft: a model, or an adapter of one.
            **options: settings and inputs of transformers' `generate`.

        Raises:
            ShapeError: a prompt is longer than `max_context_length`, there are more prompts or beams than rows, or
                parameters for other rows.
            ConfigError: the answer would be longer than `max_length` of the compiled model.
        """
        ids, mask = checked_prompts(
            options.pop("inputs", None) if input_ids is None else input_ids, options.pop("attention_mask", None)
        )
        given = dict(options)
        ids = fitting(self.neuron_config, ids)
        mask = mask[:, : ids.shape[1]]
        settings = copy.deepcopy(self.generation_config if generation_config is None else generation_config)
        require_rows(len(ids), num_rows(self.neuron_config), sequences_each(settings, options))
        require_room(self.neuron_config, ids, options)
        options = settings.update(**options)
        if (sampler := self._sampler(settings, sampling_params, len(ids))) is not None:
            options["logits_processor"] = [*(options.get("logits_processor") or []), *sampler]
            settings.update(do_sample=bool(sampler), **SETTINGS)
        if (draft := self._draft(assistant_model)) is not None:
            if len(ids) > 1:
                rows = (generation_config, sampling_params, adapter_ids, assistant_model)
                return self._row_by_row(ids, mask, settings, rows, given)
            options["assistant_model"] = draft
        if adapter_ids is not None:
            options["adapter_names"] = list(adapter_ids) if isinstance(adapter_ids, (list, tuple)) else [adapter_ids]
        self.neuron_model.reset()
        generate = self.neuron_model.compiled.generate
        if not self.neuron_config.on_cpu:
            return generate(ids, attention_mask=mask, generation_config=settings, **options)
        left, mask = padded_left(ids, mask)  # the reference model continues the last column
        outputs = generate(left, attention_mask=mask, generation_config=settings, **options)
        tokens = outputs if isinstance(outputs, torch.Tensor) else outputs.sequences
        tokens[:, : ids.shape[1]] = ids.repeat_interleave(len(tokens) // len(ids), 0)
        return outputs

    def _row_by_row(
        self, ids_RC: torch.Tensor, mask_RC: torch.Tensor, settings: GenerationConfig, rows: Any, options: Any
    ) -> torch.Tensor:
        """Return the answers of several prompts, one after the other: numbers of accepted tokens differ."""
        if settings.return_dict_in_generate or options.get("streamer") is not None:
            name = "streamer" if options.get("streamer") is not None else "return_dict_in_generate"
            raise ConfigError(
                f"{name} is for one prompt where a draft proposes, not for {len(ids_RC)}.",
                hint=f"Call generate for each prompt, or remove {name}.",
                option=name,
                num_rows=len(ids_RC),
            )
        config, params, adapters, assistant = rows
        several = isinstance(adapters, (list, tuple)) and len(adapters) > 1
        answers = [
            self.generate(
                ids_RC[row : row + 1],
                config,
                params if params is None or len(params) == 1 else params[row : row + 1],
                adapters[row] if several else adapters,
                assistant,
                attention_mask=mask_RC[row : row + 1],
                **options,
            )[0]
            for row in range(len(ids_RC))
        ]
        ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
        padding = next((one for one in (settings.pad_token_id, *ends) if one is not None), 0)
        return pad_sequence(answers, batch_first=True, padding_value=padding)

    def _sampler(
        self, settings: GenerationConfig, given: torch.Tensor | None, num_rows: int
    ) -> list[LogitsProcessor] | None:
        """Return what picks tokens in place of the settings; None if they do."""
        config = self.neuron_config.on_device_sampling_config
        if given is None and config is None:
            return None
        if config is None:
            config = OnDeviceSamplingConfig(do_sample=bool(settings.do_sample))
        sampler = Sampler(NeuronConfig(on_device_sampling_config=config))
        if given is not None:
            given = torch.as_tensor(given, dtype=torch.float32)
            check_params(given, config, num_rows)
        if sampler.is_greedy or (given is None and not settings.do_sample):
            return []
        if given is None:
            values = {name: getattr(settings, name) for name in SETTINGS}
            named = {name: SETTINGS[name] if value is None else value for name, value in values.items()}
            given = prepare_sampling_params(1, **named)
            check_params(given, config, 1)
        return [_Drawn(sampler, given)]

    def _draft(self, assistant: object) -> Any:
        """Return what proposes tokens."""
        if assistant is None:
            return self.neuron_model.assistant
        model = assistant.neuron_model if isinstance(assistant, HuggingFaceGenerationAdapter) else assistant
        draft = model.compiled if isinstance(model, NeuronBaseForCausalLM) else model
        if isinstance(model, NeuronBaseForCausalLM):
            self.neuron_model.require_vocabulary_of(model)
        if not self.neuron_config.speculation_length:
            raise ConfigError(
                "The model was compiled without speculation_length.",
                hint="Pass NeuronConfig(speculation_length=5, ...) to the target, or remove assistant_model.",
                option="speculation_length",
            )
        return draft
