"""Compare tokens of a loaded model with those of transformers. `logits.py` compares logits.

Shape legend: T steps, R rows, C columns, V vocabulary.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import BatchEncoding, GenerationConfig

from ..base.foreign import module_facts, tokenizer_facts
from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import ConfigError, LogitMatchingError
from .adapter import SETTINGS, HuggingFaceGenerationAdapter, no_token
from .application import NeuronBaseForCausalLM
from .inputs import padded_left
from .sampling import prepare_sampling_params

logger = logging.getLogger(__name__)

TEST_PROMPT = "Hello, I am a language model, and I am here to help,"
"""The prompt if none is given."""


def prepare_inputs_from_prompt(
    neuron_model: Any,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str | Sequence[str] | None = None,
    input_start_offsets: Any = None,
) -> Any:
    """Return tokens of a prompt for every row of the batch.

    Args:
        neuron_model: the model.
        tokenizer: its tokenizer.
        prompt: the text, or one for each row; None: `TEST_PROMPT`.
        input_start_offsets: see `shift_inputs_by_offset`.

    Raises:
        ConfigError: there is no tokenizer.
    """
    if tokenizer is None:
        hint = "Pass the tokenizer of the checkpoint, or expected logits and inputs."
        raise ConfigError("A tokenizer is required to prepare inputs.", hint=hint, option="tokenizer")
    config = neuron_model.config.neuron_config
    num_rows = config.chunked_prefill_config.max_num_seqs if config.is_chunked_prefill else config.batch_size
    texts = list(prompt) if isinstance(prompt, (list, tuple)) else [prompt or TEST_PROMPT] * num_rows
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    if input_start_offsets:
        pad = tokenizer_facts(tokenizer).pad_token_id or 0
        inputs.input_ids, inputs.attention_mask = shift_inputs_by_offset(inputs, input_start_offsets, pad)
    return inputs


def shift_inputs_by_offset(
    inputs: Any, input_start_offsets: Sequence[int] | None, pad_token_id: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and mask that begin so many columns later, one number for all rows or one for each."""
    ids_RC, mask_RC = inputs.input_ids, inputs.attention_mask
    if not input_start_offsets:
        return ids_RC, mask_RC
    num_rows, num_columns = ids_RC.shape
    offsets = list(input_start_offsets) * (num_rows if len(input_start_offsets) == 1 else 1)
    shape = (num_rows, num_columns + max(offsets))
    shifted, mask = ids_RC.new_full(shape, pad_token_id), mask_RC.new_zeros(shape)
    for row, offset in enumerate(offsets):
        shifted[row, offset : offset + num_columns] = ids_RC[row]
        mask[row, offset : offset + num_columns] = mask_RC[row]
    return shifted, mask


def get_generate_outputs(
    model: Any,
    prompts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    is_hf: bool = False,
    draft_model: Any = None,
    device: str = "neuron",
    input_capture_hook: Any = None,
    input_start_offsets: Sequence[int] | None = None,
    **options: Any,
) -> tuple[Any, list[str]]:
    """Return generated tokens, and their texts.

    Args:
        model: a loaded model, or one of transformers with `is_hf=True`.
        prompts: texts.
        tokenizer: its tokenizer; prompts are padded as it says, on the left with `is_hf`.
        is_hf: whether `generate` is that of the model itself.
        draft_model: proposes tokens.
        device: must be "neuron"; `is_hf` is for the CPU.
        input_capture_hook: must be None: inputs are not captured.
        input_start_offsets: see `shift_inputs_by_offset`.
        **options: keywords of `generate`.
    """
    if device != "neuron":
        raise ConfigError(
            f"device={device!r} is not supported.", hint="Pass is_hf=True.", option="device", value=device
        )
    sides = {"padding_side": "left"} if is_hf else {}
    pad_with_end(tokenizer)
    inputs = tokenizer(list(prompts), padding=True, return_tensors="pt", **sides)
    options |= {"is_hf": is_hf, "draft_model": draft_model, "input_start_offsets": input_start_offsets}
    return get_generate_outputs_from_token_ids(
        model, inputs.input_ids, tokenizer, inputs.attention_mask, input_capture_hook=input_capture_hook, **options
    )


