"""How an encoder-decoder becomes the captures of one program."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from ...base.core import Choice, TensorSpec
from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedModel
from ...compiler import Captured, Program, Recapture, Role, capture, capture_error
from ...engine import Signature
from ...models import persistent_buffers
from ...sources import ModelSource, architectures_of
from ...upstream.cache_argument import CACHE
from ..base import ANY_BATCH, Kind, Plan, other_graphs, shard_facts
from ..empty import empty_model, split_empty
from ..encoder import on_fakes, with_attentions
from ..scenario import Recorder, Scenario
from .configuration import EncoderDecoderConfig, NeuronSeq2SeqConfig
from .entry import (
    MODEL,
    STATES,
    EncodedSource,
    EncodeEntry,
    TargetEntry,
    dtype_of,
    layer_options,
    unfuse_cross_attention,
)
from .scenarios import EncoderDecoderScenarios
from .signature import encoder_decoder_signature
from .sources import SPEECH, Source, find_source

PairConfig = TypeVar("PairConfig", bound=EncoderDecoderConfig)


class EncoderDecoderKind(Kind[PairConfig]):
    """Models that read a source and write a target."""

    generates = True
    without_effect: ClassVar[Mapping[str, str]] = {"dynamic_batch_size": ANY_BATCH}
    captures_module = True

    def plan(self, source: ModelSource, config: PairConfig, *, trust_remote_code: bool) -> Plan:
        model = build_model(source, config, trust_remote_code=trust_remote_code)
        shards = split_empty(model, config, ends=True)
        read = find_source(model)
        states = state_specs(model, read, config)
        of_source, of_target = _layer_names(model, config, num_layers=len(states) // len(STATES))
        encoded, results = ("last_hidden_state", *of_source), ("logits", *of_target)
        signature = encoder_decoder_signature(read, source.config, encoded=encoded, results=results)
        names = [name for name, _ in model.named_parameters()] + [name for name, _ in persistent_buffers(model)]
        reason = f"{source.config.model_type} through transformers' own modules, with its caches as graph inputs"
        return Plan(
            choice=Choice(value=source.config.model_type, reason=reason),
            captures=_captures(model, read, config, states, encoded, results),
            weight_sources={f"{MODEL}.{name}": (name,) for name in names},
            facts={"source": dataclasses.asdict(read), "signature": signature.to_dict()} | shard_facts(shards),
        )

    def rebuilt_signature(self, program: Program, metadata: Mapping[str, Any], model_config: PairConfig) -> Signature:
        encode, decode = (
            next(graph for graph in program.graphs.values() if graph.role == role) for role in ("encode", "decode")
        )
        source = Source(**metadata["source"])
        return encoder_decoder_signature(source, model_config, encoded=encode.outputs, results=decode.outputs)

    def prepare_reference(self, reference: PreTrainedModel, config: PairConfig) -> Any:
        return with_attentions(reference) if config.returns_attentions else reference

    def scenarios(
        self, recorder: Recorder, reference: PreTrainedModel, metadata: Mapping[str, Any], config: PairConfig
    ) -> Iterable[Scenario]:
        signature = self.signature(recorder.program, metadata, reference.config)
        source = Source(**metadata["source"])
        return EncoderDecoderScenarios(recorder, signature, reference, source, config)

    def problems(self, program: Program, metadata: Mapping[str, Any], config: PairConfig) -> list[str]:
        if "source" not in metadata:
            return ["its metadata has no source"]
        if problems := other_graphs(program, graph_names(config)):
            return problems
        longest = config.source_buckets[-1]
        shape = program.graphs[f"encode_{longest}"].inputs[metadata["source"]["name"]].shape
        if (shape[0], shape[-1]) != (config.batch_size, longest):
            sizes = f"{shape[0]} rows and sources of {shape[-1]}"
            problems.append(f"its graphs have {sizes} instead of {config.batch_size} and {longest}")
        rows = program.graphs["decode"].inputs["decoder_input_ids"].shape[0]
        if rows != config.num_target_rows:
            problems.append(f"its decoder has {rows} rows, not batch_size * num_beams = {config.num_target_rows}")
        slots = {spec.shape[3] for name, spec in program.states.items() if name.startswith("self_key")}
        if slots != {config.num_target_slots}:
            problems.append(f"its cache has not decoder_sequence_length={config.num_target_slots} slots")
        results = {f"encode_{longest}": config.source_results, "decode": config.target_results}
        for graph, names in results.items():
            outputs = program.graphs[graph].outputs
            if {name.partition(".")[0] for name in outputs if "." in name} != set(names):
                problems.append(f"its graph {graph} returns {', '.join(outputs)}")
        return problems


def graph_names(config: EncoderDecoderConfig) -> set[str]:
    """Names of all entry points that a complete configuration is compiled into."""
    return {"decode", *(f"{kind}_{bucket}" for bucket in config.source_buckets for kind in ("encode", "prefill"))}


def build_model(source: ModelSource, config: EncoderDecoderConfig, *, trust_remote_code: bool) -> Any:
    """The model without weights, with the attention that the masks here are made for."""
    reads_text = source.config.model_type not in SPEECH
    # Fused attention does not return its weights; Whisper's encoder and self-attention stay fused.
    attention = "eager" if reads_text and config.returns_attentions else "sdpa"
    model = empty_model(source, config, attention=attention, trust_remote_code=trust_remote_code)
    if config.returns_attentions and not reads_text:
        unfuse_cross_attention(model)
    return model


def state_specs(model: PreTrainedModel, read: Source, config: EncoderDecoderConfig) -> dict[str, TensorSpec]:
    """Caches of every decoder layer: `self_key` [B, K, H, T], `self_value` [B, K, T, H], both `cross` [B, K, S, H]."""
    rows, target, source = config.num_target_rows, config.num_target_slots, read.num_states(config.source_buckets[-1])
    specs: dict[str, TensorSpec] = {}
    for layer, (heads, width) in enumerate(_head_shapes(model)):
        sizes = ((width, target), (target, width), (source, width), (source, width))
        for name, shape in zip(STATES, ((rows, heads, *size) for size in sizes), strict=True):
            specs[f"{name}.{layer}"] = TensorSpec(shape=shape, dtype=config.torch_dtype)
    return specs


def _head_shapes(model: PreTrainedModel) -> list[tuple[int, int]]:
    """Heads and head width of every decoder layer: what reaches the cache when one token is run on fakes."""
    with on_fakes(model):
        token = torch.zeros(1, 1, dtype=torch.int64)
        hidden = EncodedSource(last_hidden_state=torch.zeros(1, 1, hidden_width(model), dtype=dtype_of(model)))
        try:
            cache = model(encoder_outputs=hidden, decoder_input_ids=token, use_cache=True)[CACHE]
        except RuntimeError as error:
            raise capture_error(model, "one token", error) from error
    return [(layer.keys.shape[1], layer.keys.shape[3]) for layer in cache.self_attention_cache.layers]


def _layer_names(
    model: PreTrainedModel, config: EncoderDecoderConfig, *, num_layers: int
) -> tuple[list[str], list[str]]:
    """Names of the results of each layer, as "hidden_states.0", of graphs of sources and of targets."""
    counts = {"decoder_hidden_states": num_layers + 1}
    if config.source_results:
        with on_fakes(model):
            ids = torch.zeros(1, 1, dtype=torch.int64)
            output = model.get_encoder()(input_ids=ids, **layer_options(config.source_results))
        counts |= {name: len(output[name]) for name in config.source_results}
    of_source, of_target = (
        [f"{name}.{place}" for name in names for place in range(counts.get(name, num_layers))]
        for names in (config.source_results, config.target_results)
    )
    return of_source, of_target


def hidden_width(model: PreTrainedModel) -> int:
    """Values of a hidden state of the encoder, which are those of an embedding of the decoder."""
    return int(model.get_input_embeddings().embedding_dim)


def _captures(
    model: nn.Module,
    read: Source,
    config: EncoderDecoderConfig,
    states: dict[str, TensorSpec],
    encoded: tuple[str, ...],
    results: tuple[str, ...],
) -> list[Recapture]:
    rows, longest = config.num_target_rows, config.source_buckets[-1]
    token = {"decoder_input_ids": TensorSpec(shape=(rows, 1), dtype="int64")}
    encode = EncodeEntry(model, read, config.source_results)
    first = TargetEntry(model, read, is_first=True, results=config.target_results)
    later = TargetEntry(model, read, is_first=False, results=config.target_results)
    captures: list[Recapture] = []
    for length in config.source_buckets:
        source = read.inputs(config.batch_size, length)
        sizes = {read.axis: length}
        captures.append(functools.partial(_capture, encode, "encode", sizes, source, None, encoded))
        hidden = TensorSpec(shape=(rows, read.num_states(length), hidden_width(model)), dtype="float32")
        start = token | read.masks(rows, length) | {"encoder_hidden_states": hidden}
        captures.append(functools.partial(_capture, first, "prefill", sizes, start, states, results))
    position = TensorSpec(shape=(rows, 1) if read.has_row_positions else (1,), dtype="int64")
    step = token | read.masks(rows, longest) | {"position": position}
    return [*captures, functools.partial(_capture, later, "decode", {}, step, states, results)]


def _capture(
    entry: nn.Module,
    role: Role,
    sizes: Mapping[str, int],
    inputs: Mapping[str, TensorSpec],
    states: Mapping[str, TensorSpec] | None,
    outputs: tuple[str, ...],
    shorten: bool,
) -> Captured:
    # A result of each layer: all of them must be there.
    shorten = shorten and len(outputs) == 1
    return capture(
        entry,
        name="_".join([role, *map(str, sizes.values())]),
        role=role,
        sizes=sizes,
        inputs=inputs,
        states=states,
        outputs=outputs,
        shorten=shorten,
    )


class Seq2SeqKind(EncoderDecoderKind[NeuronSeq2SeqConfig]):
    """Models that read a text and write one; `speech.py` has audio models."""

    name = "seq2seq"
    config_class = NeuronSeq2SeqConfig

    def unserved(self, source: ModelSource, task: str) -> str:
        config = source.config
        # A configuration that joins two others has no vocabulary itself.
        is_whole = config.is_encoder_decoder and hasattr(config, "vocab_size")
        is_served = config.model_type in architectures_of(task) and is_whole
        return "" if is_served else "transformers has no encoder-decoder of this architecture for it"

    def resolve(
        self, source: ModelSource, config: NeuronSeq2SeqConfig, *, trust_remote_code: bool
    ) -> NeuronSeq2SeqConfig:
        return config.resolve(num_positions=facts_of(source.config).max_position_embeddings)


KIND = Seq2SeqKind()
