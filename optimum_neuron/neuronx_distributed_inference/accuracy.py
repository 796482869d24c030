"""Compare tokens and logits of a loaded model with those of transformers, and report where they diverge.

Logits are compared for the expected tokens, one step after the other: a token that differs does not change what later
steps are compared with.

Shape legend: T steps, R rows, C columns, V vocabulary.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from ..base.foreign import module_facts, tokenizer_facts
from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import ConfigError, LogitMatchingError
from ..modeling import SequenceSlots
from .adapter import SETTINGS, HuggingFaceGenerationAdapter, no_token
from .application import NeuronBaseForCausalLM
from .sampling import prepare_sampling_params

logger = logging.getLogger(__name__)

Tolerances = Mapping[int | None, tuple[float, float]]
"""Absolute and relative tolerance of the k likeliest logits; None for all."""
TOLERANCES: Tolerances = {5: (1e-5, 0.01), 50: (1e-5, 0.02), 1000: (1e-5, 0.03), None: (1e-5, 0.05)}
DIVERGENCE = 0.001
"""Largest difference of two expected logits that may change places."""
TEST_PROMPT = "Hello, I am a language model, and I am here to help,"
"""The prompt if none is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """Comparison of the logits of one step."""

    index: int
    """Number of the new token."""
    errors: Mapping[int | None, float]
    """Largest error, relative to the largest of the k likeliest logits."""
    num_divergent: int
    """Rows whose likeliest token is another one."""
    divergence: float
    """Largest difference of the expected logits of these two tokens."""
    passed: bool


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
    **options: Any,
) -> tuple[Any, list[str]]:
    """Return generated tokens, and their texts.

    Args:
        model: a loaded model, or one of transformers with `is_hf=True`.
        prompts: texts.
        tokenizer: its tokenizer.
        is_hf: whether `generate` is that of the model itself.
        draft_model: proposes tokens.
        **options: keywords of `generate`.
    """
    inputs = tokenizer(list(prompts), padding=True, return_tensors="pt")
    if draft_model is not None:
        options["assistant_model"] = draft_model
    generating = model if is_hf else HuggingFaceGenerationAdapter(model)
    outputs = generating.generate(inputs.input_ids, attention_mask=inputs.attention_mask, **options)
    ids = outputs if isinstance(outputs, torch.Tensor) else outputs.sequences
    return outputs, tokenizer.batch_decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


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
    settings.update(max_length=None, max_new_tokens=num_tokens, min_new_tokens=num_tokens)
    settings.update(return_dict_in_generate=True, output_scores=False, output_logits=True)
    ids, mask = _padded_left(input_ids, inputs_attention_mask)
    inputs = {"input_ids": ids, "attention_mask": mask, "generation_config": settings}
    outputs = module.generate(**{**inputs, **(additional_input_args or {})})
    logits_TRV = torch.stack(list(outputs.logits)).float()
    if tokenizer is not None:
        logger.info("Expected answers: %s", tokenizer.batch_decode(logits_TRV.argmax(-1).T, skip_special_tokens=True))
    return logits_TRV