def get_generate_outputs_from_token_ids(
    model: Any,
    token_ids: Any,
    tokenizer: PreTrainedTokenizerBase,
    attention_mask: torch.Tensor | None = None,
    is_hf: bool = False,
    draft_model: Any = None,
    input_capture_hook: Any = None,
    input_start_offsets: Sequence[int] | None = None,
    **options: Any,
) -> tuple[Any, list[str]]:
    """Return generated tokens, and their texts; see `get_generate_outputs`.

    Args:
        model: a loaded model, or one of transformers with `is_hf=True`.
        token_ids: tokens of prompts: with `attention_mask` a tensor [R, C], else lists of any length.
        tokenizer: its tokenizer.
        attention_mask: 1 for real tokens; None: the prompts are padded here.
        is_hf: whether `generate` is that of the model itself.
        draft_model: proposes tokens.
        input_capture_hook: must be None: inputs are not captured.
        input_start_offsets: see `shift_inputs_by_offset`.
        **options: keywords of `generate`.
    """
    if input_capture_hook is not None:
        message = "input_capture_hook is not supported."
        raise ConfigError(message, hint="Leave it out.", option="input_capture_hook")
    inputs = BatchEncoding({"input_ids": token_ids, "attention_mask": attention_mask})
    if attention_mask is None:
        side = "left" if is_hf else "right"
        pad_with_end(tokenizer)
        inputs = tokenizer.pad({"input_ids": token_ids}, padding_side=side, return_tensors="pt")
    ids, mask = shift_inputs_by_offset(inputs, input_start_offsets, tokenizer_facts(tokenizer).pad_token_id or 0)
    if draft_model is not None:
        options["assistant_model"] = draft_model
    generating = model if is_hf else HuggingFaceGenerationAdapter(model)
    outputs = generating.generate(ids, attention_mask=mask, **options)
    answers = outputs if isinstance(outputs, torch.Tensor) else outputs.sequences
    return outputs, tokenizer.batch_decode(answers, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def pad_with_end(tokenizer: PreTrainedTokenizerBase) -> None:
    """Let a tokenizer without padding, such as Llama's, pad with the token that ends a text."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token


def generate_expected_logits(
    neuron_model: Any,
    input_ids: torch.Tensor,
    inputs_attention_mask: torch.Tensor,
    generation_config: GenerationConfig | None = None,
    num_tokens: int | None = None,
    additional_input_args: Mapping[str, Any] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> torch.Tensor:
    """Return the logits [T, R, V] of transformers' greedy answer on the CPU.

    Args:
        neuron_model: the model, whose checkpoint is read.
        input_ids: prompts.
        inputs_attention_mask: their mask.
        generation_config: settings; None: the checkpoint's.
        num_tokens: length of the answer; None: up to the compiled length.
        additional_input_args: further keywords of transformers' `generate`, or other values of those above.
        tokenizer: logs the answer as text.
    """
    module = neuron_model.load_hf_model(neuron_model.model_path)
    room = neuron_model.config.neuron_config.seq_len - input_ids.shape[1]
    settings = copy.deepcopy(generation_config or module_facts(module).generation_config or GenerationConfig())
    num_tokens = min(num_tokens or room, room)
    settings.update(do_sample=False, **SETTINGS)
    # With min_new_tokens, another token than the likeliest would follow where that is the end of the text.
    settings.update(
        max_length=None, max_new_tokens=num_tokens, min_new_tokens=None, eos_token_id=no_token(neuron_model)
    )
    settings.update(return_dict_in_generate=True, output_scores=False, output_logits=True)
    ids, mask = padded_left(input_ids, inputs_attention_mask)
    inputs = {"input_ids": ids, "attention_mask": mask, "generation_config": settings}
    outputs = module.generate(**{**inputs, **(additional_input_args or {})})
    logits_TRV = torch.stack(list(outputs.logits)).float()
    log_answers(tokenizer, logits_TRV)
    return logits_TRV


def log_answers(tokenizer: PreTrainedTokenizerBase | None, logits_TRV: torch.Tensor) -> None:
    """Log greedy answers as text."""
    if tokenizer is not None:
        logger.info("Expected answers: %s", tokenizer.batch_decode(logits_TRV.argmax(-1).T, skip_special_tokens=True))


def check_accuracy(
    neuron_model: NeuronBaseForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    generation_config: GenerationConfig | None = None,
    expected_token_ids: Any = None,
    num_tokens_to_check: int | None = None,
    do_sample: bool = False,
    draft_model: Any = None,
    prompt: str | Sequence[str] | None = None,
    image: Any = None,
    input_start_offsets: Any = None,
    execution_mode: str = "config",
    inputs: Any = None,
) -> None:
    """Check that a model's tokens are those of transformers.

    Args:
        neuron_model: the loaded model.
        tokenizer: its tokenizer.
        generation_config: settings; None: the checkpoint's.
        expected_token_ids: the answers; None: transformers computes them.
        num_tokens_to_check: length of the answer; None: up to the compiled length.
        do_sample: must be False: tokens that are drawn are others each time.
        draft_model: proposes tokens.
        prompt: the text; None: `TEST_PROMPT`.
        image: must be None: these models read text.
        input_start_offsets: see `shift_inputs_by_offset`.
        execution_mode: is logged; how calls run is compiled in.
        inputs: `input_ids` and `attention_mask`, in place of tokenizer and prompt.

    Raises:
        LogitMatchingError: a token differs; the details name the first of each row.
    """
    if do_sample:
        hint = "Pass do_sample=False, or compare logits."
        raise ConfigError("do_sample=True draws other tokens each time.", hint=hint, option="do_sample")
    refuse_images(image=image)
    logger.info("Checking tokens, execution_mode=%s.", execution_mode)
    if inputs is None:
        inputs = prepare_inputs_from_prompt(neuron_model, tokenizer, prompt, input_start_offsets)
    ids_RC, mask_RC = inputs.input_ids.long(), inputs.attention_mask.long()
    num_columns = ids_RC.shape[1]
    if expected_token_ids is None:
        logits = generate_expected_logits(neuron_model, ids_RC, mask_RC, generation_config, num_tokens_to_check)
        expected = logits.argmax(-1).T
    else:
        expected = _without_prompts(torch.as_tensor(expected_token_ids), ids_RC)
    expected = expected[:, :num_tokens_to_check]
    settings = {"do_sample": False, "max_new_tokens": expected.shape[1], "pad_token_id": 0}
    settings["eos_token_id"] = no_token(neuron_model)
    options: dict[str, Any] = {} if draft_model is None else {"assistant_model": draft_model}
    greedy = copy.deepcopy(generation_config or neuron_model.compiled.generation_config)
    greedy.update(**SETTINGS, **settings)
    if neuron_model.on_device_sampling:
        options["sampling_params"] = prepare_sampling_params(len(ids_RC))
    adapter = HuggingFaceGenerationAdapter(neuron_model)
    answer = adapter.generate(ids_RC, attention_mask=mask_RC, generation_config=greedy, **options)[:, num_columns:]
    num_tokens = min(answer.shape[1], expected.shape[1])
    differs = answer[:, :num_tokens] != expected[:, :num_tokens]
    if bool(differs.any()):
        first = {row: int(one.long().argmax()) for row, one in enumerate(differs) if bool(one.any())}
        row, index = next(iter(first.items()))
        raise LogitMatchingError(
            f"Tokens differ from the expected ones in {len(first)} of {len(differs)} rows, first in row {row}: token "
            f"{index} is {int(answer[row, index])}, not {int(expected[row, index])}.",
            hint="Compare logits, which says how close the two tokens are.",
            first=first,
        )
    print(f"The {num_tokens} tokens of {len(differs)} rows are the expected ones.")


def refuse_images(**options: object) -> None:
    """Raise an error for options that only models with images have."""
    if given := sorted(name for name, value in options.items() if value is not None):
        hint = "Leave them out, or compare the logits of NeuronModelForImageTextToText."
        raise ConfigError(f"{', '.join(given)}: these models read text only.", hint=hint, options=given)


def _without_prompts(tokens: torch.Tensor, ids_RC: torch.Tensor) -> torch.Tensor:
    """Answers, of tokens that may begin with the prompts."""
    num_columns = ids_RC.shape[1]
    return tokens[:, num_columns:] if torch.equal(tokens[:, :num_columns], ids_RC) else tokens
