"""Compare logits of a loaded model with those of transformers, and report where they diverge.

Logits are compared for the expected tokens, one step after the other: a token that differs does not change what later
steps are compared with.

Shape legend: T steps, R rows, C columns, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import AssertedConfigError, LogitMatchingError
from ..modeling import SequenceSlots
from .accuracy import (
    generate_expected_logits,
    log_answers,
    prepare_inputs_from_prompt,
    refuse_images,
    shift_inputs_by_offset,
)
from .application import NeuronBaseForCausalLM
from .reference_slots import ReferenceSlots

logger = logging.getLogger(__name__)

Tolerances = Mapping[int | None, tuple[float, float]]
"""Absolute and relative tolerance of the k likeliest logits; None for all."""
TOLERANCES: Tolerances = {5: (1e-5, 0.01), 50: (1e-5, 0.02), 1000: (1e-5, 0.03), None: (1e-5, 0.05)}
DIVERGENCE = 0.001
"""Largest difference of two expected logits that may change places."""


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
    failed_rows: tuple[int, ...] = ()
    """Rows in which a difference is larger than a tolerance."""

    @property
    def passed(self) -> bool:
        """Whether all differences are within the tolerances."""
        return not self.failed_rows


def check_accuracy_logits(
    neuron_model: NeuronBaseForCausalLM,
    tokenizer: PreTrainedTokenizerBase = None,
    generation_config: GenerationConfig | None = None,
    prompt: str | Sequence[str] | None = None,
    expected_logits: torch.Tensor | None = None,
    divergence_difference_tol: float = DIVERGENCE,
    tol_map: Tolerances | None = None,
    num_tokens_to_check: int | None = None,
    execution_mode: str = "config",
    draft_model: Any = None,
    image: Any = None,
    num_image_per_prompt: int = 1,
    inputs: Any = None,
    input_start_offsets: Any = None,
    pad_token_id: int = 0,
    **unsupported: object,
) -> list[Step]:
    """Check that a model's logits are those of transformers; see `check_accuracy_logits_v2`.

    Args:
        neuron_model: the loaded model.
        tokenizer: its tokenizer.
        generation_config: settings; None: the checkpoint's.
        prompt: the text, or one for each row; None: `TEST_PROMPT`.
        expected_logits: [T, R, V]; None: transformers computes them.
        divergence_difference_tol: see `check_accuracy_logits_v2`.
        tol_map: see `check_accuracy_logits_v2`.
        num_tokens_to_check: steps; None: all.
        execution_mode: is logged; how calls run is compiled in.
        draft_model: not needed: a draft does not change the model's logits.
        image: must be None: these models read text.
        num_image_per_prompt: must be 1, likewise.
        inputs: `input_ids` and `attention_mask`, in place of tokenizer and prompt.
        input_start_offsets: see `shift_inputs_by_offset`.
        pad_token_id: token in columns before the offsets, if there is no tokenizer.
        **unsupported: further options of NxD Inference, which must be None.
    """
    images = None if num_image_per_prompt == 1 else num_image_per_prompt
    refuse_images(image=image, num_image_per_prompt=images, **{name: one or None for name, one in unsupported.items()})
    logger.info("Checking logits, execution_mode=%s.", execution_mode)
    if inputs is None:
        inputs = prepare_inputs_from_prompt(neuron_model, tokenizer, prompt, input_start_offsets)
        ids_RC, mask_RC = inputs.input_ids.long(), inputs.attention_mask.long()
    else:
        ids_RC, mask_RC = (one.long() for one in shift_inputs_by_offset(inputs, input_start_offsets, pad_token_id))
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
    input_start_offsets: Any = None,
    additional_input_args: Mapping[str, Any] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
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
        input_start_offsets: not needed: the mask says where prompts begin.
        additional_input_args: `input_ids` and `attention_mask`, in place of those above.
        tokenizer: logs the expected answers as text.

    Returns:
        The comparison of each step.

    Raises:
        LogitMatchingError: a difference is larger; the details have all steps.
    """
    others = dict(additional_input_args or {})
    ids_RC = others.pop("input_ids", inputs_input_ids)
    mask_RC = others.pop("attention_mask", inputs_attention_mask)
    refuse_images(**others)
    expected_TRV = expected_logits[:num_tokens_to_check].float()
    log_answers(tokenizer, expected_TRV)
    actual_TRV = _forced(neuron_model, expected_TRV.argmax(-1), ids_RC, mask_RC)
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
            results=[
                [{"passed": row not in step.failed_rows} for step in steps] for row in range(len(inputs_input_ids))
            ],
        )
    return steps


