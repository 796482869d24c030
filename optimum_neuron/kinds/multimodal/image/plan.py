"""How a model of images and text becomes the captures of one program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....base.core import TensorSpec
from ....base.transformers_types import PreTrainedConfig
from ....compiler import Graph, Program
from ....engine import RoleSignature, Signature
from ....options.peer_attributes import follows_upstream
from ....sources import ModelSource
from ...decoder import KEYS_AND_VALUES, num_positions, require_cores, require_topk
from ..plan import FeatureKind
from ..signature import patches_signature, vision_signature
from .architectures import Architecture, all_sizes, check_image_size, default_images, find_architecture
from .configuration import NeuronImageTextConfig
from .scenarios import ImageTextScenarios

ENCODE = "encode_image"
"""Name of the graph that turns pixels into features."""

UPSTREAM_IMAGES = 5
"""Images of a prompt in Optimum Neuron, by default, where an image is one tile; fewer where a sequence holds fewer."""


class ImageTextKind(FeatureKind[NeuronImageTextConfig]):
    """Models that read images and text, and generate text with their cache on the device."""

    name = "image_text"
    config_class = NeuronImageTextConfig
    modality = "image"
    role = "encode_image"
    field = "vision-language"
    scenarios_class = ImageTextScenarios
    estimate_note = "the text model alone: the vision modules are not counted"

    def architecture(self, model_config: PreTrainedConfig) -> Architecture:
        return find_architecture(model_config)

    def num_features(self, model_config: PreTrainedConfig, config: NeuronImageTextConfig) -> int:
        return find_architecture(model_config).image_tokens(model_config, all_sizes(config.image_size)[-1])

    def resolve(
        self, source: ModelSource, config: NeuronImageTextConfig, *, trust_remote_code: bool
    ) -> NeuronImageTextConfig:
        require_cores(source.config, config)
        require_topk(source.config, config)
        row = find_architecture(source.config)
        usual_size, num_images = default_images(row, source.config, source.folder)
        if num_images == 1 and follows_upstream():
            num_images = UPSTREAM_IMAGES
        image_size = config.image_size or usual_size
        check_image_size(row, source.config, image_size)
        return config.resolve(
            max_position_embeddings=num_positions(source.config, config.sequence_length),
            max_num_images=num_images,
            image_size=image_size,
            image_tokens=row.image_tokens(source.config, all_sizes(image_size)[-1]),
        )

    def encoder_inputs(
        self, model_config: PreTrainedConfig, config: NeuronImageTextConfig
    ) -> Iterator[tuple[dict[str, int], dict[str, TensorSpec]]]:
        row, settings = find_architecture(model_config), model_config.vision_config
        num_images, image_sizes = config.image_batch_size, all_sizes(config.image_size)
        for size in image_sizes:
            sizes, inputs = dict[str, int](), dict[str, TensorSpec]()
            if row.layout == "patches":
                width = settings.in_channels * settings.temporal_patch_size * settings.patch_size**2
                num_patches = (size // settings.patch_size) ** 2
                shape: tuple[int, ...] = (num_images, num_patches, width)
                inputs["image_grid_thw"] = TensorSpec(shape=(num_images, 3), dtype="int64")
                sizes = {"num_patches": num_patches} if len(image_sizes) > 1 else {}
            else:
                shape = (num_images, settings.num_channels, size, size)
            if "pixel_attention_mask" in row.inputs:
                inputs["pixel_attention_mask"] = TensorSpec(shape=(num_images, size, size), dtype="int64")
            yield sizes, {"pixel_values": TensorSpec(shape=shape, dtype=config.torch_dtype), **inputs}

    def encoder_signature(self, model_config: PreTrainedConfig, dtype: str) -> RoleSignature:
        row = find_architecture(model_config)
        if row.layout == "patches":
            return patches_signature(dtype, model_config.vision_config.spatial_merge_size**2)
        return vision_signature("pixel_attention_mask" in row.inputs, dtype)

    def rebuilt_signature(
        self, program: Program, metadata: Mapping[str, Any], model_config: PreTrainedConfig
    ) -> Signature:
        dtype = self.encoders(program)[0].inputs["pixel_values"].dtype
        return self.feature_signature(model_config, dtype, KEYS_AND_VALUES)

    def encoder_problems(self, encoders: list[Graph], config: NeuronImageTextConfig) -> list[str]:
        sizes, problems = all_sizes(config.image_size), []
        if len(encoders) != len(sizes):
            return [f"it has {len(encoders)} vision encoders for {len(sizes)} image sizes"]
        for graph, size in zip(encoders, sizes, strict=True):
            pixels = graph.inputs["pixel_values"].shape
            sides = () if "image_grid_thw" in graph.inputs else pixels[2:]
            if pixels[0] != config.image_batch_size or any(side != size for side in sides):
                expected = f"{config.image_batch_size} images of {size} x {size}"
                problems.append(f"its vision encoder takes pixel_values of {list(pixels)}, not {expected}")
        return problems


KIND = ImageTextKind()
