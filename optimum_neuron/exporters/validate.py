"""Compare a compiled model with the original in float32 on the CPU: statistics, tolerances, and decoders.

The same token ids go through both. Differences are reported as maximum and mean error, signal-to-noise ratio
and agreement of the most likely token; past the tolerance the first diverging module is named.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..configuration import CompileConfig, NeuronConfig
from ..errors import ValidationError, refusal

if TYPE_CHECKING:
    import torch

    from ..runtime.loaded import LoadedProgram

UNIT_ROUNDOFF = {
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "bf16": 2.0**-8,
    "bfloat16": 2.0**-8,
    "fp16": 2.0**-11,
    "float16": 2.0**-11,
    "fp8_e4m3": 2.0**-4,
}
"""Largest relative rounding error of each arithmetic (Higham 2002, table 2.1; FP8: Micikevicius 2022, table 1)."""

TOLERANCE_ROUNDOFFS = 8
"""Tolerance in roundoffs of the largest logit: 3 were measured after 30 layers of SmolLM2."""

FLOAT32_TOLERANCE = 1e-3
"""Absolute tolerance where nothing is rounded below float32, as in Optimum's exporters."""

NUM_PROMPT_TOKENS, NUM_DECODE_STEPS, SEED = 24, 4, 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputError:
    """How one output differs from the original."""

    output: str
    """Entry point and result."""
    max_abs_error: float
    """Largest absolute difference."""
    mean_abs_error: float
    """Mean absolute difference."""
    sqnr_db: float
    """Power of the original over power of the difference, in decibels."""
    top1_agreement: float
    """Share of positions whose most likely token is the same."""
    tolerance: float
    """Largest absolute difference that passes."""

    @property
    def ok(self) -> bool:
        """Whether the output passes; a NaN does not."""
        return self.max_abs_error <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self) | {"ok": self.ok}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> OutputError:
        """Rebuild from plain data, in which infinities may be text.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        numbers = [field.name for field in dataclasses.fields(cls) if field.name != "output"]
        return cls(output=str(data["output"]), **{name: float(data[name]) for name in numbers})


def compare(output: str, found: torch.Tensor, original: torch.Tensor, *, tolerance: float) -> OutputError:
    """Statistics of the difference between two tensors of logits [..., V]."""
    import torch

    difference = (found.double() - original.double()).abs()
    noise, signal = difference.pow(2).sum().item(), original.double().pow(2).sum().item()
    agreement = (found.argmax(-1) == original.argmax(-1)).to(torch.float64).mean().item()
    if noise in (0, math.inf):
        sqnr_db = math.inf if noise == 0 else -math.inf
    else:
        sqnr_db = 10 * math.log10(max(signal, 1e-300) / noise)
    return OutputError(
        output=output,
        max_abs_error=difference.max().item(),
        mean_abs_error=difference.mean().item(),
        sqnr_db=sqnr_db,
        top1_agreement=agreement,
        tolerance=tolerance,
    )


def default_tolerance(config: CompileConfig, largest_logit: float) -> float:
    """Absolute tolerance for logits of a given size under the configuration's arithmetic."""
    narrow = config.auto_cast_type if config.auto_cast != "none" else config.torch_dtype
    if narrow == "float32":
        return FLOAT32_TOLERANCE
    return TOLERANCE_ROUNDOFFS * UNIT_ROUNDOFF[narrow] * largest_logit


def require_agreement(errors: list[OutputError], where: Callable[[list[OutputError]], str]) -> list[OutputError]:
    """Return the comparison of all outputs if every one is within its tolerance.

    Args:
        errors: one for each output.
        where: says of the failed ones where the difference begins; asked only if there are any.

    Raises:
        ValidationError: an output is past its tolerance; statistics and the place are in it.
    """
    failed = [error for error in errors if not error.ok]
    if not failed:
        return errors
    rows = [
        f"  {e.output}: max {e.max_abs_error:.3g}, mean {e.mean_abs_error:.3g}, SQNR {e.sqnr_db:.1f} dB, "
        f"top-1 {e.top1_agreement:.1%}, tolerance {e.tolerance:.3g}"
        for e in failed
    ]
    raise ValidationError(
        refusal(
            asked="comparing the compiled model with the original in float32",
            found=f"{len(failed)} outputs are past the tolerance; {where(failed)}",
            why="a model that answers differently must not be exported unnoticed",
            do="pass a larger --atol if this precision is enough, or --disable-validation to skip the comparison",
        )
        + "\n"
        + "\n".join(rows),
        details={"validation": [error.to_dict() for error in errors]},
    )


PromptInputs = Callable[[int], "list[torch.Tensor]"]
"""What graphs of prompts of so many tokens take beside token ids and positions."""


