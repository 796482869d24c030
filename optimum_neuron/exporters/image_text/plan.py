"""How a model of images and text becomes the captures of one program."""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ...compiler import Captured, Program, Recapture, Role, capture
from ...core import TensorSpec
from ...engine import RoleSignature, Signature
from ...models import (
    GENERIC,
    Family,
    LayerState,
    cast_weights,
    choose_family,
    family_decoder,
    generic_decoder,
    persistent_buffers,
)
from ...models.generic import GenericDecoder, build, weight_map
from ..decoder import DecoderKind, choice_facts, decoder_captures, graph_names, num_positions, require_cores
from ..kinds import MODEL, Plan, other_graphs, shard_facts
from ..signatures import KEYS_AND_VALUES, decoder_signature, image_inputs, vision_signature
from ..source import ModelSource
from ..tasks import TASKS, architectures_of
from ..validation import ImageTextScenarios, Recorder, Scenario
from .architectures import Architecture, check_image_size, default_images, find_architecture
from .configuration import ResolvedImageTextConfig
from .entry import ENCODE, ImageEntry, PromptEntry


class ImageTextKind(DecoderKind):
    """Models that read images and text, and generate text with their cache on the device."""

    name = "image_text"
    estimate_note = "the text model alone: the vision modules are not counted"

    def unserved(self, source: ModelSource, task: str) -> str:
        is_served = source.config.model_type in architectures_of(task)
        return "" if is_served else "transformers has no vision-language model of this architecture"

    def converts(self, family: str) -> bool:
        return True  # transformers renames the tensors of older checkpoints

    def resolve(self, source: ModelSource, config: Any, *, trust_remote_code: bool) -> ResolvedImageTextConfig:
        require_cores(source.config, config.tensor_parallel_size)
        row = find_architecture(source.config)
        image_size, num_images = default_images(row, source.config, source.folder)
        image_size = config.image_size or image_size
        check_image_size(row, source.config, image_size)
        return config.resolve(
            max_position_embeddings=num_positions(source.config, config.sequence_length),
            max_num_images=num_images,
            image_size=image_size,
            image_tokens=row.image_tokens(source.config, image_size),
        )

    def plan(self, source: ModelSource, config: Any, *, trust_remote_code: bool) -> Plan:
        row = find_architecture(source.config)
        vision, decoder = _build_vision(row, source.config, config), _build_decoder(row, source.config, config)
        image_tokens = row.image_tokens(source.config, config.image_size)
        width = source.config.get_text_config(decoder=True).hidden_size
        names = [name for name, _ in vision.named_parameters()] + [name for name, _ in persistent_buffers(vision)]
        return Plan(
            choice=decoder.choice,
            captures=[
                _encode(row, vision, source.config, config),
                *decoder_captures(
                    decoder,
                    config,
                    prompt_class=PromptEntry,
                    prompt_inputs=functools.partial(_prompt_inputs, config, image_tokens, width),
                ),
            ],
            weight_sources={
                f"{MODEL}.{name}": sources for name, sources in (weight_map(names) | decoder.weight_sources).items()
            },
            facts={
                "image_tokens": image_tokens,
                "signature": _signature(row, source.config, config.torch_dtype, decoder.states).to_dict(),
            }
            | choice_facts(decoder)
            | shard_facts(decoder.shards),
            # The vision modules are wrapped once more, and so is a generic decoder.
            prefixes=(f"{MODEL}.{MODEL}", MODEL),
        )

    def rebuilt_signature(self, program: Program, metadata: Mapping[str, Any], model_config: Any) -> Signature:
        dtype = program.graphs[ENCODE].inputs["pixel_values"].dtype
        return _signature(find_architecture(model_config), model_config, dtype, KEYS_AND_VALUES)

    def scenarios(
        self, recorder: Recorder, reference: Any, metadata: Mapping[str, Any], config: Any
    ) -> Iterable[Scenario]:
        return ImageTextScenarios(
            recorder,
            self.signature(recorder.program, metadata, reference.config),
            reference,
            is_nested=find_architecture(reference.config).is_nested,
            image_tokens=metadata["image_tokens"],
            max_num_images=config.max_num_images,
        )

    def problems(self, program: Program, metadata: Mapping[str, Any], config: Any) -> list[str]:
        if "image_tokens" not in metadata:
            return ["its metadata has no image_tokens"]
        if problems := other_graphs(program, {ENCODE, *graph_names(config)}):
            return problems
        decoder = {name: graph for name, graph in program.graphs.items() if name != ENCODE}
        pixels = program.graphs[ENCODE].inputs["pixel_values"].shape
        problems = super().problems(dataclasses.replace(program, graphs=decoder), metadata, config)
        size = config.image_size
        if (pixels[0], *pixels[2:]) != (config.image_batch_size, size, size):
            wanted_pixels = f"{config.image_batch_size} images of {size} x {size}"
            problems.append(f"its vision encoder takes pixel_values of {list(pixels)}, not {wanted_pixels}")
        return problems


