"""The models users hold: transformers' interfaces over compiled programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .causal_lm import NeuronModelForCausalLM

__all__ = ["NeuronModelForCausalLM"]


def __getattr__(name: str) -> Any:
    if name == "NeuronModelForCausalLM":
        from .causal_lm import NeuronModelForCausalLM

        return NeuronModelForCausalLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
