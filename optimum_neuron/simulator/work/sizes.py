"""Sizes from a decoder's configuration: layers, projections, heads, and experts, without weights.

transformers builds the model on the meta device, where parameters have shapes and no memory, and the shapes are read
off its modules. No table of model families is needed; 80 layers take a quarter of a second. It does not depend on
cores.

    sizes = decoder_sizes(AutoConfig.from_pretrained(folder))
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig, PreTrainedModel
from ...errors import ModelError
from ...models import HEAD_SIZES, require_equal_layers
from .layer_sizes import LayerSizes, layer_sizes
from .mixers import LatentSizes, latent_sizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """A decoder, as far as its work depends on it."""

    model_type: str
    """As transformers spells it."""
    hidden: int
    """Size of the residual stream."""
    vocab: int
    """Tokens that logits cover."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    latent: LatentSizes | None
    """Sizes of latent attention, where it attends so."""
    layers: tuple[LayerSizes, ...]
    experts_per_token: int
    """Experts that a token takes; 0 where none."""
    tied: bool
    """The head is the embedding."""
    position_width: int
    """Elements of a position in a learned table; 0 without one."""
    position_elements: int
    num_end_vectors: int
    """Weight and bias of the norm before the head."""
    has_head_bias: bool
    num_parameters: int
    """All parameters, a tied head once."""
    max_positions: int | None
    """Positions that the configuration allows."""
    dtype: str | None
    """Dtype of the checkpoint, where the configuration says it."""

    @property
    def num_layers(self) -> int:
        """Layers of all kinds."""
        return sum(layer.count for layer in self.layers)

    @property
    def is_mixture(self) -> bool:
        """Whether any layer has experts."""
        return any(layer.num_experts for layer in self.layers)

    @property
    def is_hybrid(self) -> bool:
        """Whether any layer scans its tokens."""
        return any(layer.state for layer in self.layers)

    @property
    def kind(self) -> str:
        """Class of its estimates."""
        return "mixture" if self.is_mixture else "hybrid" if self.is_hybrid else "decoder"


def decoder_sizes(config: PreTrainedConfig, *, trust_remote_code: bool = False) -> DecoderSizes:
    """Read the sizes of a causal language model, or of the text model in a larger one.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.simulator.work.sizes import decoder_sizes

        sizes = decoder_sizes(LlamaConfig(num_hidden_layers=3, hidden_size=64, num_attention_heads=4))
        assert (sizes.num_layers, sizes.head_dim) == (3, 16)
        ```
    """
    key = f"{type(config).__name__} {config.to_json_string(use_diff=False)}"
    if trust_remote_code or key not in _SIZES:
        _SIZES[key] = _read_sizes(config, trust_remote_code=trust_remote_code)
        while len(_SIZES) > KEPT:
            del _SIZES[next(iter(_SIZES))]
    return _SIZES[key]


KEPT = 32
"""Configurations whose sizes are kept: a comparison asks for those of one on every machine."""
_SIZES: dict[str, DecoderSizes] = {}


def _read_sizes(config: PreTrainedConfig, *, trust_remote_code: bool) -> DecoderSizes:
    import transformers

    text = config.get_text_config(decoder=True)
    require_equal_layers(text, HEAD_SIZES, hint="Compile it, if possible, and estimate the compiled folder.")
    if not facts_of(text).num_attention_heads:
        message = f"{text.model_type!r} is a decoder without attention, which is not estimated from its configuration."
        hint = "Compile it, if possible, and estimate the compiled folder."
        raise ModelError(message, hint=hint, model_type=text.model_type)
    trust = {"trust_remote_code": trust_remote_code}
    builds = [functools.partial(transformers.AutoModelForCausalLM.from_config, text, **trust)]
    if text is not config:
        builds.append(functools.partial(transformers.AutoModelForImageTextToText.from_config, config, **trust))
    model = on_meta(text.model_type, builds)
    stack = largest_stack(model, int(text.num_hidden_layers))
    if stack is None:
        message = f"A model of type {text.model_type!r} has no list of {text.num_hidden_layers} layers."
        raise ModelError(message, hint="Compile it, and estimate the compiled folder.", model_type=text.model_type)
    windows = _windows(text, len(stack))
    kinds = collections.Counter(
        layer_sizes(layer, text, window=window) for layer, window in zip(stack, windows, strict=True)
    )
    heads = int(text.num_attention_heads)
    head_dim = facts_of(text).head_dim or int(text.hidden_size) // heads
    tied = bool(facts_of(text).tie_word_embeddings)
    positions = _position_table(model, stack)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    ends = embedding.numel() * (1 if tied or head is None else 2)
    experts = getattr(text, "num_experts_per_tok", None) or getattr(text, "num_experts_per_token", None)
    return DecoderSizes(
        model_type=text.model_type,
        hidden=int(text.hidden_size),
        vocab=int(text.vocab_size),
        num_heads=heads,
        num_kv_heads=_num_kv_heads(text, kinds, heads, int(head_dim)),
        head_dim=int(head_dim),
        latent=latent_sizes(text),
        layers=tuple(dataclasses.replace(kind, count=count) for kind, count in kinds.items()),
        experts_per_token=int(experts or 0),
        tied=tied,
        position_width=0 if positions is None else positions.embedding_dim,
        position_elements=0 if positions is None else positions.weight.numel(),
        num_end_vectors=_num_end_vectors(model, stack),
        has_head_bias=getattr(head, "bias", None) is not None,
        num_parameters=sum(p.numel() for p in stack.parameters()) + ends,
        max_positions=facts_of(text).max_position_embeddings,
        dtype=str(config.dtype).removeprefix("torch.") if getattr(config, "dtype", None) else None,
    )


