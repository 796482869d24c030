"""`NeuronModelForImageTextToText`: a compiled vision encoder and decoder behind transformers' generation interface.

Images are encoded once for each prompt; `generate` hands their features to the rows that continue it. Inputs that a
compiled graph does not support are refused in `checks_image_text.py`.

Shape legend: R rows, T columns, N images, F features of a row, D hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..base.core import Choice
from ..engine import position_offset, smallest_bucket
from ..errors import ConfigError
from ..exporters import Prepared
from ..kinds.multimodal.image.architectures import find_architecture
from ..upstream.cache_argument import CACHE, takes_cache
from .cache import NeuronCache
from .checks import refuse_outputs
from .checks_features import encoded_features
from .checks_image_text import (
    check_grids,
    check_known,
    check_patches,
    check_pixel_mask,
    check_pixels,
    check_types,
    listed_images,
    split_positions,
)
from .features import FeatureDecoderModel
from .registration import register

if TYPE_CHECKING:
    from ..kinds.multimodal.image import NeuronImageTextConfig


@register
class NeuronModelForImageTextToText(FeatureDecoderModel):
    """A model of images and text compiled for a simulated NeuronCore, such as SmolVLM and LLaVA.

    Example:
        ```python no-run
        from PIL import Image
        from transformers import AutoProcessor
        from optimum_neuron import NeuronModelForImageTextToText

        model = NeuronModelForImageTextToText.from_pretrained(
            "HuggingFaceTB/SmolVLM-256M-Instruct", export=True, sequence_length=2048
        )
        processor = AutoProcessor.from_pretrained(model.source_folder)
        inputs = processor(text="<image>What is this?", images=[Image.open("cat.png")], return_tensors="pt")
        print(processor.decode(model.generate(**inputs, max_new_tokens=32)[0]))
        ```
    """

    neuron_config: NeuronImageTextConfig

    task = "image-text-to-text"
    input_modalities = ("image", "text")
    modality = "image"

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._architecture = find_architecture(self.config)

    @takes_cache
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_attention_mask: torch.Tensor | None = None,
        image_grid_thw: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        mm_token_type_ids: torch.Tensor | None = None,
        mm_encoder_outputs: dict[str, Any] | None = None,
        position_ids: torch.Tensor | None = None,
        cache: NeuronCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        adapter_names: Sequence[str] | None = None,
    ) -> Any:
        """Run the compiled program; arguments and result are transformers'.

        Args:
            input_ids: token ids [rows, new columns]; any number of rows, each with any number of images.
            attention_mask: 1 for real tokens, [rows, all columns]; padding may be on either side.
            pixel_values: images as the model's processor makes them, of the compiled size; also [rows, images,
                channels, height, width], where images of zeros only fill up rows.
            pixel_attention_mask: 1 for real pixels, where the architecture has it.
            image_grid_thw: rows and columns of each image's patches, where `pixel_values` are patches (Qwen).
            token_type_ids: types of tokens, where the architecture has them: images of Gemma 3 and prompts of PaliGemma
                see each other in both directions by them.
            mm_token_type_ids: 1 for image tokens, where they have positions on three axes (Qwen).
            mm_encoder_outputs: Result of `get_image_features`, under "image", in place of `pixel_values`.
            position_ids: only the running count of `attention_mask` is possible, which is the default; before positions
                on three axes, or alone [rows, columns].
            cache: the cache that an earlier call returned; images come with the first call.
            labels: token ids to compute the loss of, -100 to skip.
            use_cache: return the cache; the default is the configuration's.
            logits_to_keep: return logits of so many last columns only, or of the columns that a tensor names; 0 means
                all.
            output_attentions: not possible: the compiled graph does not return them.
            output_hidden_states: not possible either.
            return_dict: False returns a tuple.
            adapter_names: LoRA adapter of each row, "__base__" for the base model; None: the active one.

        Raises:
            ShapeError: the sequence is longer than compiled, images are of another size or more than compiled, the
                tokens of images in the text are not those of the images, or a token is not in the vocabulary.
            ConfigError: an output is requested that the graph does not return.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        check_known(
            self.config.model_type,
            self._architecture.inputs,
            image_grid_thw=image_grid_thw,
            token_type_ids=token_type_ids,
            mm_token_type_ids=mm_token_type_ids,
        )
        if self._architecture.layout == "images":
            pixel_values = listed_images(pixel_values)
        mask, cache = self._checked_mask(input_ids, attention_mask, cache)
        details = {"pixel_attention_mask": pixel_attention_mask, "image_grid_thw": image_grid_thw}
        features = encoded_features(mm_encoder_outputs, pixel_values, details, num_past=cache.columns)
        if pixel_values is not None:
            features = self.get_image_features(pixel_values, pixel_attention_mask, image_grid_thw).pooler_output
        has_axes = self._architecture.positions is not None and not cache.columns
        position_ids, axes = split_positions(position_ids, has_axes=has_axes)
        placed = None
        if not cache.columns:
            placed = self._prompt_features(input_ids, mask, features, by_row=self._architecture.layout == "rows")
            blocks = self._blocks(input_ids, token_type_ids)
            if axes is None and features and has_axes:
                axes = self._axes(input_ids, mask, mm_token_type_ids, image_grid_thw)
            offset = None if axes is None else position_offset(axes, mask)
            placed = dataclasses.replace(placed, blocks_RT=blocks, positions_RTA=axes, offset_R1=offset)
        result = self._logits_and_loss(
            input_ids, mask, position_ids, cache, labels, logits_to_keep, placed, adapter_names
        )
        return self._output(result, cache, use_cache, return_dict, **self._feature_results(features))

    def get_image_features(
        self,
        pixel_values: torch.Tensor,
        pixel_attention_mask: torch.Tensor | None = None,
        image_grid_thw: torch.Tensor | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutputWithPooling:
        """Encode images.

        Args:
            pixel_values: [images, channels, height, width], or [patches, width], as the architecture has them; also
                [rows, images, channels, height, width], where images of zeros only fill up rows.
            pixel_attention_mask: 1 for real pixels, where the architecture has it.
            image_grid_thw: rows and columns of each image's patches, where the architecture has them.
            return_dict: accepted as transformers passes it; the result is always of a class.

        Returns:
            `pooler_output`: features of each row, or of each image, in the order of `pixel_values`. Features for the
            decoder's first layers (Qwen3-VL) are behind the others.
        """
        if self._architecture.layout == "patches":
            return BaseModelOutputWithPooling(pooler_output=self._patch_features(pixel_values, image_grid_thw))
        is_nested = self._architecture.layout == "rows"
        listed = pixel_values if is_nested else listed_images(pixel_values)
        if listed is None:
            return BaseModelOutputWithPooling(pooler_output=[])
        pixel_values = listed
        check_pixels(pixel_values, self.loaded.program, is_nested=is_nested)
        check_pixel_mask(pixel_attention_mask, pixel_values, self.config.model_type, is_nested=is_nested)
        if not is_nested:
            return BaseModelOutputWithPooling(pooler_output=list(self._features(pixel_values)))
        is_real_RN = (pixel_values != 0).flatten(2).any(-1)
        if pixel_attention_mask is None:
            pixel_attention_mask = torch.ones_like(pixel_values[:, :, 0], dtype=torch.long)
        counts = is_real_RN.sum(1).tolist()
        width = self._text_config.hidden_size
        features = torch.zeros(0, self._num_tokens, width)
        if any(counts):
            features = self._features(pixel_values[is_real_RN], pixel_attention_mask[is_real_RN])
        return BaseModelOutputWithPooling(pooler_output=[part.flatten(0, 1) for part in features.split(counts)])

    def _features(self, pixel_values: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Features [N, L, D] of any number of images."""
        masks = {} if mask is None else {"pixel_attention_mask": mask}
        return self._encode({"pixel_values": pixel_values, **masks})["image_features"]

    def _patch_features(self, pixel_values: torch.Tensor, grids: torch.Tensor | None) -> list[torch.Tensor]:
        """Features [L, D] of images of any shapes."""
        merge = self.config.vision_config.spatial_merge_size
        buckets, width = self._encode.buckets["num_patches"], self._encode.buckets["patch_width"][0]
        lengths = check_patches(pixel_values, grids, num_patches=buckets[-1], width=width, merge=merge)
        assert grids is not None, "they were checked"
        images, features = pixel_values.split(lengths), dict[int, torch.Tensor]()
        for bucket in buckets:
            chosen = [i for i, length in enumerate(lengths) if smallest_bucket(length, buckets) == bucket]
            if chosen:
                patches = torch.nn.utils.rnn.pad_sequence([images[i] for i in chosen], batch_first=True)
                parts = self._encode({"pixel_values": patches, "image_grid_thw": grids[chosen]})["image_features"]
                features |= {i: part[: lengths[i] // merge**2] for i, part in zip(chosen, parts, strict=True)}
        return [features[i] for i in range(len(lengths))]

    def choose_image_size(self, num_patches: int) -> Choice[int]:
        """Return the number of patches that an image is padded to, and the reason, where images are patches.

        Raises:
            ShapeError: the image has more patches than compiled.
            ConfigError: images have one size.
        """
        if self._architecture.layout != "patches":
            message = f"Images of a {self.config.model_type} model have one size, image_size={self.image_size}."
            raise ConfigError(message, hint="Let the processor resize them.", model_type=self.config.model_type)
        return self._encode.choose_bucket("num_patches", num_patches)

    def _axes(
        self,
        input_ids: torch.Tensor,
        mask: torch.Tensor,
        types: torch.Tensor | None,
        grids: torch.Tensor | None,
    ) -> torch.Tensor:
        """Positions [R, T, A] of tokens in time, height, and width."""
        assert self._architecture.positions is not None
        merge = self.config.vision_config.spatial_merge_size
        grids, types = check_grids(grids, types, mask, merge=merge, shape=input_ids.shape)
        return self._architecture.positions(types, mask, grids, self.config)

    def _prepare_position_ids_for_generation(
        self, inputs_tensor: torch.Tensor, model_kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Positions of a prompt: the running count, and with images on three axes those behind it, [4, R, T]."""
        counted = super()._prepare_position_ids_for_generation(inputs_tensor, model_kwargs)
        has_images = any(model_kwargs.get(name) is not None for name in ("pixel_values", "mm_encoder_outputs"))
        cache = model_kwargs.get(CACHE)
        if self._architecture.positions is None or not has_images or (cache is not None and cache.get_seq_length()):
            return counted
        ids = model_kwargs.get("input_ids", inputs_tensor)
        mask = model_kwargs.get("attention_mask")
        mask = torch.ones_like(ids) if mask is None else mask
        axes = self._axes(ids, mask, model_kwargs.get("mm_token_type_ids"), model_kwargs.get("image_grid_thw"))
        return torch.cat((counted.expand(len(ids), -1)[None], axes.permute(2, 0, 1)))

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Prepare inputs as for text; without a cache, a prompt with images needs its positions on three axes again."""
        inputs = super().prepare_inputs_for_generation(input_ids, *args, **kwargs)
        positions = kwargs.get("position_ids")
        if positions is not None and positions.ndim == 3 and inputs["input_ids"].shape[1] == positions.shape[-1]:
            inputs["position_ids"] = positions
        return inputs

    def _blocks(self, input_ids: torch.Tensor, types: torch.Tensor | None) -> torch.Tensor | None:
        """Blocks of tokens that see each other; without types, all tokens are of type 0."""
        if self._architecture.blocks is None:
            return None
        types = torch.zeros_like(input_ids) if types is None else types
        check_types(types, input_ids)
        return self._architecture.blocks(types)

    def _update_model_kwargs_for_generation(
        self, outputs: object, model_kwargs: dict[str, Any], **options: object
    ) -> Any:
        """Update the inputs as transformers does; the type of generated tokens is the architecture's."""
        types = model_kwargs.get("token_type_ids")
        model_kwargs = super()._update_model_kwargs_for_generation(outputs, model_kwargs, **options)
        if types is not None and self._architecture.answer_type is not None:
            model_kwargs["token_type_ids"][:, types.shape[1] :] = self._architecture.answer_type
        return model_kwargs

    @property
    def image_size(self) -> int | tuple[int, ...]:
        """Pixels of an image, or of a tile, in height and in width."""
        return self.neuron_config.image_size

    @property
    def max_num_images(self) -> int:
        """Images that a prompt can have; one that is split counts as its tiles."""
        return self.neuron_config.max_num_images
