"""Scenarios of encoder-decoders: sources of every bucket, the last one shorter, and targets token by token.

The reference reads each source alone and without padding.

Shape legend: R targets, S hidden states of a source, T target tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import torch

from ...base.transformers_types import PreTrainedModel
from ...engine import EncoderDecoder, Sequences, Signature
from ..scenario import SEED, Recorder, Results, Scenario, unflatten
from .configuration import EncoderDecoderConfig
from .entry import layer_options
from .sources import Source

NUM_STEPS = 4
"""Target tokens that are compared."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Batch:
    """Sources and targets."""

    content: torch.Tensor
    """Encoder input: tokens, samples, or frames in the last dimension."""
    lengths: list[int]
    """Real places of each source."""
    targets_RT: torch.Tensor
    """Target tokens, `num_beams` for each source."""


class EncoderDecoderScenarios:
    """Scenarios of one program against the transformers model in float32."""

    def __init__(
        self,
        recorder: Recorder,
        signature: Signature,
        reference: PreTrainedModel,
        source: Source,
        config: EncoderDecoderConfig,
    ) -> None:
        self._recorder, self._signature, self._reference = recorder, signature, reference
        self._source, self._config = source, config
        self._program = EncoderDecoder(recorder, signature)  # type: ignore[arg-type]  # it notes its calls

    def __iter__(self) -> Iterator[Scenario]:
        for bucket in self._recorder.program.by_size("encode"):
            batch = self._batch(bucket)
            run, reference = functools.partial(self._run, batch), functools.partial(self._expected, batch)
            yield Scenario(name=f"sources of {bucket}", run=run, reference=reference)

    def _batch(self, bucket: int) -> _Batch:
        generator, source = torch.Generator().manual_seed(SEED), self._source
        shape = source.inputs(self._config.batch_size, bucket)[source.name].shape
        vocabulary = self._reference.config.vocab_size
        if source.dtype == "int64":
            content = torch.randint(vocabulary, shape, generator=generator)
        else:
            content = torch.randn(shape, generator=generator)
        lengths, shorter = [bucket] * shape[0], bucket - bucket // 4
        if source.is_masked and source.num_states(shorter):
            lengths[-1] = shorter
        steps = min(NUM_STEPS, self._program.num_slots)
        targets = torch.randint(vocabulary, (self._config.num_target_rows, steps), generator=generator)
        return _Batch(content=content[..., : max(lengths)], lengths=lengths, targets_RT=targets)

    def _run(self, batch: _Batch) -> Results:
        source, num_beams = self._source, self._config.num_beams
        inputs, counts = {source.name: batch.content}, [source.num_states(length) for length in batch.lengths]
        mask_RS = None
        if source.is_masked:
            mask = torch.stack([torch.arange(batch.content.shape[-1]) < length for length in batch.lengths]).long()
            inputs = {source.name: batch.content * mask.to(batch.content.dtype), "attention_mask": mask}
            states = torch.stack([torch.arange(max(counts)) < count for count in counts]).long()
            mask_RS = states.repeat_interleave(num_beams, 0)
        encoded = unflatten(self._program.encode(inputs))
        hidden = encoded["last_hidden_state"]
        results = {"hidden states": torch.cat([hidden[row, :count] for row, count in enumerate(counts)])}
        for name in self._config.source_results:
            layers = torch.stack(encoded[name], 1)
            parts = [
                layers[row, ..., :count, :count] if name == "attentions" else layers[row, :, :count]
                for row, count in enumerate(counts)
            ]
            results[f"encoder {name}"] = torch.cat([part.flatten() for part in parts])
        sequences = Sequences(self._recorder, self._signature)  # type: ignore[arg-type]
        sequences.resize(len(batch.targets_RT))
        hidden_RSD = hidden.repeat_interleave(num_beams, 0)
        for step in range(batch.targets_RT.shape[1]):
            ids = batch.targets_RT[:, step : step + 1]
            positions = torch.full_like(ids, step)
            outputs = unflatten(self._program(ids, positions, hidden_RSD, mask_RS, sequences, num_past=step))
            results[f"token {step}"] = outputs["logits"][:, 0]
            for name in self._config.target_results:
                results[f"token {step} {name}"] = torch.stack(outputs[name], 1)[..., 0, :]
        return results

    def _expected(self, batch: _Batch) -> Results:
        source, num_beams, config = self._source, self._config.num_beams, self._config
        outputs = []
        for place in range(len(batch.targets_RT)):
            row = place // num_beams
            alone = batch.content[row : row + 1, ..., : batch.lengths[row]]
            target = batch.targets_RT[place : place + 1]
            # With masks: an architecture may take its padding token for padding.
            masks = {"attention_mask": torch.ones_like(alone, dtype=torch.int64)} if source.is_masked else {}
            inputs = {source.name: alone, **masks, "decoder_attention_mask": torch.ones_like(target)}
            with torch.no_grad():
                options = layer_options(config.target_results)
                outputs.append(self._reference(**inputs, decoder_input_ids=target, **options))
        sources = outputs[::num_beams]
        results = {"hidden states": torch.cat([output.encoder_last_hidden_state[0] for output in sources])}
        for name in config.source_results:
            parts = [torch.stack(output[f"encoder_{name}"], 1).flatten() for output in sources]
            results[f"encoder {name}"] = torch.cat(parts)
        width = source.num_states(batch.content.shape[-1])
        for step in range(batch.targets_RT.shape[1]):
            results[f"token {step}"] = torch.cat([output.logits[:, step] for output in outputs])
            for name in config.target_results:
                rows = [torch.stack(output[name], 1)[..., step, :] for output in outputs]
                if name == "cross_attentions":  # a shorter source has no weights at its padding
                    rows = [torch.nn.functional.pad(layers, (0, width - layers.shape[-1])) for layers in rows]
                if name == "decoder_attentions":  # the engine returns no weights of later tokens
                    rows = [layers[..., : step + 1] for layers in rows]
                results[f"token {step} {name}"] = torch.cat(rows)
        return results