def check_accuracy(
    neuron_model: NeuronBaseForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    generation_config: GenerationConfig | None = None,
    expected_token_ids: Any = None,
    num_tokens_to_check: int | None = None,
    do_sample: bool = False,
    draft_model: Any = None,
    prompt: str | Sequence[str] | None = None,
    input_start_offsets: Any = None,
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
        input_start_offsets: see `shift_inputs_by_offset`.
        inputs: `input_ids` and `attention_mask`, in place of tokenizer and prompt.

    Raises:
        LogitMatchingError: a token differs; the details name the first of each row.
    """
    if do_sample:
        hint = "Pass do_sample=False, or compare logits."
        raise ConfigError("do_sample=True draws other tokens each time.", hint=hint, option="do_sample")
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


def _without_prompts(tokens: torch.Tensor, ids_RC: torch.Tensor) -> torch.Tensor:
    """Answers, of tokens that may begin with the prompts."""
    num_columns = ids_RC.shape[1]
    return tokens[:, num_columns:] if torch.equal(tokens[:, :num_columns], ids_RC) else tokens


def check_accuracy_logits(
    neuron_model: NeuronBaseForCausalLM,
    tokenizer: PreTrainedTokenizerBase = None,
    generation_config: GenerationConfig | None = None,
    prompt: str | Sequence[str] | None = None,
    expected_logits: torch.Tensor | None = None,
    divergence_difference_tol: float = DIVERGENCE,
    tol_map: Tolerances | None = None,
    num_tokens_to_check: int | None = None,
    input_start_offsets: Any = None,
    inputs: Any = None,
) -> list[Step]:
    """Check that a model's logits are those of transformers; see `check_accuracy_logits_v2`.

    `inputs` with `input_ids` and `attention_mask` is in place of tokenizer and prompt.
    """
    if inputs is None:
        inputs = prepare_inputs_from_prompt(neuron_model, tokenizer, prompt, input_start_offsets)
    ids_RC, mask_RC = inputs.input_ids.long(), inputs.attention_mask.long()
    if expected_logits is None:
        expected_logits = generate_expected_logits(
            neuron_model, ids_RC, mask_RC, generation_config, num_tokens_to_check
        )
    return check_accuracy_logits_v2(
        neuron_model,
        expected_logits,
        ids_RC,
        mask_RC,
        generation_config,
        divergence_difference_tol=divergence_difference_tol,
        tol_map=tol_map,
        num_tokens_to_check=num_tokens_to_check,
    )


def check_accuracy_logits_v2(
    neuron_model: NeuronBaseForCausalLM,
    expected_logits: torch.Tensor,
    inputs_input_ids: torch.Tensor,
    inputs_attention_mask: torch.Tensor,
    generation_config: GenerationConfig | None = None,
    divergence_difference_tol: float = DIVERGENCE,
    tol_map: Tolerances | None = None,
    num_tokens_to_check: int | None = None,
) -> list[Step]:
    """Check that a model's logits are the expected ones, and print a report.

    Args:
        neuron_model: the loaded model.
        expected_logits: [T, R, V], of a greedy answer.
        inputs_input_ids: prompts.
        inputs_attention_mask: their mask.
        generation_config: not needed: the expected logits say which tokens follow.
        divergence_difference_tol: largest difference of two expected logits that may change places.
        tol_map: absolute and relative tolerance of the k likeliest logits; the relative one is of the largest of them.
        num_tokens_to_check: steps; None: all.

    Returns:
        The comparison of each step.

    Raises:
        LogitMatchingError: a difference is larger; the details have all steps.
    """
    expected_TRV = expected_logits[:num_tokens_to_check].float()
    actual_TRV = _forced(neuron_model, expected_TRV.argmax(-1), inputs_input_ids, inputs_attention_mask)
    steps = [
        _compared(index, expected, actual, tol_map or TOLERANCES, divergence_difference_tol)
        for index, (expected, actual) in enumerate(zip(expected_TRV, actual_TRV, strict=True))
    ]
    print(_report(steps))
    if failed := [step for step in steps if not step.passed]:
        raise LogitMatchingError(
            f"Logits differ in {len(failed)} of {len(steps)} steps, first in step {failed[0].index}.",
            hint="Compile with torch_dtype=float32 to see whether it is rounding, or pass a larger tol_map.",
            divergence_index=failed[0].index,
            steps=[dataclasses.asdict(step) for step in steps],
        )
    return steps


def _forced(
    neuron_model: NeuronBaseForCausalLM, tokens_TR: torch.Tensor, ids_RC: torch.Tensor, mask_RC: torch.Tensor
) -> torch.Tensor:
    """The model's logits [T, R, V] if each step gets the expected token before it."""
    model, num_rows = neuron_model.compiled, len(ids_RC)
    if neuron_model.neuron_config.on_cpu:
        return _forced_on_cpu(model, tokens_TR, ids_RC, mask_RC)
    slots, rows = SequenceSlots(model, num_rows), list(range(num_rows))
    logits = [slots.begin(rows, ids_RC, mask_RC)[:, -1]]
    for tokens_R in tokens_TR[:-1]:
        logits.append(slots.extend(rows, tokens_R[:, None], slots.lengths_S)[:, -1])
    return torch.stack(logits).float()


@torch.no_grad()
def _forced_on_cpu(model: Any, tokens_TR: torch.Tensor, ids_RC: torch.Tensor, mask_RC: torch.Tensor) -> torch.Tensor:
    """The same of a model of transformers, which reads the whole sequences at once."""
    prompts, mask = _padded_left(ids_RC, mask_RC)
    ids = torch.cat([prompts, tokens_TR[:-1].T], 1)
    mask = torch.cat([mask, mask.new_ones(len(ids), len(tokens_TR) - 1)], 1)
    logits_RCV = model(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    return logits_RCV[:, -len(tokens_TR) :].transpose(0, 1).float()


def _padded_left(ids_RC: torch.Tensor, mask_RC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts and their mask with all padding on the left, which transformers continues."""
    order = mask_RC.long().argsort(dim=1, stable=True)
    return ids_RC.gather(1, order), mask_RC.gather(1, order)


def _compared(index: int, expected_RV: torch.Tensor, actual_RV: torch.Tensor, tol: Tolerances, most: float) -> Step:
    """Compare the logits of a step."""
    errors, passed = {}, True
    for number, (absolute, relative) in tol.items():
        count = expected_RV.shape[-1] if number is None else min(int(number), expected_RV.shape[-1])
        values, tokens = expected_RV.topk(count)
        difference, scale = (actual_RV.gather(-1, tokens) - values).abs(), values.abs().amax(-1, keepdim=True)
        errors[number] = float((difference / scale.clamp(min=1e-30)).max())
        passed &= bool((difference <= absolute + relative * scale).all())
    best, chosen = expected_RV.argmax(-1), actual_RV.argmax(-1)
    gap = expected_RV.gather(-1, best[:, None]) - expected_RV.gather(-1, chosen[:, None])
    divergence = float(gap.max())
    return Step(
        index=index,
        errors=errors,
        num_divergent=int((best != chosen).sum()),
        divergence=divergence,
        passed=passed and divergence <= most,
    )


def _report(steps: Sequence[Step]) -> str:
    """The largest errors, and the steps in which tokens diverge."""
    lines = [f"Logits of {len(steps)} steps:"]
    for number in steps[0].errors:
        worst = max(steps, key=lambda step: step.errors[number])
        name = "all logits" if number is None else f"top {number}"
        lines.append(f"  {name}: largest relative error {worst.errors[number]:.2e}, in step {worst.index}")
    divergent = [step for step in steps if step.num_divergent]
    lines.append(f"  another token is the likeliest in {len(divergent)} steps")
    lines += [f"    step {step.index}: expected logits differ by {step.divergence:.2e}" for step in divergent]
    return "\n".join(lines)