def _forced(
    neuron_model: NeuronBaseForCausalLM, tokens_TR: torch.Tensor, ids_RC: torch.Tensor, mask_RC: torch.Tensor
) -> torch.Tensor:
    """The model's logits [T, R, V] if each step gets the expected token before it."""
    model, num_rows = neuron_model.compiled, len(ids_RC)
    rows, config = list(range(num_rows)), neuron_model.neuron_config
    slots = ReferenceSlots(model, num_rows, config.max_length) if config.on_cpu else SequenceSlots(model, num_rows)
    logits = [slots.begin(rows, ids_RC, mask_RC)[:, -1]]
    for tokens_R in tokens_TR[:-1]:
        logits.append(slots.extend(rows, tokens_R[:, None], slots.lengths_S)[:, -1])
    return torch.stack(logits).float()


def _compared(index: int, expected_RV: torch.Tensor, actual_RV: torch.Tensor, tol: Tolerances, most: float) -> Step:
    """Compare the logits of a step."""
    errors, passed_R = {}, torch.ones(len(expected_RV), dtype=torch.bool)
    for number, (absolute, relative) in tol.items():
        count = expected_RV.shape[-1] if number is None else min(int(number), expected_RV.shape[-1])
        values, tokens = expected_RV.topk(count)
        difference, scale = (actual_RV.gather(-1, tokens) - values).abs(), values.abs().amax(-1, keepdim=True)
        errors[number] = float((difference / scale.clamp(min=1e-30)).max())
        passed_R &= (difference <= absolute + relative * scale).all(-1)
    best, chosen = expected_RV.argmax(-1), actual_RV.argmax(-1)
    gap = expected_RV.gather(-1, best[:, None]) - expected_RV.gather(-1, chosen[:, None])
    passed_R &= gap[:, 0] <= most
    return Step(
        index=index,
        errors=errors,
        num_divergent=int((best != chosen).sum()),
        divergence=float(gap.max()),
        failed_rows=tuple((~passed_R).nonzero().flatten().tolist()),
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


def check_accuracy_embeddings(
    actual_output: torch.Tensor,
    expected_output: torch.Tensor,
    plot_outputs: bool = False,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> tuple[bool, float]:
    """Return whether tensors are close, and the largest error, relative to the largest expected value.

    Args:
        actual_output: what a model returned.
        expected_output: what it should return, of the same dtype.
        plot_outputs: has no effect here: nothing is drawn.
        rtol: relative tolerance, of the largest expected value; 0: 0.05 for bfloat16, else 0.01.
        atol: absolute tolerance; 0: 1e-5.
    """
    if actual_output.dtype != expected_output.dtype:
        dtypes = {"actual": str(actual_output.dtype), "expected": str(expected_output.dtype)}
        message = f"The dtypes {dtypes['actual']} and {dtypes['expected']} differ."
        raise AssertedConfigError(message, hint="Convert one of the tensors.", **dtypes)
    rtol = rtol or (0.05 if expected_output.dtype == torch.bfloat16 else 0.01)
    if plot_outputs:
        logger.info("plot_outputs: nothing is drawn.")
    actual, expected = actual_output.double(), expected_output.double()
    difference, scale = (actual - expected).abs().max(), expected.abs().max()
    return bool(difference <= (atol or 1e-5) + rtol * scale), float(difference / scale.clamp(min=1e-30))
