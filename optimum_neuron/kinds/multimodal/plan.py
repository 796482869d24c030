"""How a model whose prompts have images or audio becomes the captures of one program."""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from ...base.core import TensorSpec
from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig, PreTrainedModel
from ...compiler import Captured, Graph, Program, Recapture, Role, capture
from ...engine import Modality, RoleSignature, Signature
from ...models import (
    GENERIC,
    Family,
    LayerState,
    cast_weights,
    choose_family,
    family_decoder,
    generic_decoder,
    persistent_buffers,
    require_family,
)
from ...models.generic import GenericDecoder, build, weight_map
from ...options.configuration import NeuronConfig
from ...sources import TASKS, ModelSource, architectures_of
from ..base import MODEL, Plan, other_graphs, shard_facts
from ..decoder import (
    GeneratingKind,
    adaptable,
    choice_facts,
    decoder_captures,
    decoder_signature,
    expert_unit,
    graph_names,
    quantized,
    sampled_outputs,
)
from ..scenario import Recorder, Scenario
from .architecture import FeatureArchitecture
from .entry import EncoderEntry, PromptEntry
from .scenarios import FeatureScenarios
from .signature import feature_inputs

FeatureConfig = TypeVar("FeatureConfig", bound=NeuronConfig)


class FeatureKind(GeneratingKind[FeatureConfig]):
    """Models whose prompts have images or audio, and which generate text with their cache on the device."""

    modality: ClassVar[Modality]
    """Input beside text."""
    role: ClassVar[Role]
    """Role of the encoder graphs."""
    field: ClassVar[str]
    """Name of such models."""
    scenarios_class: ClassVar[type[FeatureScenarios]]
    """Uses that validation compares."""

    def unserved(self, source: ModelSource, task: str) -> str:
        is_served = source.config.model_type in architectures_of(task)
        return "" if is_served else f"transformers has no {self.field} model of this architecture"

    def require_task(self, source: ModelSource, task: str) -> None:
        super().require_task(source, task)
        self.architecture(source.config)  # before its sizes are read, which others do not have

    @abstractmethod
    def architecture(self, model_config: PreTrainedConfig) -> Any:
        """Return what is known of the architecture."""

    @abstractmethod
    def num_features(self, model_config: PreTrainedConfig, config: FeatureConfig) -> int:
        """Return the tokens that stand for the largest image or audio."""

    @abstractmethod
    def encoder_inputs(
        self, model_config: PreTrainedConfig, config: FeatureConfig
    ) -> Iterable[tuple[dict[str, int], dict[str, TensorSpec]]]:
        """Return the sizes that distinguish each encoder graph, and its inputs."""

    @abstractmethod
    def encoder_signature(self, model_config: PreTrainedConfig, dtype: str) -> RoleSignature:
        """Return how the encoder graphs are called."""

    @abstractmethod
    def encoder_problems(self, encoders: list[Graph], config: FeatureConfig) -> list[str]:
        """Return how the encoder graphs differ from a configuration."""

    def plan(self, source: ModelSource, config: FeatureConfig, *, trust_remote_code: bool) -> Plan:
        row = self.architecture(source.config)
        encoder = _build_encoder(row, source.config, config)
        decoder = quantized(adaptable(_build_decoder(row, source.config, config), config), config)
        names = [name for name, _ in encoder.named_parameters()] + [name for name, _ in persistent_buffers(encoder)]
        signature = self.feature_signature(
            source.config,
            config.torch_dtype,
            decoder.states,
            takes_adapters=config.max_loras is not None,
            step_outputs=sampled_outputs(config),
        )
        return Plan(
            choice=decoder.choice,
            captures=[
                *self._encoder_captures(encoder, source.config, config),
                *decoder_captures(
                    decoder,
                    config,
                    prompt_class=functools.partial(PromptEntry, architecture=row),
                    prompt_inputs=functools.partial(self._prompt_inputs, source.config, config),
                ),
            ],
            weight_sources={
                f"{MODEL}.{name}": sources for name, sources in (weight_map(names) | decoder.weight_sources).items()
            },
            facts={
                f"{self.modality}_tokens": self.num_features(source.config, config),
                "signature": signature.to_dict(),
            }
            | choice_facts(decoder)
            | shard_facts(decoder.shards),
            num_stages=config.pipeline_parallel_size,
            # The encoder is wrapped once more, and so is a generic decoder.
            prefixes=(f"{MODEL}.{MODEL}", MODEL),
        )

    def scenarios(
        self, recorder: Recorder, reference: PreTrainedModel, metadata: Mapping[str, Any], config: FeatureConfig
    ) -> Iterable[Scenario]:
        return self.scenarios_class(
            recorder,
            self.signature(recorder.program, metadata, reference.config),
            reference,
            architecture=self.architecture(reference.config),
            num_features=metadata[f"{self.modality}_tokens"],
            most=getattr(config, f"max_num_{self.modality}s"),
        )

    def problems(self, program: Program, metadata: Mapping[str, Any], config: FeatureConfig) -> list[str]:
        if f"{self.modality}_tokens" not in metadata:
            return [f"its metadata has no {self.modality}_tokens"]
        encoders = self.encoders(program)
        names = {graph.name for graph in encoders}
        if problems := other_graphs(program, {*names, *graph_names(config)}):
            return problems
        decoder = {name: graph for name, graph in program.graphs.items() if name not in names}
        problems = super().problems(dataclasses.replace(program, graphs=decoder), metadata, config)
        return [*problems, *self.encoder_problems(encoders, config)]

    def encoders(self, program: Program) -> list[Graph]:
        """Return the encoder graphs of a program, by their size."""
        return [program.graphs[name] for name in program.by_size(self.role).values()]

    def feature_signature(
        self, model_config: PreTrainedConfig, dtype: str, states: Iterable[LayerState], **options: Any
    ) -> Signature:
        """Return the signature of a decoder with an encoder; options are those of `decoder_signature`."""
        row = self.architecture(model_config)
        inputs = feature_inputs(self.modality, has_blocks=row.blocks is not None, has_axes=row.positions is not None)
        signature = decoder_signature(model_config, states, inputs, **options)
        encode: dict[Role, RoleSignature] = {self.role: self.encoder_signature(model_config, dtype)}
        return dataclasses.replace(signature, roles=encode | signature.roles)

    def _prompt_inputs(
        self, model_config: PreTrainedConfig, config: FeatureConfig, num_tokens: int
    ) -> dict[str, TensorSpec]:
        """What a prompt of so many tokens takes for its features; it cannot have more of them than tokens."""
        row = self.architecture(model_config)
        most = getattr(config, f"max_num_{self.modality}s") * self.num_features(model_config, config)
        width = model_config.get_text_config(decoder=True).hidden_size * (1 + row.num_added(model_config))
        tokens = TensorSpec(shape=(config.batch_size, num_tokens), dtype="int64")
        features = TensorSpec(shape=(config.batch_size, min(num_tokens, most), width), dtype="float32")
        inputs = {f"{self.modality}_index": tokens, f"{self.modality}_features": features}
        if row.blocks is not None:
            inputs["block_ids"] = tokens
        if row.positions is not None:
            inputs["axis_positions"] = TensorSpec(shape=(config.batch_size, num_tokens, 3), dtype="int64")
            inputs["position_offset"] = TensorSpec(shape=(config.batch_size, 1), dtype="int64")
        return inputs

    def _encoder_captures(
        self, encoder: GenericDecoder, model_config: PreTrainedConfig, config: FeatureConfig
    ) -> list[Recapture]:
        row, captures = self.architecture(model_config), list[Recapture]()
        for sizes, inputs in self.encoder_inputs(model_config, config):
            options = {
                "name": "_".join([self.role, *map(str, sizes.values())]),
                "role": self.role,
                "sizes": sizes,
                "inputs": inputs,
                "outputs": (f"{self.modality}_features",),
            }
            entry = EncoderEntry(encoder, row.features)
            captures.append(functools.partial(_capture, entry, options, row.is_uniform(model_config)))
        return captures


