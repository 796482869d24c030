"""Compare a compiled encoder-decoder with the original in float32: hidden states, first token, later tokens.

The original reads each row alone and without padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..encoders.entry import unflatten, with_attentions
from ..validate import SEED, OutputError, compare, default_tolerance, require_agreement
from .configuration import ResolvedEncoderDecoderConfig
from .entry import layer_options
from .sources import Source

if TYPE_CHECKING:
    from ...runtime.loaded import LoadedProgram

NUM_STEPS = 4
"""Tokens of a target that are compared."""


def validate_seq2seq(
    loaded: LoadedProgram,
    reference: Any,
    source: Source,
    config: ResolvedEncoderDecoderConfig,
    *,
    atol: float | None = None,
) -> list[OutputError]:
    """Run random sources, the last one a quarter shorter where that can be, and random targets through both.

    Args:
        loaded: the compiled program with the original's weights.
        reference: the transformers model in float32.
        source: what the encoder reads.
        config: complete configuration.
        atol: absolute tolerance; None derives it from the arithmetic.

    Raises:
        ValidationError: a result is past its tolerance; its statistics are in the message.
    """
    errors, results = [], ["logits", *config.target_results]
    if config.returns_attentions:
        reference = with_attentions(reference)
    for bucket in config.source_buckets:
        generator = torch.Generator().manual_seed(SEED)
        rows, num_steps = config.batch_size, min(NUM_STEPS, config.num_target_slots)
        content = _random(source, reference.config, rows, bucket, generator)
        lengths, shorter = [bucket] * rows, bucket - bucket // 4
        if source.is_masked and source.num_states(shorter):
            lengths[-1] = shorter
        num_targets = config.num_target_rows
        targets = torch.randint(reference.config.vocab_size, (num_targets, num_steps), generator=generator)
        theirs = _original(reference, source, config, content, lengths, targets)
        ours = _compiled(loaded, source, config, content, lengths, targets)
        names = [f"encode_{bucket}.{result}" for result in ("last_hidden_state", *config.source_results)]
        names += [f"prefill_{bucket}.{result}" for result in results]
        for step in range(1, num_steps):
            names += [f"decode.{result}[{step}] after prefill_{bucket}" for result in results]
        for name, found, wanted in zip(names, ours, theirs, strict=True):
            tolerance = default_tolerance(config, wanted.abs().max().item()) if atol is None else atol
            errors.append(compare(name, found, wanted, tolerance=tolerance))
    return require_agreement(errors, lambda failed: f"the first is {failed[0].output}")


def _random(source: Source, config: Any, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
    shape = source.inputs(rows, length)[source.name].shape
    if source.dtype == "int64":
        return torch.randint(config.vocab_size, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _original(
    reference: Any,
    source: Source,
    config: ResolvedEncoderDecoderConfig,
    content: torch.Tensor,
    lengths: list[int],
    targets: torch.Tensor,
) -> list[torch.Tensor]:
    """Results of the encoder, those of all rows in a line, then those of each token, as `_compiled` returns them."""
    options = layer_options(config.target_results)
    outputs = []
    for place in range(len(targets)):
        row = place // config.num_beams
        alone, target = content[row : row + 1, ..., : lengths[row]], targets[place : place + 1]
        # With masks: an architecture may take its padding token for padding.
        masks = {"attention_mask": torch.ones_like(alone, dtype=torch.int64)} if source.is_masked else {}
        inputs = {source.name: alone, **masks, "decoder_attention_mask": torch.ones_like(target)}
        with torch.no_grad():
            outputs.append(reference(**inputs, decoder_input_ids=target, **options))
    sources = outputs[:: config.num_beams]
    encoded = [torch.cat([output.encoder_last_hidden_state[0] for output in sources])]
    for name in config.source_results:
        encoded.append(torch.cat([torch.stack(output[f"encoder_{name}"], 1).flatten() for output in sources]))
    tokens = [torch.cat([output.logits for output in outputs]).unbind(1)]
    width = source.num_states(content.shape[-1])
    for name in config.target_results:
        rows = [torch.stack(output[name], 1) for output in outputs]
        if name == "cross_attentions":  # a shorter source has no weights at its padding
            rows = [torch.nn.functional.pad(layers, (0, width - layers.shape[-1])) for layers in rows]
        tokens.append(torch.cat(rows).unbind(-2))
    return [*encoded, *(result for step in zip(*tokens, strict=True) for result in step)]


def _compiled(
    loaded: LoadedProgram,
    source: Source,
    config: ResolvedEncoderDecoderConfig,
    content: torch.Tensor,
    lengths: list[int],
    targets: torch.Tensor,
) -> list[torch.Tensor]:
    """The same from a padded batch, token by token: logits [R, V], then results of each layer [R, L, ..., width]."""
    widths = {"cross_attentions": source.num_states(content.shape[-1]), "decoder_attentions": targets.shape[1]}

    def run(graph: str, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        found = unflatten(loaded.run(graph, inputs, state))
        layers = [torch.stack(found[name], 1)[..., 0, : widths.get(name)] for name in config.target_results]
        return [found["logits"][:, 0], *layers]

    bucket, longest = content.shape[-1], config.source_buckets[-1]
    mask = torch.stack([torch.arange(bucket) < length for length in lengths]).long()
    counts = [source.num_states(length) for length in lengths]
    state = loaded.take_state()
    inputs = [content * mask.to(content.dtype), mask] if source.is_masked else [content]
    encoded = unflatten(loaded.run(f"encode_{bucket}", inputs, state))
    hidden = encoded["last_hidden_state"]
    of_beams = [count for count in counts for _ in range(config.num_beams)]
    repeated = hidden.repeat_interleave(config.num_beams, 0)
    found = run(f"prefill_{bucket}", [targets[:, :1].contiguous(), *_state_masks(source, of_beams, bucket), repeated])
    shape = loaded.program.graphs["decode"].inputs["position"].shape
    for step in range(1, targets.shape[1]):
        token, position = targets[:, step : step + 1].contiguous(), torch.full(shape, step)
        inputs = [token, *_state_masks(source, of_beams, longest), position]
        found += run("decode", inputs)
    loaded.give_back(state)
    first = [torch.cat([hidden[row, :count] for row, count in enumerate(counts)])]
    for name in config.source_results:
        layers = torch.stack(encoded[name], 1)
        real = [
            layers[row, ..., :count, :count] if name == "attentions" else layers[row, :, :count]
            for row, count in enumerate(counts)
        ]
        first.append(torch.cat([part.flatten() for part in real]))
    return [*first, *found]


def _state_masks(source: Source, counts: list[int], length: int) -> list[torch.Tensor]:
    """The mask over the states of each row, where the source has one."""
    places = torch.arange(source.num_states(length))
    return [torch.stack([places < count for count in counts]).long()] if source.is_masked else []
