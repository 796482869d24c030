"""Sizes of images are checked before anything is compiled."""

from __future__ import annotations

import json

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.kinds.multimodal.image import NeuronImageTextConfig
from optimum_neuron.kinds.multimodal.image.architectures import default_images, find_architecture


def resolved(**options):
    sizes = {"max_position_embeddings": 256, "max_num_images": 17, "image_size": 32, "image_tokens": 10}
    return NeuronImageTextConfig(**options).resolve(**sizes)


def test_image_limit_follows_split_and_sequence_length():
    assert (resolved().max_num_images, resolved().image_size) == (17, 32)
    assert resolved(sequence_length=64).max_num_images == 6
    assert resolved(max_num_images=2).max_num_images == 2


def test_more_images_than_sequence_holds_are_refused():
    with pytest.raises(ConfigError) as error:
        resolved(sequence_length=64, max_num_images=7)
    assert (error.value.details["limit"], error.value.details["sequence_length"]) == (6, 71)


@pytest.mark.parametrize("name", ["processor_config.json", "preprocessor_config.json"])
@pytest.mark.parametrize(
    ("whole", "tile", "options", "expected"),
    [
        (2048, 512, {}, (512, 17)),
        (1456, 364, {}, (364, 17)),
        (600, 512, {}, (512, 5)),
        (512, 512, {}, (512, 1)),
        (2048, 512, {"do_image_splitting": False}, (512, 1)),
        (None, None, {}, (224, 1)),
    ],
)
def test_defaults_match_processor(tmp_path, name, whole, tile, options, expected):
    from transformers import Idefics3Config

    edges = {"size": {"longest_edge": whole}, "max_image_size": {"longest_edge": tile}} if whole else {}
    settings = edges | options
    data = {"image_processor": settings} if name == "processor_config.json" else settings
    (tmp_path / name).write_text(json.dumps(data))
    config = Idefics3Config()
    assert default_images(find_architecture(config), config, tmp_path) == expected
