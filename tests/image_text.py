"""Tiny random models of images and text with their processors, one for each architecture, made from configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.encoders import randomize

IMAGE, PATCH, LENGTH, MAX_IMAGES = 16, 4, 64, 3

IMAGE_TOKEN = "<image>"
_TOKENS = ("<pad>", "<s>", "</s>", IMAGE_TOKEN, "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
_TILES = tuple(f"<row_{row + 1}_col_{column + 1}>" for row in range(6) for column in range(6))
VOCABULARY, IMAGE_TOKEN_ID = len(_TOKENS) + len(_TILES) + 256, 3

SHAPES: dict[str, Any] = {
    "batch_size": 2,
    "sequence_length": LENGTH,
    "prefill_buckets": (4, 24, LENGTH),
    "decode_buckets": (28, LENGTH),
    "max_num_images": MAX_IMAGES,
    "torch_dtype": "float32",
    "optlevel": "1",
}
"""Small static shapes, and no C++ compiler; the first bucket holds no image."""

SMALL: dict[str, Any] = SHAPES | {"prefill_buckets": (LENGTH,), "decode_buckets": (LENGTH,), "extend_length": 1}
"""The same with four graphs instead of ten, for tests that compile often."""

_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": LENGTH,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_VISION = {
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "image_size": IMAGE,
    "patch_size": PATCH,
}
_LLAMA, _QWEN = {"model_type": "llama", **_TEXT}, {"model_type": "qwen2", **_TEXT}
_OLMO = {"model_type": "olmo", **_TEXT}
"""Of no family."""
_CLIP = {"model_type": "clip_vision_model", "projection_dim": 16, **_VISION}
_SIGLIP = {"model_type": "siglip_vision_model", "vision_use_head": False, **_VISION}
_IMAGE_TOKEN = {"image_token_id": IMAGE_TOKEN_ID}

TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "idefics3": ("idefics3", {"text_config": _LLAMA, "vision_config": _VISION, "scale_factor": 2, **_IMAGE_TOKEN}),
    "smolvlm": (
        "smolvlm",
        {"text_config": _LLAMA, "vision_config": _VISION, "scale_factor": 2, "tie_word_embeddings": True}
        | _IMAGE_TOKEN,
    ),
    "idefics3-qwen2": (
        "idefics3",
        {"text_config": _QWEN, "vision_config": _VISION, "scale_factor": 2, **_IMAGE_TOKEN},
    ),
    "llava": ("llava", {"text_config": _LLAMA, "vision_config": _CLIP, "image_token_index": IMAGE_TOKEN_ID}),
    "llava-siglip-olmo": (
        "llava",
        {"text_config": _OLMO, "vision_config": _SIGLIP, "image_token_index": IMAGE_TOKEN_ID}
        | {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
    ),
    "llava-layers": (
        "llava",
        {"text_config": _LLAMA, "vision_config": _CLIP, "image_token_index": IMAGE_TOKEN_ID}
        | {"vision_feature_layer": [1, 2, -2], "vision_feature_select_strategy": "full"},
    ),
}
"""Name to model type and the options of its configuration."""

_TWO_LAYERS = {"num_hidden_layers": 2}
_GEMMA = _TEXT | _TWO_LAYERS | {"head_dim": 8}
_SIGLIP_TOWER = _SIGLIP | _TWO_LAYERS
_IMAGE_INDEX = {"image_token_index": IMAGE_TOKEN_ID, "tie_word_embeddings": True}
_WINDOW = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}

_MROPE = _TEXT | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}}
_QWEN_VISION = {"depth": 3, "num_heads": 2, "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2}
_QWEN3_VISION = _QWEN_VISION | {
    "hidden_size": 32,
    "out_hidden_size": 32,
    "num_position_embeddings": 9,
    "intermediate_size": 40,
    "deepstack_visual_indexes": [0, 2],
}
_QWEN_IDS = _IMAGE_TOKEN | {"video_token_id": 4, "vision_start_token_id": 5, "vision_end_token_id": 6}

MORE_TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": (
        "gemma3",
        {
            "text_config": {**_GEMMA, **_WINDOW},
            "vision_config": _SIGLIP_TOWER,
            "mm_tokens_per_image": 4,
            **_IMAGE_INDEX,
        },
    ),
    "paligemma": (
        "paligemma",
        {"text_config": {"model_type": "gemma", **_GEMMA}, "vision_config": _SIGLIP_TOWER, "projection_dim": 32}
        | _IMAGE_INDEX,
    ),
    "paligemma2": (
        "paligemma",
        {"text_config": {"model_type": "gemma2", **_GEMMA, **_WINDOW}, "vision_config": _SIGLIP_TOWER}
        | {"projection_dim": 32, **_IMAGE_INDEX},
    ),
    "internvl": (
        "internvl",
        {"text_config": _QWEN | _TWO_LAYERS, "vision_config": _VISION | _TWO_LAYERS, **_IMAGE_TOKEN},
    ),
    "llama4": (
        "llama4",
        {
            "text_config": _TEXT
            | {"head_dim": 8, "num_local_experts": 2, "interleave_moe_layer_step": 2, "no_rope_layers": [1, 1, 0]}
            | {"intermediate_size_mlp": 48, "attention_chunk_size": 6, "floor_scale": LENGTH, "num_experts_per_tok": 1},
            "vision_config": _VISION
            | {"num_hidden_layers": 2, "vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16}
            | {"intermediate_size": 96},
            "image_token_index": IMAGE_TOKEN_ID,
        },
    ),
    "qwen2_vl": (
        "qwen2_vl",
        {"text_config": _MROPE, "vision_config": _QWEN_VISION | {"embed_dim": 32, "hidden_size": 32}, **_QWEN_IDS},
    ),
    "qwen2_5_vl": (
        "qwen2_5_vl",
        {
            "text_config": _MROPE,
            "vision_config": _QWEN_VISION
            | {"hidden_size": 32, "out_hidden_size": 32, "window_size": 16, "fullatt_block_indexes": [1]}
            | {"intermediate_size": 40},
            **_QWEN_IDS,
        },
    ),
    "qwen3_vl": ("qwen3_vl", {"text_config": _MROPE | {"head_dim": 8}, "vision_config": _QWEN3_VISION, **_QWEN_IDS}),
    "qwen3_vl_moe": (
        "qwen3_vl_moe",
        {
            "text_config": _MROPE
            | {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
            "vision_config": _QWEN3_VISION,
            **_QWEN_IDS,
        },
    ),
}
"""The same for architectures that are compared without their processors."""


def save_tiny_image_text(folder: Path, name: str, *, seed: int = 0, **overrides: Any) -> Path:
    """Write a random checkpoint whose logits are spread, with its processor."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

    model_type, options = (TINY | MORE_TINY)[name]
    model = AutoModelForImageTextToText.from_config(CONFIG_MAPPING[model_type](**{**options, **overrides}))
    randomize(model, seed=seed)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            # Images must change the generated text.
            parameter.mul_(3.0 if "connector" in path or "projector" in path or "vision_adapter" in path else 1.0)
    model.save_pretrained(folder)
    if name in TINY:
        save_processor(folder, model.config)
    return folder


