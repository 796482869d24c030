"""`optimum.neuron.generation.logits_process`: temperature, top-k, and top-p in one pass over the logits."""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
from transformers import GenerationConfig

from optimum_neuron.errors import ConfigError


@dataclasses.dataclass
class FusedLogitsWarper:
    """Applies a temperature, and keeps only the likeliest tokens.

    Calls return the logits that are left with their token IDs, so that whoever samples sorts nothing again:
    descending with `top_k` only, ascending with `top_p`. Without a filter, the IDs are None.
    """

    temperature: float = 1.0
    """Divides the logits."""
    top_k: int = 0
    """Number of tokens to keep; 0 keeps all."""
    top_p: float = 1.0
    """Sum of probabilities that the kept tokens reach; 1 keeps all."""

    @classmethod
    def from_config(cls, generation_config: GenerationConfig) -> Self:
        """Return the warper of a generation configuration; what it leaves open has no effect.

        Raises:
            ConfigError: the configuration samples from all tokens, which is slow.
        """
        settings = generation_config
        temperature = 1.0 if settings.temperature is None else settings.temperature
        top_k, top_p = settings.top_k or 0, 1.0 if settings.top_p is None else settings.top_p
        if settings.do_sample and top_k == 0 and top_p == 1.0:
            message = "Sampling needs top_k or top_p, and the generation configuration has neither."
            raise ConfigError(message, hint="Set top_k, for example to 50.", options=["top_k", "top_p"])
        return cls(temperature, top_k, top_p)

    def __call__(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the logits that are kept, and the token of each, along the last dimension.

        A row that keeps fewer tokens than another one has -inf in front.
        """
        logits = logits if self.temperature == 1.0 else logits / self.temperature
        by_count, by_mass = 0 < self.top_k < logits.shape[-1], 0.0 < self.top_p < 1.0
        if not by_mass:
            return logits.topk(self.top_k) if by_count else (logits, None)
        if by_count:
            kept, tokens = (part.flip(-1) for part in logits.topk(self.top_k))
        else:
            kept, tokens = logits.sort(dim=-1)
        # Ascending: a token stays unless it and all less likely ones together have a mass of at most 1 - top_p.
        dropped = kept.softmax(dim=-1).cumsum(dim=-1) <= 1.0 - self.top_p
        dropped[..., -1] = False
        width = int((~dropped).sum(dim=-1).amax())
        return kept.masked_fill(dropped, float("-inf"))[..., -width:], tokens[..., -width:]
