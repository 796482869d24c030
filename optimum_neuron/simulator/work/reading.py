"""Sizes of a decoder, read off its configuration: layers, projections, heads, and experts, without weights.

transformers builds the model on the meta device, where parameters have shapes and no memory, and the shapes are read
off its modules. No table of model families is needed; 80 layers take a quarter of a second.

    sizes = decoder_sizes(AutoConfig.from_pretrained(folder))
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from ...base.foreign import module_facts
from ...base.model_facts import facts_of, require_equal_layers
from ...base.transformers_types import PreTrainedConfig, PreTrainedModel
from ...errors import ModelError
from .roles import Role, is_inside, is_joined, role_of
from .sizes import DecoderSizes, LatentSizes, LayerSizes, Norm, Projection, StateSizes

_HEAD_SIZES = ("num_attention_heads", "num_key_value_heads", "head_dim")
"""Fields of a transformers configuration that say how large heads are."""


def decoder_sizes(config: PreTrainedConfig, *, trust_remote_code: bool = False) -> DecoderSizes:
    """Read the sizes of a causal language model, or of the text model in a larger one.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.simulator.work.reading import decoder_sizes

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
    require_equal_layers(text, _HEAD_SIZES, hint="Compile it, if possible, and estimate the compiled folder.")
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
    experts = facts_of(text).num_experts_per_tok or facts_of(text).num_experts_per_token
    return DecoderSizes(
        kind=_kind(kinds),
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
        has_head_bias=module_facts(head).bias is not None,
        num_parameters=sum(p.numel() for p in stack.parameters()) + ends,
        max_positions=facts_of(text).max_position_embeddings,
        dtype=str(config.dtype).removeprefix("torch.") if facts_of(config).dtype else None,
    )


def _kind(layers: Iterable[LayerSizes]) -> Literal["decoder", "mixture", "hybrid"]:
    if any(layer.num_experts for layer in layers):
        return "mixture"
    return "hybrid" if any(layer.state for layer in layers) else "decoder"


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


_OF_QUERIES = re.compile(r"(^|\.)(q|query)_(?!a_)\w*norm$")
_OF_KEYS = re.compile(r"(^|\.)(k|key)_\w*norm$")
_EXPERTS = re.compile(r"(^|\.)experts?(\.|$)")


def layer_sizes(layer: Any, text: PreTrainedConfig, *, window: int | None = None) -> LayerSizes:
    """Read one layer: matrices by role and by the size of their input, norms, the rest as a number of elements."""
    columns_of: dict[_Key, list[int]] = {}
    biases: dict[str, int] = {}
    inputs: dict[str, _Key] = {}
    norms: dict[str, Norm] = {}
    state, kept = state_sizes(layer), layer.state_dict()
    num_experts = other = of_state = 0
    for name, parameter in layer.named_parameters():
        path, _, leaf = name.rpartition(".")
        shape = tuple(parameter.shape)
        expert = _EXPERTS.search(name) is not None and "shared" not in name
        if expert and len(shape) == 3:
            num_experts = shape[0]
            role = role_of(leaf, expert=True)
            inner = text.hidden_size if role == "expert_up" else math.prod(shape[1:]) // text.hidden_size
            columns_of.setdefault((path, role, inner), []).extend(_matrices(name, math.prod(shape[1:]) // inner))
        elif len(shape) == 2 and leaf == "weight":
            is_of_gpt2 = type(layer.get_submodule(path)).__name__ == "Conv1D"  # which stores inner x columns
            columns, inner = reversed(shape) if is_of_gpt2 else shape
            if expert:
                match = re.search(r"experts\.(\d+)", path)
                index = int(match.group(1)) if match else 0
                num_experts = max(num_experts, index + 1)
                if index:
                    continue
            inputs[path] = _key(path, columns, inner, expert=expert)
            columns_of.setdefault(inputs[path], []).extend(_matrices(name, columns))
        elif len(shape) == 1 and "norm" in type(layer.get_submodule(path)).__name__.lower():
            before = norms[path].num_vectors if path in norms else 0
            norms[path] = Norm(of=_normalized(path, shape[0], state), width=shape[0], num_vectors=before + 1)
        elif len(shape) == 1 and leaf == "bias" and not expert:
            biases[path] = shape[0]
        elif state is not None and is_inside(path, state.path):
            of_state += parameter.numel()
        else:
            other += parameter.numel()
    other += sum(size for path, size in biases.items() if path not in inputs)
    projections = tuple(
        Projection(
            role=key[1],
            inner=key[2],
            columns=sum(widths),
            num_matrices=len(widths),
            num_biases=sum(size for path, size in biases.items() if inputs.get(path) == key),
        )
        for key, widths in columns_of.items()
    )
    return LayerSizes(
        count=1,
        state=state,
        projections=projections,
        num_experts=num_experts,
        has_attention=state is None and any(p.role == "attention_in" for p in projections),
        norms=tuple(norms.values()),
        window=window,
        other_elements=other,
        state_parameters=of_state,
        float32_elements=sum(buffer.numel() for name, buffer in layer.named_buffers() if name in kept),
    )


_Key = tuple[str, Role, int]
"""Module, role and input size of matrices that are multiplied together."""


def _key(path: str, columns: int, inner: int, *, expert: bool) -> _Key:
    """A weight of one column is a gate, which every core keeps whole, as routers are."""
    role = "router" if columns == 1 else role_of(path, expert=expert)
    return path if role == "router" else path.rpartition(".")[0], role, inner


def _normalized(path: str, width: int, state: StateSizes | None) -> Literal["stream", "queries", "keys", "state"]:
    if state is not None and is_inside(path, state.path) and width == state.value_dim:
        return "state"
    return "queries" if _OF_QUERIES.search(path) else "keys" if _OF_KEYS.search(path) else "stream"


def _matrices(name: str, columns: int) -> list[int]:
    """Columns of each matrix of a weight: gate and up are two, also where a checkpoint joins them."""
    return [columns // 2] * 2 if is_joined(name) else [columns]


def latent_sizes(text: PreTrainedConfig) -> LatentSizes | None:
    """Read latent attention off a configuration; None without it."""
    if not facts_of(text).kv_lora_rank:
        return None
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    rank, rotary, plain, value = (int(getattr(text, name, None) or 0) for name in names)
    return LatentSizes(rank=rank, rotary=rotary, plain=plain, value=value)


def state_sizes(layer: Any) -> StateSizes | None:
    """Read the state that a layer carries over tokens; None without one."""
    for path, module in layer.named_modules():
        decay = module_facts(module).A_log
        if decay is None:
            continue
        sizes = vars(module)
        keys = sizes.get("head_k_dim") or sizes.get("ssm_state_size", 0)
        values = int(sizes.get("head_v_dim") or sizes.get("head_dim", 0))
        num_heads, elements = decay.shape if decay.dim() == 2 else (decay.numel(), int(keys) * values)
        window = sum(
            child.out_channels * (child.kernel_size[0] - 1)
            for child in module.modules()
            if type(child).__name__ == "Conv1d"
        )
        return StateSizes(path=path, num_heads=num_heads, elements=elements, value_dim=values, window=window)
    return None