def processed(
    model_type: str, num_images: list[int], *, grids: list[list[int]] | None = None, seed: int = 0
) -> dict[str, Any]:
    """What a processor makes of prompts with so many images each, padded on the left; Qwen's images have `grids`."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    is_qwen = model_type.startswith("qwen")
    size, tokens = (IMAGE, 4) if is_qwen else PROCESSED[model_type]
    grids = grids or [GRIDS[index % len(GRIDS)] for index in range(sum(num_images))]
    lengths = iter([grid[1] * grid[2] // 4 if is_qwen else tokens for grid in grids])
    rows = [_prompt_tokens([next(lengths) for _ in range(count)], generator) for count in num_images]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model_type in ("gemma3", "paligemma"):
        inputs["token_type_ids"] = (ids == IMAGE_TOKEN_ID).long() * (model_type == "gemma3")
    if is_qwen:
        inputs["mm_token_type_ids"] = (ids == IMAGE_TOKEN_ID).long()
    if sum(num_images) and is_qwen:
        inputs["image_grid_thw"] = torch.tensor(grids)
        inputs["pixel_values"] = torch.randn(
            int(inputs["image_grid_thw"].prod(1).sum()), 3 * 2 * PATCH**2, generator=generator
        )
    elif sum(num_images):
        inputs["pixel_values"] = torch.randn(sum(num_images), 3, size, size, generator=generator)
    return inputs


PROCESSED = {"gemma3": (IMAGE, 4), "paligemma": (IMAGE, 16), "internvl": (IMAGE, 4), "llama4": (IMAGE, 4)}
"""Model type to pixels of an image and its tokens."""
GRIDS = [[1, 4, 4], [1, 2, 6], [1, 4, 2]]
"""Grids of images of 16 patches at most; with windows of two squares of patches, some windows are not whole."""


def _prompt_tokens(lengths: list[int], generator: Any) -> list[int]:
    """Two tokens of text, then images of so many tokens with a token behind each."""
    import torch

    text = torch.randint(50, VOCABULARY, (len(lengths) + 2,), generator=generator).tolist()
    parts = zip(lengths, text[2:], strict=True)
    return text[:2] + [token for length, word in parts for token in [IMAGE_TOKEN_ID] * length + [word]]


def save_processor(folder: Path, config: Any) -> None:
    """Write an image processor and a tokenizer of bytes, which know images; nothing is downloaded."""
    from transformers import Idefics3Processor, LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    tokenizer = tiny_tokenizer()
    if config.model_type == "llava":
        size = {"height": IMAGE, "width": IMAGE}
        images: Any = CLIPImageProcessorPil(size={"shortest_edge": IMAGE}, crop_size=size)
        has_class = config.vision_config.model_type == "clip_vision_model"
        processor: Any = LlavaProcessor(
            images,
            tokenizer,
            patch_size=PATCH,
            vision_feature_select_strategy=config.vision_feature_select_strategy,
            num_additional_image_tokens=int(has_class),
            chat_template=tokenizer.chat_template,
        )
    else:
        images = Idefics3ImageProcessorPil(
            size={"longest_edge": IMAGE}, max_image_size={"longest_edge": IMAGE}, do_image_splitting=False
        )
        num_tokens = (IMAGE // PATCH // config.scale_factor) ** 2
        processor = Idefics3Processor(
            images, tokenizer, image_seq_len=num_tokens, chat_template=tokenizer.chat_template
        )
    processor.save_pretrained(folder)


def tiny_tokenizer() -> Any:
    """A token for each byte, and image tokens."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={token: i for i, token in enumerate([*_TOKENS, *_TILES, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        padding_side="left",
        additional_special_tokens=[*_TOKENS[3:], *_TILES],
        chat_template="{% for m in messages %}{{ m['role'][0] }}:{% for part in m['content'] %}"
        "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endfor %}",
    )


def tiny_image(seed: int) -> Any:
    """A noise image."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 28, 3), dtype=np.uint8))


def ask(processor: Any, texts: list[str], images: list[list[Any]], **options: Any) -> dict[str, Any]:
    """Processor output for prompts, each with its own images; without any, for texts alone."""
    flat = [image for row in images for image in row]
    is_nested = type(processor).__name__ != "LlavaProcessor"
    inputs = None if not flat else images if is_nested else flat
    return dict(processor(text=texts, images=inputs, padding=True, return_tensors="pt", **options))


def tiny_prompts(processor: Any, num_rows: int, *, padding_side: str = "left") -> dict[str, Any]:
    """Prompts with one image, without any, and with two, repeatedly; shorter ones are padded."""
    kinds = [("a<image>b", 1), ("hello", 0), ("<image>or<image>?", 2)]
    rows = [(text, [tiny_image(10 * row + i) for i in range(count)]) for row, (text, count) in enumerate(kinds * 2)]
    rows = rows[:num_rows]
    return ask(processor, [text for text, _ in rows], [images for _, images in rows], padding_side=padding_side)
