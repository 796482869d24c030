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

from ...compiler import Captured, Graph, Program, Recapture, Role, capture
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
    require_family,
)
from ...models.generic import GenericDecoder, build, weight_map
from ..decoder import (
    DecoderKind,
    adaptable,
    choice_facts,
    decoder_captures,
    graph_names,
    num_positions,
    quantized,
    require_cores,
)
from ..kinds import MODEL, Plan, other_graphs, shard_facts
from ..on_device import sampled_outputs
from ..signatures import (
    KEYS_AND_VALUES,
    decoder_signature,
    image_inputs,
    patches_signature,
    vision_signature,
)
from ..source import ModelSource
from ..tasks import TASKS, architectures_of
from ..validation import ImageTextScenarios, Recorder, Scenario
from .architectures import Architecture, all_sizes, check_image_size, default_images, find_architecture
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
        require_cores(source.config, config)
        row = find_architecture(source.config)
        image_size, num_images = default_images(row, source.config, source.folder)
        image_size = config.image_size or image_size
        check_image_size(row, source.config, image_size)
        return config.resolve(
            max_position_embeddings=num_positions(source.config, config.sequence_length),
            max_num_images=num_images,
            image_size=image_size,
            image_tokens=row.image_tokens(source.config, all_sizes(image_size)[-1]),
        )

    def plan(self, source: ModelSource, config: Any, *, trust_remote_code: bool) -> Plan:
        row = find_architecture(source.config)
        vision = _build_vision(row, source.config, config)
        decoder = quantized(adaptable(_build_decoder(row, source.config, config), config), config)
        image_tokens = row.image_tokens(source.config, all_sizes(config.image_size)[-1])
        width = source.config.get_text_config(decoder=True).hidden_size * (1 + row.num_added(source.config))
        names = [name for name, _ in vision.named_parameters()] + [name for name, _ in persistent_buffers(vision)]
        return Plan(
            choice=decoder.choice,
            captures=[
                *[_encode(row, vision, source.config, config, size) for size in all_sizes(config.image_size)],
                *decoder_captures(
                    decoder,
                    config,
                    prompt_class=functools.partial(PromptEntry, architecture=row),
                    prompt_inputs=functools.partial(_prompt_inputs, row, config, image_tokens, width),
                ),
            ],
            weight_sources={
                f"{MODEL}.{name}": sources for name, sources in (weight_map(names) | decoder.weight_sources).items()
            },
            facts={
                "image_tokens": image_tokens,
                "signature": _signature(
                    row,
                    source.config,
                    config.torch_dtype,
                    decoder.states,
                    takes_adapters=config.max_loras is not None,
                    step_outputs=sampled_outputs(config),
                ).to_dict(),
            }
            | choice_facts(decoder)
            | shard_facts(decoder.shards),
            num_stages=config.pipeline_parallel_size,
            # The vision modules are wrapped once more, and so is a generic decoder.
            prefixes=(f"{MODEL}.{MODEL}", MODEL),
        )

    def rebuilt_signature(self, program: Program, metadata: Mapping[str, Any], model_config: Any) -> Signature:
        dtype = _encoders(program)[0].inputs["pixel_values"].dtype
        return _signature(find_architecture(model_config), model_config, dtype, KEYS_AND_VALUES)

    def scenarios(
        self, recorder: Recorder, reference: Any, metadata: Mapping[str, Any], config: Any
    ) -> Iterable[Scenario]:
        return ImageTextScenarios(
            recorder,
            self.signature(recorder.program, metadata, reference.config),
            reference,
            architecture=find_architecture(reference.config),
            image_tokens=metadata["image_tokens"],
            max_num_images=config.max_num_images,
        )

    def problems(self, program: Program, metadata: Mapping[str, Any], config: Any) -> list[str]:
        if "image_tokens" not in metadata:
            return ["its metadata has no image_tokens"]
        encoders, sizes = _encoders(program), all_sizes(config.image_size)
        names = {graph.name for graph in encoders}
        if len(encoders) != len(sizes):
            return [f"it has {len(encoders)} vision encoders for {len(sizes)} image sizes"]
        if problems := other_graphs(program, {*names, *graph_names(config)}):
            return problems
        decoder = {name: graph for name, graph in program.graphs.items() if name not in names}
        problems = super().problems(dataclasses.replace(program, graphs=decoder), metadata, config)
        for graph, size in zip(encoders, sizes, strict=True):
            pixels = graph.inputs["pixel_values"].shape
            sides = () if "image_grid_thw" in graph.inputs else pixels[2:]
            if pixels[0] != config.image_batch_size or any(side != size for side in sides):
                expected = f"{config.image_batch_size} images of {size} x {size}"
                problems.append(f"its vision encoder takes pixel_values of {list(pixels)}, not {expected}")
        return problems


def _encoders(program: Program) -> list[Graph]:
    """The graphs of images, by their size."""
    return [program.graphs[name] for name in program.by_size("encode_image").values()]


def _signature(
    row: Architecture, model_config: Any, dtype: str, states: Iterable[LayerState], **options: Any
) -> Signature:
    inputs = image_inputs(has_blocks=row.blocks is not None, has_axes=row.positions is not None)
    signature = decoder_signature(model_config, states, inputs, **options)
    encode = vision_signature("pixel_attention_mask" in row.inputs, dtype)
    if row.layout == "patches":
        encode = patches_signature(dtype, model_config.vision_config.spatial_merge_size**2)
    vision: dict[Role, RoleSignature] = {"encode_image": encode}
    return dataclasses.replace(signature, roles=vision | signature.roles)