def validate_decoder(
    loaded: LoadedProgram,
    reference: Any,
    config: NeuronConfig,
    *,
    atol: float | None = None,
    prompt_inputs: PromptInputs = lambda bucket: [],
) -> list[OutputError]:
    """Run prompts and decode steps through the compiled program and the original.

    Args:
        loaded: the compiled program with the original's weights.
        reference: the transformers model in float32.
        config: complete configuration.
        atol: absolute tolerance; None derives it from the arithmetic.
        prompt_inputs: tensors for what graphs of prompts take beside tokens.

    Raises:
        ValidationError: an output is past its tolerance; statistics and the first diverging module are in it.
    """
    import torch

    assert config.sequence_length is not None and config.prefill_buckets is not None, "resolved configuration"
    num_prompt = min(NUM_PROMPT_TOKENS, config.prefill_buckets[0], max(1, config.sequence_length - NUM_DECODE_STEPS))
    num_steps = min(NUM_DECODE_STEPS, config.sequence_length - num_prompt)
    generator = torch.Generator().manual_seed(SEED)
    vocabulary = reference.config.get_text_config(decoder=True).vocab_size
    ids_BT = torch.randint(vocabulary, (config.batch_size, num_prompt + num_steps), generator=generator)
    with torch.no_grad():
        original = reference(ids_BT).logits.float()
    tolerance = default_tolerance(config, original.abs().max().item()) if atol is None else atol
    errors = [
        compare(name, logits, original[:, span], tolerance=tolerance)
        for name, span, logits in _run_all(loaded, config, ids_BT, num_prompt, prompt_inputs)
    ]
    return require_agreement(
        errors, lambda failed: _first_diverging(loaded, reference, config, ids_BT[:, :num_prompt], prompt_inputs)
    )


def _run_all(  # type: ignore[no-untyped-def]
    loaded: LoadedProgram, config: NeuronConfig, ids_BT: torch.Tensor, num_prompt: int, prompt_inputs: PromptInputs
):
    """Yield (output, columns, logits) of every kind of entry point."""
    import torch

    assert config.prefill_buckets is not None and config.decode_buckets is not None
    state, batch = loaded.take_state(), ids_BT.shape[0]
    for bucket in config.prefill_buckets:
        padded = torch.nn.functional.pad(ids_BT[:, :num_prompt], (0, bucket - num_prompt))
        inputs = [padded, torch.arange(bucket).expand(batch, -1).contiguous(), *prompt_inputs(bucket)]
        scored = loaded.run(f"score_{bucket}", inputs, state)["logits"]
        yield f"score_{bucket}.logits", slice(0, num_prompt), scored[:, :num_prompt]
        last = torch.full((batch,), num_prompt - 1)
        filled = loaded.run(f"prefill_{bucket}", [*inputs, last], state)["logits"]
        yield f"prefill_{bucket}.logits", slice(num_prompt - 1, num_prompt), filled
    for column in range(num_prompt, ids_BT.shape[1]):
        inputs = [ids_BT[:, column : column + 1].contiguous(), torch.full((batch, 1), column)]
        for bucket in config.decode_buckets:
            if column < bucket:
                # Every bucket writes the same key and value into the same slot.
                stepped = loaded.run(f"decode_{bucket}", inputs, state)["logits"]
                yield f"decode_{bucket}.logits[{column - num_prompt}]", slice(column, column + 1), stepped
    length = config.extend_length
    if 1 < length <= ids_BT.shape[1]:
        start = ids_BT.shape[1] - length
        inputs = [ids_BT[:, start:].contiguous(), torch.arange(start, start + length).expand(batch, -1).contiguous()]
        yield f"extend_{length}.logits", slice(start, None), loaded.run(f"extend_{length}", inputs, state)["logits"]
    loaded.give_back(state)


def _first_diverging(
    loaded: LoadedProgram, reference: Any, config: NeuronConfig, ids_BT: torch.Tensor, prompt_inputs: PromptInputs
) -> str:
    """Compare the residual stream before and after every layer; name the first layer that loses 20 dB or is NaN."""
    import torch

    assert config.prefill_buckets is not None
    bucket, batch = config.prefill_buckets[0], ids_BT.shape[0]
    padded = torch.nn.functional.pad(ids_BT, (0, bucket - ids_BT.shape[1]))
    inputs = [padded, torch.arange(bucket).expand(batch, -1).contiguous(), *prompt_inputs(bucket)]
    state = loaded.take_state()
    trace = loaded.executor.trace(f"score_{bucket}", inputs, state)
    loaded.give_back(state)
    with torch.no_grad():
        hidden = reference(ids_BT, output_hidden_states=True).hidden_states
    is_layer = [path.rpartition(".")[2].isdigit() for path, _ in trace]
    layers = [(path, outputs[0]) for (path, outputs), wanted in zip(trace, is_layer, strict=True) if wanted]
    before = [tensor for _, outputs in trace[: is_layer.index(True)] for tensor in outputs] if layers else []
    shape = (batch, bucket, hidden[0].shape[-1])
    # Among what is computed before the first layer, the tensor closest to the original's is the embedding.
    embeddings = [
        compare("embedding", tensor[:, : ids_BT.shape[1]].float(), hidden[0], tolerance=0.0).sqnr_db
        for tensor in before
        if tuple(tensor.shape) == shape
    ]
    if embeddings and not max(embeddings) >= 20.0:
        return f"the embedding diverges (SQNR {max(embeddings):.1f} dB)"
    previous = math.inf
    # The last hidden state is taken after the final norm, so it has no counterpart.
    for (path, found), original in zip(layers, hidden[1:-1], strict=False):
        error = compare(path, found[:, : ids_BT.shape[1]].float(), original, tolerance=0.0)
        if math.isnan(error.max_abs_error) or error.sqnr_db < min(previous - 20.0, 20.0):
            return f"the first diverging module is {path} (SQNR {error.sqnr_db:.1f} dB, before it {previous:.1f} dB)"
        previous = error.sqnr_db
    return "every layer agrees to 20 dB or drifts slowly: the last layer, the norm or the head diverges, or all add up"
