"""Any transformers causal LM behind the interface of the families' decoder.

Masks are built here from positions, one for each kind of attention that the configuration names, so that
the model's own mask code is bypassed: boolean ones for scaled dot product attention, and ones that are added for eager
attention, which runs models that have no other. The hidden state of the last token is picked before the head.

Shape legend: B batch, T new tokens, S cache slots, V vocabulary.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...base.core import Choice, Rejected
from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from ...errors import CaptureError
from ...upstream.cache_argument import CACHE, cache_keyword
from ..common import LayerState, Prompt, axis_positions, full_precision_linear, one_token, without_weights
from .adapt import at_positions, open_own_masks
from .cache import StateCache, state_cache
from .experts import register
from .replacements import replace_forwards
from .scans import from_cache


class GenericDecoder(nn.Module):
    """Token ids and positions to logits through transformers' own modules."""

    def __init__(self, model: nn.Module, attention: Choice[str]) -> None:
        super().__init__()
        self.model = model
        self.attention = attention
        config: Any = model.config
        self.text_config = config.get_text_config(decoder=True)
        self.states: tuple[LayerState, ...] = ()
        """What each layer keeps between calls, once it is known."""
        self.axes: tuple[int, ...] = ()
        """Axis of positions of each rotary frequency, where images have several; else a position is a slot."""
        self._parameters_of_forward = inspect.signature(type(model).forward).parameters

    @property
    def cache_name(self) -> str:
        """Keyword of the cache: an own name, as Mamba had one and RWKV has, or that of all others."""
        own = [name for name in ("cache_params", "state") if name in self._parameters_of_forward]
        return own[0] if own else cache_keyword(type(self.model).forward) or CACHE

    @property
    def cuts(self) -> tuple[str, ...]:
        """Modules that graphs of different lengths share."""
        head = self.model.get_output_embeddings()
        return tuple(name for name, module in self.named_modules() if module is head)

    def embed(self, input_ids_BT: torch.Tensor) -> torch.Tensor:
        """Embeddings [B, T, D] of tokens."""
        return self.model.get_input_embeddings()(input_ids_BT)

    def forward(
        self,
        input_ids_BT: torch.Tensor,
        positions_BT: torch.Tensor,
        states: list[torch.Tensor],
        *,
        num_slots: int | None,
        last_index_B: torch.Tensor | None = None,
        prompt: Prompt | None = None,
        num_new_B: torch.Tensor | None = None,
        table_BM: torch.Tensor | None = None,
        rows_B: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits [B, T, V], or [B, 1, V] at `last_index_B`; see `common.decoder.Decoder.forward`.

        States are those of `states` in this order. `num_new_B` is the number of real tokens of each row, which come
        first; it is needed where a state has no slots.
        """
        num_keys = input_ids_BT.shape[1] if num_slots is None else num_slots
        head = self.model.get_output_embeddings()
        # Before the hook that joins the logits of several cores.
        handles = [
            head.register_forward_hook(lambda module, inputs, _: full_precision_linear(inputs[0], module), prepend=True)
        ]
        if last_index_B is not None:
            handles.append(head.register_forward_pre_hook(lambda _, inputs: (one_token(inputs[0], last_index_B),)))
        tokens = {"input_ids": input_ids_BT} if prompt is None else {"inputs_embeds": prompt.embeds_BTD}
        handles += [] if prompt is None else self._adding(prompt.added)
        try:
            cache = state_cache(
                self.states,
                states,
                positions_BT,
                num_slots=num_slots,
                num_new_B=num_new_B,
                prompt=prompt,
                table_BM=table_BM,
                rows_B=rows_B,
            )
            if self.axes:
                places = axis_positions(positions_BT, cache.tensors["position_offset", 0], prompt)
                tokens["position_ids"] = places if prompt is None else places.permute(2, 0, 1)
            output = self.run(positions_BT, num_keys, cache, **tokens)
        finally:
            for handle in handles:
                handle.remove()
        return output.logits.float()

    def run(self, positions_BT: torch.Tensor, num_keys: int, cache: StateCache, **tokens: torch.Tensor) -> Any:
        """Call the model with its tokens at given positions, each of which sees the first `num_keys` slots at most."""

        def window_mask(window: int) -> torch.Tensor:
            return self._as_mask(cache.seen(positions_BT, num_keys, window))

        # RWKV's layers get their states without its own code.
        is_listed = self.cache_name == "state"
        with at_positions(self.model, positions_BT, window_mask), from_cache(self.model, cache):
            return self.model(
                **({"position_ids": positions_BT} | tokens),
                attention_mask=self.masks(positions_BT, num_keys, cache),
                use_cache=not is_listed,
                **{self.cache_name: None if is_listed else cache},
            )

    def _adding(self, added: tuple[torch.Tensor, ...]) -> list[RemovableHandle]:
        """Hooks that add to the results of the first layers."""
        if not added:
            return []
        layers = self.model.get_decoder().layers
        return [layer.register_forward_hook(_plus(x_BTD)) for layer, x_BTD in zip(layers, added, strict=False)]

    def _as_mask(self, seen: torch.Tensor) -> torch.Tensor:
        """What each query sees, as the model takes it: boolean, or added to the scores."""
        if self.attention.value == "sdpa":
            return seen
        # Of a weight that is not quantized, nor the scale of one.
        dtype = next(p.dtype for name, p in self.model.named_parameters() if _is_plain(name, p))
        return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)

    def masks(
        self, positions_BT: torch.Tensor, num_keys: int, cache: StateCache
    ) -> torch.Tensor | dict[str, torch.Tensor | None] | None:
        """Masks [B, 1, T, keys]; a dict by layer type where the configuration mixes them.

        Layers without attention get none: padding is behind all that they look at, and the cache keeps it out of
        their states.
        """
        kinds = set(facts_of(self.text_config).layer_types or ())
        if kinds and kinds <= WITHOUT_ATTENTION:
            return None
        full = self._as_mask(cache.seen(positions_BT, num_keys))
        window = facts_of(self.text_config).sliding_window
        sliding = self._as_mask(cache.seen(positions_BT, num_keys, window)) if window else full
        if self.text_config.model_type in FULL_WITHIN_WINDOW:
            full = sliding
        masks: dict[str, torch.Tensor | None] = {"full_attention": full, "sliding_attention": sliding}
        masks |= {"hybrid": full, "hybrid_sliding": sliding} if kinds & {"hybrid", "hybrid_sliding"} else {}
        if "indexed_attention" in kinds:
            # An indexer chooses among what it shows.
            masks["indexed_attention"] = full
        if "chunked_attention" in kinds:
            # Tokens see what is before them in their own chunk of the sequence (Llama 4).
            size = self.text_config.attention_chunk_size
            masks["chunked_attention"] = self._as_mask(cache.seen(positions_BT, num_keys, chunk=size))
        if kinds & (WITH_OTHER_STATES | WITHOUT_ATTENTION):
            return masks | dict.fromkeys(WITHOUT_ATTENTION)
        if kinds - {"full_attention", "sliding_attention"}:
            return masks
        if not window or kinds == {"full_attention"}:
            return full
        return masks if "full_attention" in kinds else sliding


def _is_plain(name: str, parameter: nn.Parameter) -> bool:
    return parameter.is_floating_point() and parameter.dtype.itemsize > 1 and not name.endswith("weight_scale")


def _plus(x_BTD: torch.Tensor) -> Callable[..., torch.Tensor]:
    return lambda _module, _inputs, output: output + x_BTD.to(output.dtype)


def _refuse_model_type(config: PreTrainedConfig) -> None:
    reason = UNSUPPORTED.get(config.model_type)
    if config.model_type == "xmod" and config.default_language is None:
        reason = "it chooses an adapter by the language of each row, and default_language is not set in config.json"
    if reason:
        message = f"{config.model_type} models cannot be compiled: {reason}."
        raise CaptureError(message, hint="Compile another architecture.", model_type=config.model_type)


def _refuse_layer_types(config: PreTrainedConfig) -> None:
    types = sorted(set(facts_of(config.get_text_config(decoder=True)).layer_types or ()) - set(LAYER_TYPES))
    if types:
        hint = f"Compile a model with {', '.join(LAYER_TYPES)} only."
        message = f"This {config.model_type} model has layer_types that are not supported: {', '.join(types)}."
        raise CaptureError(message, hint=hint, layer_types=types)


UNSUPPORTED = {
    "cpmant": "it puts prompt_length more tokens before a prompt, for which the cache has no slots",
    "deepseek_v4": "its compressed attention keeps one entry for several tokens, and the cache has a slot for each",
    **dict.fromkeys(
        ("inkling", "inkling2", "inkling_text", "inkling2_text"),
        "it adds a score for each distance of a key, which it takes from the length of the cache",
    ),
    "prophetnet": "its streams of n-grams read one token at a step and place it by the length of the cache",
    **dict.fromkeys(
        ("qwen4_exp", "qwen4_exp_text"),
        "its indexer keeps the positions of all earlier tokens in a tensor that grows with every token",
    ),
    "reformer": "it sorts tokens into buckets by their hash, so what a token attends to depends on the whole sequence",
    "xlm": "it reads the whole sequence again for every new token, with a mask token behind it",
    "xlnet": "it reads a placeholder and the last tokens again for every new one, so tokens have no slots",
    "xlstm": "its blocks write their states into a cache of another class, xLSTMCache",
}
"""Model type to what a static graph with a slot for each token cannot do."""

FULL_WITHIN_WINDOW = frozenset({"minimax"})
"""Model types whose layers of "full_attention" have the window of the configuration."""

WITH_OTHER_STATES = frozenset({"conv", "hybrid", "hybrid_sliding", "linear_attention"})
"""Kinds of layer that keep a state without slots; "hybrid" ones keep keys and values too."""

WITHOUT_ATTENTION = frozenset({"conv", "linear_attention", "mlp", "moe"})
"""Kinds of layer without keys and values: with another state, or with none."""

WITH_SLOTS = ("full_attention", "sliding_attention", "chunked_attention", "indexed_attention")
"""Kinds of layer with keys and values only."""

LAYER_TYPES = (*WITH_SLOTS, *sorted(WITH_OTHER_STATES | WITHOUT_ATTENTION))
"""Kinds of layer that `GenericDecoder.masks` and `StateCache` implement, of those that a configuration may name."""


def build(
    config: PreTrainedConfig, *, trust_remote_code: bool = False, auto_class: str = "AutoModelForCausalLM"
) -> GenericDecoder:
    """Return the decoder of a transformers configuration, with parameters on the meta device.

    Args:
        config: a transformers configuration.
        trust_remote_code: run code that comes with a checkpoint.
        auto_class: transformers' auto class that builds the model; one of images and text is a decoder too.

    Raises:
        CaptureError: layers are of a kind that is not implemented.
    """
    _refuse_model_type(config)
    _refuse_layer_types(config)
    import transformers

    config = copy.deepcopy(config)
    config._experts_implementation = register()
    if hasattr(config, "rescale_every"):
        # RWKV halves hidden states and weights, which float16 needs and which a graph cannot: same results, exactly.
        config.rescale_every = 0
    attention = Choice(value="sdpa", reason="scaled dot product attention takes the masks as they are")
    from_config = functools.partial(getattr(transformers, auto_class).from_config, trust_remote_code=trust_remote_code)
    with without_weights():
        try:
            model = from_config(config, attn_implementation=attention.value)
        except ValueError as error:
            # Whatever else was wrong is raised again.
            model = from_config(config, attn_implementation="eager")
            reason = " ".join(str(error).split()).partition(". ")[0]
            attention = Choice(
                value="eager",
                reason=f"{type(model).__name__} has no scaled dot product attention in transformers",
                rejected=(Rejected(candidate="sdpa", reason=reason),),
            )
    model.tie_weights()
    open_own_masks(model)
    replace_forwards(model)
    return GenericDecoder(model, attention).eval()