def _windows(text: PreTrainedConfig, num_layers: int) -> list[int | None]:
    """Tokens that each layer looks back at: a window or a chunk; None for all."""
    types = facts_of(text).layer_types or ["sliding_attention"] * num_layers
    sizes = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
    return [getattr(text, sizes.get(kind, ""), None) for kind in types]


def _position_table(model: PreTrainedModel, stack: Any) -> Any:
    """The learned table of positions, outside of the layers; None without one."""
    from torch import nn

    tokens = model.get_input_embeddings()
    tables = (m for m in model.modules() if isinstance(m, nn.Embedding) and m is not tokens)
    inside = {id(m) for m in stack.modules()}
    return next((m for m in tables if id(m) not in inside), None)


def _num_end_vectors(model: PreTrainedModel, stack: Any) -> int:
    """Weight and bias of the norm behind all layers."""
    inside = {id(m) for m in stack.modules()}
    norms = [m for m in model.modules() if "norm" in type(m).__name__.lower() and id(m) not in inside]
    return max((len(list(norm.parameters())) for norm in norms), default=0)


def _num_kv_heads(text: PreTrainedConfig, kinds: Iterable[LayerSizes], num_heads: int, head_dim: int) -> int:
    """Key-value heads that the configuration names, unless the joined projection is too narrow for them."""
    named = int(facts_of(text).num_key_value_heads or num_heads)
    widths = [p.columns for kind in kinds for p in kind.projections if p.role == "attention_in"]
    beside_queries = min(widths, default=0) - num_heads * head_dim
    named_by_width = beside_queries // (2 * head_dim)
    return named_by_width if 0 < named_by_width < named and beside_queries % (2 * head_dim) == 0 else named


def on_meta(model_type: str, builds: Sequence[Callable[[], Any]]) -> Any:
    """Return the first model that can be built, without memory."""
    import torch

    problems = []
    for build in builds:
        try:
            with torch.device("meta"):
                return build()
        except (ValueError, LookupError, AttributeError, ImportError, RuntimeError, TypeError, AssertionError) as error:
            problems.append(error)
    causes = "; ".join(f"{type(e).__name__}: {' '.join(str(e).split())[:120]}" for e in problems)
    message = f"transformers cannot build a model of type {model_type!r}: {causes}"
    hint = "Check config.json, or pass --trust-remote-code if the model brings its own code."
    raise ModelError(message, hint=hint, model_type=model_type) from problems[-1]


def largest_stack(model: PreTrainedModel, num_layers: int | None) -> Any:
    """Return the module list of so many layers that has the most parameters; None if there is none."""
    from torch import nn

    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == num_layers]
    return max(lists, key=lambda stack: sum(p.numel() for p in stack.parameters()), default=None)


def local_heads(sizes: DecoderSizes, num_cores: int, *, replicate: bool) -> tuple[int, int]:
    """Query heads and key-value heads of one core; heads are padded up to a multiple of the cores.

    Key-value heads are split where their number allows. If the number of cores is a multiple of them, each core keeps
    one (`replicate`), or one for each of its query heads as the older library does; else each query head has its own.
    """
    queries = math.ceil(sizes.num_heads / num_cores)
    if sizes.num_kv_heads % num_cores == 0:
        return queries, sizes.num_kv_heads // num_cores
    if replicate and num_cores % sizes.num_kv_heads == 0:
        return queries, 1
    return queries, queries
