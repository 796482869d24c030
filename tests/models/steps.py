"""Run a decoder as the runtime does (prompt, one more token, several more) and compare with transformers in float32.

The two rows have prompts of different lengths; the shorter one is padded on the right.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import torch
from torch.func import functional_call

from optimum_neuron.kinds.decoder import state_specs
from optimum_neuron.models import Family, build_decoder, persistent_buffers
from optimum_neuron.models.generic import GenericDecoder
from optimum_neuron.models.generic.cache import state_cache
from optimum_neuron.options.configuration import NeuronConfig
from tests.tiny import VOCABULARY, tiny_config

LENGTHS, NUM_COLUMNS, NUM_TOKENS = (9, 6), 10, 16
"""Prompt length of each row, width of the padded prompt, tokens in all."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A decoder and the transformers model with the same weights."""

    family: Family
    original: Any

    @functools.cached_property
    def weights(self) -> dict[str, torch.Tensor]:
        """The decoder's parameters, joined from the original's tensors as the weight map says."""
        tensors = self.original.state_dict()
        sources = self.family.weight_sources
        return {name: torch.cat([tensors[s] for s in names]) for name, names in sources.items()}

    def new_states(self, extend_length: int = 8) -> list[torch.Tensor]:
        shapes: dict[str, Any] = {"sequence_length": NUM_TOKENS, "prefill_buckets": (NUM_COLUMNS,)}
        config = NeuronConfig(batch_size=2, extend_length=extend_length, **shapes)
        return [torch.ones(spec.shape) for spec in state_specs(self.family, config).values()]

    def run(self, ids_BT: torch.Tensor, positions_BT: torch.Tensor, states: list[torch.Tensor], **options: Any) -> Any:
        with torch.no_grad():
            return functional_call(self.family.module, self.weights, (ids_BT, positions_BT, states), options)

    def counts(self, *num_tokens: int) -> dict[str, torch.Tensor]:
        """The option that says how many tokens of each row are real, where a state has no slots."""
        return {"num_new_B": torch.tensor(num_tokens)} if self.family.counts_tokens else {}


def pair(model_type: str, *, family: str | None = None, **overrides: Any) -> Pair:
    """Build both from one configuration, with random weights."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = tiny_config(model_type, **overrides)
    original = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        # A buffer of more dimensions is computed, such as the decays of MiniMax.
        buffers = [buffer for _, buffer in persistent_buffers(original) if buffer.ndim == 1]
        for parameter in (*original.parameters(), *buffers):
            # Norms and biases differ from 1 and 0, so that leaving one out is noticed.
            parameter.normal_(0, 0.15) if parameter.ndim > 1 else parameter.add_(0.2 * torch.randn_like(parameter))
    return Pair(build_decoder(config, dtype="float32", family=family), original)


def masks_of(decoder: GenericDecoder, positions: list[list[int]], num_keys: int) -> Any:
    """Masks of a generic decoder whose layers have a slot for every token."""
    positions_BT = torch.tensor(positions)
    return decoder.masks(positions_BT, num_keys, state_cache((), (), positions_BT, num_slots=num_keys))


def check_steps(models: Pair, *, atol: float = 2e-5) -> None:
    """A prompt, one token, three tokens: the logits are those of transformers for the whole sequence."""
    ids = torch.randint(3, VOCABULARY, (2, NUM_TOKENS), generator=torch.Generator().manual_seed(1))
    # As `generate` passes them: RoBERTa's own forward would count from another number.
    takes_positions = "position_ids" in inspect.signature(models.original.forward).parameters
    options = {"position_ids": torch.arange(NUM_TOKENS).expand(2, -1)} if takes_positions else {}
    with torch.no_grad():
        wanted = models.original(ids, **options).logits
    assert wanted.std() > 0.05, "logits that hardly differ prove nothing"
    states, lengths = models.new_states(), torch.tensor(LENGTHS)
    columns = torch.arange(NUM_COLUMNS).expand(2, -1)
    prompt = torch.where(columns < lengths[:, None], ids[:, :NUM_COLUMNS], 0)

    last = models.run(prompt, columns, states, num_slots=None, last_index_B=lengths - 1, **models.counts(*LENGTHS))
    assert last.shape == (2, 1, wanted.shape[-1])
    every = models.run(prompt, columns, models.new_states(), num_slots=None, **models.counts(*LENGTHS))
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(every[row, :length], wanted[row, :length], atol=atol, rtol=1e-4)
        torch.testing.assert_close(last[row, 0], wanted[row, length - 1], atol=atol, rtol=1e-4)

    done = lengths
    for num_new in (1, 3, 1):
        positions = done[:, None] + torch.arange(num_new)
        num_slots = int(positions.max()) + 1 if num_new == 1 else NUM_TOKENS
        counts = models.counts(num_new, num_new)
        logits = models.run(ids.gather(1, positions), positions, states, num_slots=num_slots, **counts)
        for row in range(2):
            torch.testing.assert_close(logits[row], wanted[row, positions[row]], atol=atol, rtol=1e-4)
        done = done + num_new
