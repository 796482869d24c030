"""Entry points of a decoder: which graphs a generative model is compiled into.

prefill_<n>  a prompt of up to n tokens: fills the cache, logits of each row's last token
score_<n>    the same with logits of every token
extend_<n>   n more tokens of a sequence that is in the cache, logits of every one
decode_<n>   one more token of a sequence of up to n
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torch import nn

from ...base.core import TensorSpec
from ...base.model_facts import facts_of, require_equal_layers
from ...base.transformers_types import PreTrainedConfig, PreTrainedModel
from ...compiler import Program, Recapture, Role, find_stacks
from ...engine import ADAPTER_INDEX, Signature
from ...errors import ConfigError, ModelError
from ...models import (
    GENERIC,
    Family,
    build_decoder,
    quantize_decoder,
    require_group_size,
    with_adapters,
    with_hidden_states,
)
from ...options.configuration import NeuronConfig
from ...options.decoder_options import extend_lengths
from ...sources import TASKS, ModelSource, architectures_of
from ...weights import parse_schemes
from ..base import DECODER_CHOICES, MODEL, Kind, Plan, other_graphs, shard_facts
from ..scenario import Recorder, Scenario
from .paged import paged_captures, paged_graph_names, paged_problems, require_batching, sharing_facts
from .scenarios import DecoderScenarios
from .signature import (
    KEYS_AND_VALUES,
    Entry,
    capture_entry,
    decoder_signature,
    graph_layers,
    prompt_captures,
    require_topk,
    sampled_outputs,
)


def state_specs(family: Family, config: NeuronConfig) -> dict[str, TensorSpec]:
    """What every layer keeps, by "<name>.<layer>"."""
    return {
        f"{tensor.name}.{layer}": TensorSpec(
            shape=tensor.shape(config.batch_size, config.sequence_length, max(extend_lengths(config), default=1)),
            dtype=tensor.dtype or config.torch_dtype,
        )
        for layer, state in enumerate(family.states)
        for tensor in state
    }


def choice_facts(family: Family) -> dict[str, Any]:
    """Automatic choices of a decoder beside its family, and its adapters, as facts of the program."""
    choices = {name: getattr(family, name) for name in DECODER_CHOICES}
    facts = {name: choice.to_dict() for name, choice in choices.items() if choice is not None}
    return facts if family.adapters is None else facts | {"adapters": family.adapters.plan.under(MODEL).to_dict()}


def adaptable(family: Family, config: NeuronConfig) -> Family:
    """Return a decoder with room for the adapters of a configuration, if it has some."""
    if config.max_loras is None:
        return family
    assert config.max_lora_rank is not None, "a resolved configuration has a rank"
    return with_adapters(
        family, max_loras=config.max_loras, max_rank=config.max_lora_rank, targets=config.lora_target_modules
    )


def graph_names(config: NeuronConfig) -> set[str]:
    """Names of all entry points that a complete configuration is compiled into."""
    names = {f"{kind}_{bucket}" for bucket in config.prefill_buckets for kind in ("prefill", "score")}
    names |= {f"decode_{bucket}" for bucket in config.decode_buckets}
    return names | {f"extend_{length}" for length in extend_lengths(config)}


def decoder_captures(
    family: Family,
    config: NeuronConfig,
    *,
    prompt_class: Callable[..., Entry] = Entry,
    prompt_inputs: Callable[[int], Mapping[str, TensorSpec]] = lambda num_tokens: {},
) -> list[Recapture]:
    """Functions that capture each entry point of a decoder.

    `prompt_class` is how graphs of prompts call it, `prompt_inputs` what those of so many tokens take beside token ids
    and positions.
    """

    def entry(role: Role, num_tokens: int, num_slots: int | None, more: Mapping[str, TensorSpec]) -> Any:
        tokens = TensorSpec(shape=(config.batch_size, num_tokens), dtype="int64")
        rows = TensorSpec(shape=(config.batch_size,), dtype="int64")
        counts = {"num_new_tokens": rows} if family.counts_tokens else {}
        inputs = {"input_ids": tokens, "position_ids": tokens, **counts, **more}
        if role == "prefill":
            inputs["last_index"] = rows
        if family.adapters is not None:
            inputs[ADAPTER_INDEX] = rows
        entry_class: Callable[..., Entry] = Entry if num_slots else prompt_class
        axis, size = ("num_slots", num_slots) if role == "decode" else ("num_tokens", num_tokens)
        assert size is not None, "a decode graph sees a number of slots"
        return functools.partial(
            capture_entry,
            entry_class(
                family.module,
                num_slots=num_slots,
                last_only=role == "prefill",
                counts_tokens=family.counts_tokens,
                adapters=family.adapters,
                max_topk=config.max_topk if role == "decode" else None,
            ),
            name=f"{role}_{size}",
            role=role,
            sizes={axis: size},
            inputs=inputs,
            states=state_specs(family, config),
            outputs=family.outputs + sampled_outputs(config) * (role == "decode"),
            layer_results=graph_layers(family),
            cuts=tuple(f"{MODEL}.{path}" for path in family.module.cuts),
            rare=role == "extend" and not config.speculation and num_tokens != config.prefill_chunk_size,
        )

    captures: list[Recapture] = []
    for bucket in config.prefill_buckets:
        more = prompt_inputs(bucket)
        captures += prompt_captures(entry("prefill", bucket, None, more), entry("score", bucket, None, more))
    captures += [entry("decode", 1, bucket, {}) for bucket in config.decode_buckets]
    captures += [entry("extend", length, config.sequence_length, {}) for length in extend_lengths(config)]
    return captures


DecoderConfig = TypeVar("DecoderConfig", bound=NeuronConfig)


class GeneratingKind(Kind[DecoderConfig]):
    """Models whose decoder has its cache on the device: of text alone, or with images or audio in prompts."""

    generates = True
    is_estimated_by_size = True

    def ignored_endings(self) -> tuple[str, ...]:
        return (*super().ignored_endings(), "token_id")

    def problems(self, program: Program, metadata: Mapping[str, Any], config: DecoderConfig) -> list[str]:
        is_paged = config.continuous_batching
        if problems := other_graphs(program, paged_graph_names(config) if is_paged else graph_names(config)):
            return problems
        if is_paged:
            return paged_problems(program, config)
        rows = {graph.inputs["input_ids"].shape[0] for graph in program.graphs.values()}
        if rows != {config.batch_size}:
            numbers = ", ".join(map(str, sorted(rows)))
            problems.append(f"its graphs have {numbers} rows instead of batch_size={config.batch_size}")
        is_ring = metadata.get("windows", {}).get("value") == "ring"
        caches = {name: spec for name, spec in program.states.items() if name.partition(".")[0] in _SLOTS_DIM}
        num_slots = {spec.shape[_SLOTS_DIM[name.partition(".")[0]]] for name, spec in caches.items()}
        if any(num > config.sequence_length or (num < config.sequence_length and not is_ring) for num in num_slots):
            problems.append(f"its cache has not sequence_length={config.sequence_length} slots")
        return problems


class DecoderKind(GeneratingKind[NeuronConfig]):
    """Models that generate text, with their cache on the device."""

    name = "decoder"
    config_class = NeuronConfig

    def unserved(self, source: ModelSource, task: str) -> str:
        config = source.config
        architectures = list(config.architectures or ())
        other = architectures and not any(name.endswith(TASKS[task].suffixes) for name in architectures)
        encodes = facts_of(config).is_encoder_decoder or facts_of(config).is_decoder is False
        if config.model_type not in architectures_of(task) and not hasattr(config, "auto_map"):
            return "transformers has no causal language model of this architecture"
        return f"the checkpoint is a {architectures[0]}, which encodes its input" if other and encodes else ""

    def resolve(self, source: ModelSource, config: NeuronConfig, *, trust_remote_code: bool) -> NeuronConfig:
        require_cores(source.config, config)
        require_topk(source.config, config)
        return config.resolve(max_position_embeddings=num_positions(source.config, config.sequence_length))

    def plan(self, source: ModelSource, config: NeuronConfig, *, trust_remote_code: bool) -> Plan:
        family = build_decoder(
            source.config,
            dtype=config.torch_dtype,
            family=config.family,
            trust_remote_code=trust_remote_code,
            group_size=config.tensor_parallel_size,
            sequence_parallel=config.sequence_parallel,
            num_tokens=config.sequence_length,
            is_paged=config.continuous_batching,
            kv_cache_dtype=config.kv_cache_dtype,
            attention_kernel=config.attention_kernel,
            expert_unit=expert_unit(config),
        )
        if config.continuous_batching:
            require_batching(family, source.config.model_type, speculation=config.speculation)
        family = quantized(adaptable(family, config), config)
        if config.speculation and config.pipeline_parallel_size == 1:
            divided = config.sequence_parallel and config.tensor_parallel_size > 1
            family = with_hidden_states(family, config.hidden_state_layers, sequence_parallel=divided)
        _require_separate_layers(family.module, source.config.model_type, config.pipeline_parallel_size)
        return Plan(
            choice=family.choice,
            captures=paged_captures(family, config) if config.continuous_batching else decoder_captures(family, config),
            weight_sources={f"{MODEL}.{name}": sources for name, sources in family.weight_sources.items()},
            facts={
                "signature": decoder_signature(
                    source.config,
                    family.states,
                    takes_adapters=family.adapters is not None,
                    is_paged=config.continuous_batching,
                    outputs=(*family.outputs, *family.layer_results),
                    step_outputs=sampled_outputs(config),
                ).to_dict()
            }
            | choice_facts(family)
            | (sharing_facts(family) if config.continuous_batching else {})
            | shard_facts(family.shards),
            num_stages=config.pipeline_parallel_size,
            # The generic decoder wraps transformers' model once more, under the same name.
            prefixes=(f"{MODEL}.{MODEL}",) if family.choice.value == GENERIC else (MODEL,),
        )

    def rebuilt_signature(
        self, program: Program, metadata: Mapping[str, Any], model_config: PreTrainedConfig
    ) -> Signature:
        return decoder_signature(model_config, KEYS_AND_VALUES)

    def scenarios(
        self, recorder: Recorder, reference: PreTrainedModel, metadata: Mapping[str, Any], config: NeuronConfig
    ) -> Iterable[Scenario]:
        return DecoderScenarios(recorder, self.signature(recorder.program, metadata, reference.config), reference)


def expert_unit(config: NeuronConfig) -> int:
    """Return how many neighboring inputs of an expert must stay on one core, because they share a scale."""
    return 1 if config.quantization is None else parse_schemes(config.quantization)[0].unit


def quantized(family: Family, config: NeuronConfig) -> Family:
    """Return a decoder with its linear layers quantized as a configuration says."""
    if config.quantization is None:
        return family
    scheme, head_scheme = parse_schemes(config.quantization)
    return quantize_decoder(family, scheme, config.modules_to_not_convert, head_scheme=head_scheme)


def require_cores(model_config: PreTrainedConfig, config: NeuronConfig) -> None:
    """Check that the decoder of a transformers configuration has heads for the cores, and layers for the stages."""
    text, group_size = model_config.get_text_config(decoder=True), config.tensor_parallel_size
    require_equal_layers(text, ["num_attention_heads"], hint="Pass a checkpoint whose layers have as many heads each.")
    num_heads = facts_of(text).num_attention_heads or group_size
    if group_size > 1:
        require_group_size(group_size, num_heads=num_heads, model_type=model_config.model_type)
    num_stages = config.pipeline_parallel_size
    num_layers = facts_of(text).num_hidden_layers or num_stages
    if num_stages > num_layers:
        message = f"pipeline_parallel_size={num_stages} is more than the {num_layers} layers of this "
        message += f"{model_config.model_type} model."
        hint = f"Pass at most {num_layers}; tensor_parallel_size divides every layer."
        raise ConfigError(message, hint=hint, option="pipeline_parallel_size", value=num_stages, num_layers=num_layers)


def _require_separate_layers(module: nn.Module, model_type: str, num_stages: int) -> None:
    """Check that a model has so many layers that are captured one by one, before any is."""
    num_layers = max((stack.num_layers for stack in find_stacks(module, keep_states=True)), default=1)
    if num_stages > num_layers:
        message = f"pipeline_parallel_size={num_stages}: this {model_type} model has no list of as many layers."
        hint = "Pass 1; tensor_parallel_size divides every layer."
        raise ModelError(message, hint=hint, option="pipeline_parallel_size", value=num_stages, num_layers=num_layers)


_SLOTS_DIM = {"key_cache": 3, "value_cache": 2}
"""Name of a state to its dimension of slots."""

LIMITS = ("max_position_embeddings", "max_seq_len", "max_target_positions")
"""Fields of transformers configurations that limit positions; MPT has the second, Whisper's decoder the third."""


def num_positions(config: PreTrainedConfig, sequence_length: int | None = None) -> int:
    """Return the number of positions of a decoder.

    Args:
        config: a transformers configuration.
        sequence_length: the user's length, which is the limit of a model without positions, as with ALiBi.
    """
    text = config.get_text_config(decoder=True)
    # XLNet has -1, as a sign that it has none.
    limits = [limit for name in LIMITS if (limit := getattr(text, name, None) or 0) > 0]
    limit = min(limits, default=sequence_length)
    if limit is None:
        message = f"This {config.model_type} model has no limit of positions (max_position_embeddings)."
        details = {"option": "sequence_length", "model_type": config.model_type}
        raise ModelError(message, hint="Pass sequence_length.", **details)
    return limit


KIND = DecoderKind()
