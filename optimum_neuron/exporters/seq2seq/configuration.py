"""`NeuronSeq2SeqConfig`: shapes of a model that reads a source and writes a target.

It knows nothing of architectures: `plan.py` asks the model for its limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ...configuration import CompileConfig, count_refusal, is_count, is_rising
from ...errors import ConfigError, refusal

DEFAULT_LENGTH = 128
"""Tokens of source and target where nothing else is asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronSeq2SeqConfig(CompileConfig):
    """Static shapes, arithmetic and target of one compiled encoder and decoder.

    Example:
        ```python
        from optimum_neuron import NeuronSeq2SeqConfig

        config = NeuronSeq2SeqConfig(sequence_length=[64, 128]).resolve(num_positions=512)
        assert config.source_buckets == (64, 128)
        assert config.decoder_sequence_length == 128
        ```
    """

    task: str = "text2text-generation"
    """Task, as transformers' pipelines name it."""
    batch_size: int = 1
    """Rows of every graph, a beam is a row; fewer are padded, more are split."""
    sequence_length: int | tuple[int, ...] | None = None
    """Tokens of a source, one length or several buckets; shorter sources are padded. None: 128."""
    decoder_sequence_length: int | None = None
    """Tokens of a target, with the one that it starts with. None: 128."""

    def _problems(self) -> Iterator[str]:
        for name in ("batch_size", "decoder_sequence_length"):
            value = getattr(self, name)
            if not is_count(value) and not (name == "decoder_sequence_length" and value is None):
                yield count_refusal(name, value)
        length = self.sequence_length
        if isinstance(length, (list, tuple)) and not is_rising(length):
            yield refusal(
                asked=f"sequence_length={length}",
                found="not a rising list of lengths",
                why="a source goes to the smallest bucket that holds it",
                do="pass for example [64, 128]",
            )
        elif length is not None and not isinstance(length, (list, tuple)) and not is_count(length):
            yield count_refusal("sequence_length", length)
        yield from super()._problems()

    @property
    def source_buckets(self) -> tuple[int, ...]:
        """Source lengths that are compiled."""
        assert self.sequence_length is not None, "resolved configuration"
        return self.sequence_length if isinstance(self.sequence_length, tuple) else (self.sequence_length,)

    @property
    def num_source_slots(self) -> int:
        """Tokens of the longest source: slots of the cross-attention cache."""
        return self.source_buckets[-1]

    @property
    def num_target_slots(self) -> int:
        """Tokens of the longest target: slots of the self-attention cache."""
        assert self.decoder_sequence_length is not None, "resolved configuration"
        return self.decoder_sequence_length

    def resolve(self, *, num_positions: int | None) -> NeuronSeq2SeqConfig:
        """Return a copy with both lengths filled in.

        Args:
            num_positions: what the model's tables of positions allow; None: positions are relative.

        Raises:
            ConfigError: a length is beyond that; both are named.
        """
        default = min(DEFAULT_LENGTH, num_positions or DEFAULT_LENGTH)
        filled = dataclasses.replace(
            self,
            sequence_length=self.sequence_length or default,
            decoder_sequence_length=self.decoder_sequence_length or default,
        )
        lengths = {
            "sequence_length": filled.num_source_slots,
            "decoder_sequence_length": filled.num_target_slots,
        }
        problems = [
            refusal(
                asked=f"{name}={length}",
                found=f"the model has {num_positions} positions",
                why="positions beyond that were never trained",
                do=f"pass {name}={num_positions} or less",
            )
            for name, length in lengths.items()
            if num_positions is not None and length > num_positions
        ]
        if problems:
            raise ConfigError("\n".join(problems))
        return filled