def _signature(row: Architecture, model_config: Any, dtype: str, states: Iterable[LayerState]) -> Signature:
    signature = decoder_signature(model_config, states, image_inputs())
    vision: dict[Role, RoleSignature] = {"encode_image": vision_signature(row.is_nested, dtype)}
    return dataclasses.replace(signature, roles=vision | signature.roles)


def _build_vision(row: Architecture, model_config: Any, config: ResolvedImageTextConfig) -> GenericDecoder:
    """The model without weights, with its vision modules only; wrapped as where it is the decoder too."""
    wrapper = build(model_config, auto_class=TASKS[config.task].auto_class)
    _remove(wrapper.model, (row.text, "lm_head"))
    row.prepare(wrapper.model)
    cast_weights(wrapper, getattr(torch, config.torch_dtype))
    return wrapper


def _build_decoder(row: Architecture, model_config: Any, config: ResolvedImageTextConfig) -> Family:
    """The decoder of a family where one covers it, else the model's own code without its vision modules."""
    text = copy.deepcopy(model_config.get_text_config(decoder=True))
    # Whether the head is the embedding is said of the whole model: its head is beside the decoder.
    text.tie_word_embeddings = model_config.tie_word_embeddings
    choice = choose_family(text, family=config.family)
    sizes: dict[str, Any] = {
        "dtype": config.torch_dtype,
        "group_size": config.tensor_parallel_size,
        "num_tokens": config.sequence_length,
    }
    if choice.value == GENERIC:
        module = build(model_config, auto_class=TASKS[config.task].auto_class)
        _remove(module.model, row.vision)
        return generic_decoder(choice, module, **sizes)
    family = family_decoder(choice, text, **sizes)
    # The "model" of a causal language model, under any name, is the text module of this one.
    renamed = {
        name: tuple(re.sub(r"^(model|transformer|gpt_neox)\.", f"{row.text}.", source) for source in sources)
        for name, sources in family.weight_sources.items()
    }
    return dataclasses.replace(family, weight_sources=renamed)


def _remove(model: nn.Module, paths: tuple[str, ...]) -> None:
    for path in paths:
        owner, _, name = path.rpartition(".")
        delattr(model.get_submodule(owner), name)


def _prompt_inputs(
    config: ResolvedImageTextConfig, image_tokens: int, width: int, num_tokens: int
) -> dict[str, TensorSpec]:
    """What a prompt of so many tokens takes for its images; it cannot have more of their tokens than tokens."""
    num_features = min(num_tokens, config.max_num_images * image_tokens)
    return {
        "image_index": TensorSpec(shape=(config.batch_size, num_tokens), dtype="int64"),
        "image_features": TensorSpec(shape=(config.batch_size, num_features, width), dtype="float32"),
    }


def _encode(row: Architecture, vision: GenericDecoder, model_config: Any, config: ResolvedImageTextConfig) -> Recapture:
    size, num_images = config.image_size, config.image_batch_size
    shape = (num_images, model_config.vision_config.num_channels, size, size)
    inputs = {"pixel_values": TensorSpec(shape=shape, dtype=config.torch_dtype)}
    if row.is_nested:
        inputs["pixel_attention_mask"] = TensorSpec(shape=(num_images, size, size), dtype="int64")
    return functools.partial(_capture, ImageEntry(vision, row.features), inputs, row.is_uniform(model_config))


def _capture(entry: nn.Module, inputs: Mapping[str, TensorSpec], is_uniform: bool, shorten: bool) -> Captured:
    outputs, shorten = ("image_features",), shorten and is_uniform
    return capture(entry, name=ENCODE, role="encode_image", inputs=inputs, outputs=outputs, shorten=shorten)


KIND = ImageTextKind()
