"""The protocol of compiled encoder-decoders: encode sources, then one target token after the other.

The first token of a target fills the cross-attention cache from the hidden states of its source; later ones read it.

    program = EncoderDecoder(loaded, signature)
    encoded = program.encode({"input_ids": ids, "attention_mask": mask})
    results = program(ids, positions, encoded["last_hidden_state"], mask, sequences, num_past=0)

Shape legend: R sequences, S hidden states of a source, T new target tokens, D hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime import Copies
from .forward import Forward
from .packing import choose_bucket
from .steps import CompiledRows, Steps

if TYPE_CHECKING:
    import torch

    from ..runtime import LoadedProgram
    from .sequences import Group, Sequences
    from .signature import Signature


class EncoderDecoder:
    """The entry points of a compiled encoder-decoder."""

    def __init__(self, loaded: LoadedProgram, signature: Signature) -> None:
        graphs = loaded.program.graphs
        self.encode = Forward(Copies([loaded]), "encode", signature["encode"])
        """Sources to "last_hidden_state" and the results of each layer that the program returns."""
        self.num_slots = signature.state_size(loaded.program, "num_slots")
        """Tokens that a target can hold."""
        self._outputs = signature["decode"].outputs
        first = loaded.program.by_size("prefill").values()
        self._prefill = {graphs[name].inputs["encoder_hidden_states"].shape[1]: name for name in first}
        """First-token graphs by the number of hidden states that they read."""
        (self._decode,) = loaded.program.by_size("decode").values()
        inputs = graphs[self._decode].inputs
        self._is_masked = "attention_mask" in inputs
        self.has_row_positions = len(inputs["position"].shape) == 2
        """Whether targets may begin at different columns; else all are at the same position."""

    def __call__(
        self,
        ids_RT: torch.Tensor,
        positions_RT: torch.Tensor,
        hidden_RSD: torch.Tensor,
        mask_RS: torch.Tensor | None,
        sequences: Sequences,
        *,
        num_past: int,
    ) -> dict[str, torch.Tensor]:
        """Add tokens to targets; return "logits" [R, T, V] and results of each layer.

        Args:
            mask_RS: 1 for real hidden states, for a program that takes a mask.
            num_past: columns of the targets that are in the cache.
        """

        mask_RS = mask_RS if self._is_masked else None

        def run(group: Group) -> dict[str, torch.Tensor]:
            mask = None if mask_RS is None else group.take(mask_RS)
            return self._run(
                group, group.take(ids_RT), group.take(positions_RT), group.take(hidden_RSD), mask, num_past=num_past
            )

        return sequences.run(run)

    def _run(
        self,
        group: Group,
        ids_RT: torch.Tensor,
        positions_RT: torch.Tensor,
        hidden_RSD: torch.Tensor,
        mask_RS: torch.Tensor | None,
        *,
        num_past: int,
    ) -> dict[str, torch.Tensor]:
        import torch

        steps = []
        for column in range(ids_RT.shape[1]):
            token_R1, position_R1 = ids_RT[:, column : column + 1], positions_RT[:, column : column + 1]
            if num_past + column == 0:
                steps.append(self.first(group, token_R1, hidden_RSD, mask_RS))
            else:
                steps.append(self.next(group, token_R1, position_R1, mask_RS))
        sizes = {"num_states": hidden_RSD.shape[1], "num_tokens": num_past + ids_RT.shape[1]}
        results = {}
        for name in steps[0]:
            parts = [step[name] for step in steps]
            for axis in [axis for axis in self._outputs[name] if axis.axis in sizes]:
                parts = [part.narrow(axis.dim, 0, axis.size(sizes[axis.axis])) for part in parts]
            results[name] = torch.cat(parts, -2)
        return results

    def first(
        self, group: Group, token_R1: torch.Tensor, hidden_RSD: torch.Tensor, mask_RS: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """Read the sources and the first token of each target."""
        import torch

        num_states = hidden_RSD.shape[1]
        bucket = choose_bucket(
            num_states,
            tuple(sorted(self._prefill)),
            subject="encoder_outputs",
            measure=f"{num_states} hidden states",
            hint="Export with a larger source length.",
        ).value
        hidden = torch.nn.functional.pad(hidden_RSD.float(), (0, 0, 0, bucket - num_states))
        return group.run(self._prefill[bucket], [token_R1, *_padded(mask_RS, bucket), hidden])

    def next(
        self, group: Group, token_R1: torch.Tensor, position_R1: torch.Tensor, mask_RS: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """Add one token to each target."""
        *tensors, position = [token_R1, *self._step_inputs(position_R1, mask_RS)]
        if self.has_row_positions:
            return group.run(self._decode, [*tensors, position])
        return group.run(self._decode, tensors, position)

    def steps(self, sequences: Sequences, lengths_R: torch.Tensor, mask_RS: torch.Tensor | None) -> Steps:
        """Return decode steps of targets, of which so many tokens are in the cache."""

        mask_RS = mask_RS if self._is_masked else None

        def prepare(rows: CompiledRows, positions_G1: torch.Tensor) -> list[torch.Tensor]:
            mask = None if mask_RS is None else mask_RS[rows.sources]
            return self._step_inputs(positions_G1, mask)

        return Steps({self.num_slots: self._decode}, sequences, lengths_R, prepare)

    def _step_inputs(self, position_R1: torch.Tensor, mask_RS: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the inputs of the decode graph behind its tokens."""
        return [*_padded(mask_RS, max(self._prefill)), position_R1 if self.has_row_positions else position_R1[0]]


def _padded(mask_RS: torch.Tensor | None, num_states: int) -> list[torch.Tensor]:
    import torch

    return [] if mask_RS is None else [torch.nn.functional.pad(mask_RS, (0, num_states - mask_RS.shape[1]))]