def _build_vision(row: Architecture, model_config: Any, config: ResolvedImageTextConfig) -> GenericDecoder:
    """The model without weights, with its vision modules only; wrapped as where it is the decoder too."""
    wrapper = build(model_config, auto_class=TASKS[config.task].auto_class)
    _remove(wrapper.model, (row.text, row.head))
    row.prepare(wrapper.model)
    cast_weights(wrapper, getattr(torch, config.torch_dtype))
    return wrapper


def _build_decoder(row: Architecture, model_config: Any, config: ResolvedImageTextConfig) -> Family:
    """The decoder of a family where one covers it, else the model's own code without its vision modules."""
    text = copy.deepcopy(model_config.get_text_config(decoder=True))
    # Whether the head is the embedding is said of the whole model: its head is beside the decoder.
    text.tie_word_embeddings = model_config.tie_word_embeddings
    if row.blocks is not None:
        # The text models alone would see every token in both directions; here prompts name their blocks.
        text.use_bidirectional_attention = False
    axes = () if row.axes is None else row.axes(text)
    # The text model of some is that of another type, but for the axes of its positions.
    text.model_type = row.text_type or text.model_type
    choice = choose_family(text, family=config.family)
    require_family(choice, sequence_parallel=config.sequence_parallel)
    sizes: dict[str, Any] = {
        "dtype": config.torch_dtype,
        "group_size": config.tensor_parallel_size,
        "num_tokens": config.sequence_length,
    }
    if choice.value == GENERIC:
        module = build(model_config, auto_class=TASKS[config.task].auto_class)
        _remove(module.model, row.vision)
        module.axes = axes
        return generic_decoder(choice, module, **sizes)
    family = family_decoder(choice, text, **sizes, sequence_parallel=config.sequence_parallel)
    if axes:
        family.module.axes = axes
        family = dataclasses.replace(family, states=family.module.states)
    renamed = {
        name: tuple(_checkpoint_name(row, source) for source in sources)
        for name, sources in family.weight_sources.items()
    }
    return dataclasses.replace(family, weight_sources=renamed)


def _checkpoint_name(row: Architecture, source: str) -> str:
    """The name of a text model's tensor in this model: its base model, under any name, is the text module."""
    return re.sub(r"^lm_head\.", f"{row.head}.", re.sub(r"^(model|transformer|gpt_neox)\.", f"{row.text}.", source))


def _remove(model: nn.Module, paths: tuple[str, ...]) -> None:
    for path in paths:
        owner, _, name = path.rpartition(".")
        delattr(model.get_submodule(owner), name)


def _prompt_inputs(
    row: Architecture, config: ResolvedImageTextConfig, image_tokens: int, width: int, num_tokens: int
) -> dict[str, TensorSpec]:
    """What a prompt of so many tokens takes for its images; it cannot have more of their tokens than tokens."""
    num_features = min(num_tokens, config.max_num_images * image_tokens)
    tokens = TensorSpec(shape=(config.batch_size, num_tokens), dtype="int64")
    features = TensorSpec(shape=(config.batch_size, num_features, width), dtype="float32")
    inputs = {"image_index": tokens, "image_features": features}
    if row.blocks is not None:
        inputs["block_ids"] = tokens
    if row.positions is not None:
        inputs["axis_positions"] = TensorSpec(shape=(config.batch_size, num_tokens, 3), dtype="int64")
        inputs["position_offset"] = TensorSpec(shape=(config.batch_size, 1), dtype="int64")
    return inputs


def _encode(
    row: Architecture, vision: GenericDecoder, model_config: Any, config: ResolvedImageTextConfig, size: int
) -> Recapture:
    num_images, settings = config.image_batch_size, model_config.vision_config
    inputs: dict[str, TensorSpec] = {}
    num_patches = None
    if row.layout == "patches":
        width = settings.in_channels * settings.temporal_patch_size * settings.patch_size**2
        num_patches = (size // settings.patch_size) ** 2
        shape: tuple[int, ...] = (num_images, num_patches, width)
        inputs["image_grid_thw"] = TensorSpec(shape=(num_images, 3), dtype="int64")
    else:
        shape = (num_images, settings.num_channels, size, size)
    if "pixel_attention_mask" in row.inputs:
        inputs["pixel_attention_mask"] = TensorSpec(shape=(num_images, size, size), dtype="int64")
    inputs = {"pixel_values": TensorSpec(shape=shape, dtype=config.torch_dtype), **inputs}
    has_buckets = num_patches is not None and all_sizes(config.image_size) != (size,)
    options = {
        "name": f"{ENCODE}_{num_patches}" if has_buckets else ENCODE,
        "role": "encode_image",
        "sizes": {"num_patches": num_patches} if has_buckets else {},
        "inputs": inputs,
        "outputs": ("image_features",),
    }
    return functools.partial(_capture, ImageEntry(vision, row.features), options, row.is_uniform(model_config))


def _capture(entry: nn.Module, options: Mapping[str, Any], is_uniform: bool, shorten: bool) -> Captured:
    return capture(entry, shorten=shorten and is_uniform, **options)


KIND = ImageTextKind()