def _capture(entry: nn.Module, options: Mapping[str, Any], is_uniform: bool, shorten: bool) -> Captured:
    return capture(entry, shorten=shorten and is_uniform, **options)


def _build_encoder(row: FeatureArchitecture, model_config: PreTrainedConfig, config: NeuronConfig) -> GenericDecoder:
    """The model without weights, with its encoder only; wrapped as where it is the decoder too."""
    wrapper = build(model_config, auto_class=TASKS[config.task].auto_class)
    _remove(wrapper.model, (row.text, row.head))
    row.prepare(wrapper.model)
    cast_weights(wrapper, getattr(torch, config.torch_dtype))
    return wrapper


def _build_decoder(row: FeatureArchitecture, model_config: PreTrainedConfig, config: NeuronConfig) -> Family:
    """The decoder of a family where one covers it, else the model's own code without its encoder."""
    text = copy.deepcopy(model_config.get_text_config(decoder=True))
    # Whether the head is the embedding is said of the whole model: its head is beside the decoder.
    text.tie_word_embeddings = bool(facts_of(model_config).tie_word_embeddings)
    if row.blocks is not None:
        # The text models alone would see every token in both directions; here prompts name their blocks.
        text.use_bidirectional_attention = False
    axes = () if row.axes is None else row.axes(text)
    # The text model of some is that of another type, but for the axes of its positions.
    text.model_type = row.text_type or text.model_type
    choice = choose_family(text, family=config.family)
    kernel = config.attention_kernel
    require_family(choice, sequence_parallel=config.sequence_parallel, attention_kernel=kernel)
    sizes: dict[str, Any] = {
        "dtype": config.torch_dtype,
        "group_size": config.tensor_parallel_size,
        "num_tokens": config.sequence_length,
        "kv_cache_dtype": config.kv_cache_dtype,
    }
    if choice.value == GENERIC:
        module = build(model_config, auto_class=TASKS[config.task].auto_class)
        _remove(module.model, row.encoder, stand_in=_Absent())
        module.axes = axes
        return generic_decoder(choice, module, **sizes)
    options: dict[str, Any] = {"sequence_parallel": config.sequence_parallel, "attention_kernel": kernel}
    family = family_decoder(choice, text, **sizes, **options, expert_unit=expert_unit(config))
    if axes:
        family.module.axes = axes
        family = dataclasses.replace(family, states=family.module.states)
    renamed = {
        name: tuple(_checkpoint_name(row, source) for source in sources)
        for name, sources in family.weight_sources.items()
    }
    return dataclasses.replace(family, weight_sources=renamed)


def _checkpoint_name(row: FeatureArchitecture, source: str) -> str:
    """The name of a text model's tensor in this model: its base model, under any name, is the text module."""
    return re.sub(r"^lm_head\.", f"{row.head}.", re.sub(r"^(model|transformer|gpt_neox)\.", f"{row.text}.", source))


class _Absent(nn.Module):
    """In place of an encoder that a decoder does not run; Qwen2-Audio reads its device."""

    device = torch.device("cpu")


def _remove(model: nn.Module, paths: tuple[str, ...], *, stand_in: nn.Module | None = None) -> None:
    for path in paths:
        owner, _, name = path.rpartition(".")
        delattr(model.get_submodule(owner), name)
        if stand_in is not None:
            setattr(model.get_submodule(owner), name, stand_in)
