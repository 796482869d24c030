"""Scenarios of vision-language models: images of each compiled size, and prompts with them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import torch

from ....engine import PromptFeatures, position_offset
from ...decoder import Batch
from ...scenario import SEED, Results, Scenario
from ..scenarios import FeatureScenarios


class ImageTextScenarios(FeatureScenarios):
    """Scenarios of one program."""

    modality = "image"
    role = "encode_image"

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Axes of one image of each compiled size."""
        return [graph.inputs["pixel_values"].shape[1:] for graph in self._encoders]

    def _encoder_scenarios(self) -> Iterator[Scenario]:
        for shape in self._shapes:
            yield Scenario(
                name="images" if len(self._shapes) == 1 else f"images of {shape[0]} patches",
                run=functools.partial(self._features, shape),
                reference=functools.partial(self._expected_features, shape),
            )

    def _features(self, shape: Sequence[int]) -> Results:
        return {"features": self._features_of(shape, self._most)}

    def _features_of(self, shape: Sequence[int], num_images: int) -> torch.Tensor:
        """Features [tokens of all images, D]."""
        pixels = self._pixels(shape, num_images).flatten(0, 1)
        grid = self._grid(shape)
        grids = {} if grid is None else {"image_grid_thw": grid.expand(len(pixels), -1)}
        return self._encode({"pixel_values": pixels} | grids)["image_features"].flatten(0, 1)

    def _expected_features(self, shape: Sequence[int]) -> Results:
        with torch.no_grad():
            outputs = self._reference.get_image_features(**self._inputs(shape, self._most))
        features = self._architecture.expected(self._reference, outputs)
        return {"features": torch.cat([part.reshape(-1, part.shape[-1]) for part in features]).float()}

    def _pixels(self, shape: Sequence[int], num_images: int) -> torch.Tensor:
        """The first images of each row, [rows, images, ...]."""
        generator = torch.Generator().manual_seed(SEED)
        return torch.randn((self._num_rows, self._most, *shape), generator=generator)[:, :num_images]

    def _grid(self, shape: Sequence[int]) -> torch.Tensor | None:
        """Rows and columns of an image's patches."""
        side = math.isqrt(shape[0])
        return torch.tensor([1, side, side]) if self._architecture.layout == "patches" else None

    def _inputs(self, shape: Sequence[int], num_images: int) -> dict[str, torch.Tensor]:
        pixels, grid = self._pixels(shape, num_images), self._grid(shape)
        if grid is not None:
            return {"pixel_values": pixels.flatten(0, 2), "image_grid_thw": grid.expand(pixels[:, :, 0, 0].numel(), -1)}
        return {"pixel_values": pixels if self._architecture.layout == "rows" else pixels.flatten(0, 1)}

    def _encoded(self, num_parts: int) -> torch.Tensor:
        features = self._features_of(self._shapes[-1], num_parts)
        return features.unflatten(0, (self._num_rows, num_parts, -1))

    def _processed(self, num_parts: int) -> dict[str, torch.Tensor]:
        return self._inputs(self._shapes[-1], num_parts)

    def _no_features(self, mask: torch.Tensor) -> PromptFeatures:
        blocks = self._architecture.blocks
        blocks_RT = None if blocks is None else blocks(torch.zeros_like(mask))
        return dataclasses.replace(super()._no_features(mask), blocks_RT=blocks_RT)

    def _reference_options(self, batch: Batch) -> dict[str, torch.Tensor]:
        options = super()._reference_options(batch)
        if self._architecture.blocks is None:
            return options
        types = torch.zeros_like(batch.ids_RT)
        for row, length in enumerate(batch.lengths):
            types[row, length:] = self._architecture.answer_type or 0
        return options | {"token_type_ids": types}

    def _placed(self, ids: torch.Tensor, num_parts: int) -> PromptFeatures:
        row, types, positions = self._architecture, (ids == self._token_id).long(), None
        grid = self._grid(self._shapes[-1])
        if grid is not None and row.positions is not None:
            grids = grid.expand(self._num_rows * num_parts, -1)
            positions = row.positions(types, torch.ones_like(ids), grids, self._reference.config)
        return dataclasses.replace(
            super()._placed(ids, num_parts),
            blocks_RT=None if row.blocks is None else row.blocks(types),
            positions_RTA=positions,
            offset_R1=None if positions is None else position_offset(positions, torch.ones_like(ids)),
        )
