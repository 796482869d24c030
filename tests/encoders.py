"""Tiny random models of one forward, one for each architecture that the registry names, made from configurations.

`TINY` holds the required fields of each configuration; `save_tiny_encoder` writes a checkpoint whose weights are all
random, norms and biases too, so that a test notices one that is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY, LENGTH, IMAGE, SAMPLES = 96, 16, 32, 1200

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_TEXT = _SIZES | {"vocab_size": VOCABULARY, "max_position_embeddings": 40, "pad_token_id": 0, "num_labels": 3}
_XLM = {"vocab_size": VOCABULARY, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40}
_XLM |= {"pad_index": 0, "num_labels": 3}
_IMAGE = _SIZES | {"image_size": IMAGE, "patch_size": 8, "num_labels": 3}
_SWIN = {"image_size": IMAGE, "patch_size": 2, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4}
_SWIN |= {"num_labels": 3}
_CONVNEXT = {"image_size": IMAGE, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 2, 1], "num_labels": 3}
_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1], "layer_type": "basic"}
_RESNET |= {"num_labels": 3}
_SPEECH = _SIZES | {"vocab_size": 24, "pad_token_id": 0, "num_labels": 3, "classifier_proj_size": 16}
_SPEECH |= {"conv_dim": (16, 16, 16), "conv_kernel": (8, 4, 4), "conv_stride": (4, 2, 2), "num_feat_extract_layers": 3}
_SPEECH |= {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "do_stable_layer_norm": False}
_SPEECH |= {"tdnn_dim": (16, 16, 24), "tdnn_kernel": (3, 3, 1), "tdnn_dilation": (1, 2, 1), "xvector_output_dim": 16}
_CONFORMER = {
    "vocab_size": 24,
    "pad_token_id": 0,
    "encoder_config": _SIZES | {"num_mel_bins": 16, "conv_kernel_size": 5},
}
_CONFORMER["encoder_config"] |= {"subsampling_conv_channels": 8, "max_position_embeddings": 64}
_CLIP_TEXT = _SIZES | {"vocab_size": VOCABULARY, "max_position_embeddings": 20, "projection_dim": 24}
_CLIP_TEXT |= {"bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0}
_CLIP_IMAGE = _SIZES | {"image_size": IMAGE, "patch_size": 8, "projection_dim": 24}

TEXTS: dict[str, dict[str, Any]] = {
    "bert": _TEXT,
    "albert": _TEXT | {"embedding_size": 16},
    "mobilebert": _TEXT
    | {"embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 2, "true_hidden_size": 16},
    "distilbert": {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    | {"max_position_embeddings": 40, "num_labels": 3},
    "camembert": _TEXT | {"pad_token_id": 1},
    "mpnet": _TEXT | {"pad_token_id": 1},
    "roberta": _TEXT | {"pad_token_id": 1},
    "xlm-roberta": _TEXT | {"pad_token_id": 1},
    "convbert": _TEXT | {"embedding_size": 16, "conv_kernel_size": 3},
    "electra": _TEXT | {"embedding_size": 16},
    "flaubert": _XLM,
    "roformer": _TEXT | {"embedding_size": 16},
    "xlm": _XLM,
    "deberta": _TEXT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8},
    "deberta-v2": _TEXT
    | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 4, "share_att_key": True}
    | {"norm_rel_ebd": "layer_norm", "conv_kernel_size": 3, "conv_act": "gelu"},
    "esm": _TEXT | {"mask_token_id": 3, "position_embedding_type": "rotary", "token_dropout": True},
    "modernbert": _TEXT
    | {"num_hidden_layers": 4, "local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 1}
    | {"sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
    "phi": _TEXT | {"bos_token_id": 1, "eos_token_id": 2},
}
IMAGES: dict[str, dict[str, Any]] = {
    "vit": _IMAGE,
    "beit": _IMAGE | {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "vocab_size": 16, "pool_scales": [1, 2]},
    "convnext": _CONVNEXT,
    "convnextv2": _CONVNEXT,
    "cvt": {"embed_dim": [8, 16, 16], "num_heads": [1, 2, 2], "depth": [1, 2, 3], "num_labels": 3}
    | {"cls_token": [False, False, True]},
    "deit": _IMAGE,
    "levit": {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2], "depths": [1, 2, 1]}
    | {"key_dim": [8, 8, 8], "down_ops": [["Subsample", 8, 2, 4, 2, 2], ["Subsample", 8, 3, 4, 2, 2]], "num_labels": 3},
    "swin": _SWIN,
    "swinv2": _SWIN,
    "donut-swin": _SWIN,
    "dinov2": _IMAGE,
    "mobilenet_v2": {"image_size": IMAGE, "depth_multiplier": 0.25, "num_labels": 3},
    "mobilevit": {"image_size": IMAGE, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}
    | {"num_labels": 3, "aspp_out_channels": 16, "atrous_rates": [1, 2, 3], "num_attention_heads": 2},
    "resnet": _RESNET,
    "yolos": _IMAGE | {"image_size": [32, 32], "num_detection_tokens": 6},
    "detr": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "num_queries": 6}
    | {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_labels": 3},
    "dpt": _IMAGE
    | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 16, 16]}
    | {"fusion_hidden_size": 16}
    | {"readout_type": "project", "use_auxiliary_head": False},
    "segformer": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1], "num_attention_heads": [1, 2, 2, 4]}
    | {"decoder_hidden_size": 16, "num_labels": 3},
    "clip": {"text_config": _CLIP_TEXT, "vision_config": _CLIP_IMAGE, "projection_dim": 24},
    "siglip": {"text_config": _CLIP_TEXT, "vision_config": _CLIP_IMAGE},
    "pp_lcnet": {"scale": 0.25, "num_labels": 3},
}
RECORDINGS: dict[str, dict[str, Any]] = {
    "wav2vec2": _SPEECH,
    "wavlm": _SPEECH,
    "hubert": _SPEECH | {"feat_extract_norm": "layer", "do_stable_layer_norm": True},
    "unispeech": _SPEECH,
    "unispeech-sat": _SPEECH,
    "sew": _SPEECH | {"squeeze_factor": 2},
    "sew-d": _SPEECH | {"squeeze_factor": 2, "max_position_embeddings": 64, "position_buckets": 8},
    "wav2vec2-bert": {k: v for k, v in _SPEECH.items() if not k.startswith(("conv_", "num_conv"))}
    | {"feature_projection_input_dim": 20, "add_adapter": False, "conv_depthwise_kernel_size": 5},
    "wav2vec2-conformer": _SPEECH | {"conv_depthwise_kernel_size": 5},
    "audio-spectrogram-transformer": {k: v for k, v in _IMAGE.items() if k != "image_size"}
    | {"max_length": 48, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8},
    "parakeet_ctc": _CONFORMER,
    "lasr_ctc": _CONFORMER,
    "data2vec-audio": _SPEECH | {"conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2},
}
FRAMES = {"wav2vec2-bert": 24, "parakeet_ctc": 61, "lasr_ctc": 61}
"""Frames of spectrograms."""
TINY = TEXTS | IMAGES | RECORDINGS
"""Model type to the options of its configuration."""


_DEEP = ("beit", "dpt", "cvt", "yolos")
"""Their options name layers, or transformers' code needs as many."""


def shallow(model_type: str) -> dict[str, Any]:
    """Options of a configuration with half as many layers, or one in each stage."""
    return {} if model_type in _DEEP else _halved(TINY[model_type])


def _halved(options: dict[str, Any]) -> dict[str, Any]:
    fewer = dict(options)
    for name, value in options.items():
        if name in ("num_hidden_layers", "n_layers", "encoder_layers", "decoder_layers"):
            fewer[name] = value // 2
        elif name == "depths":
            fewer[name] = [1] * len(value)
        elif isinstance(value, dict):
            fewer[name] = _halved(value)
    return fewer


def tiny_encoder_config(model_type: str, **overrides: Any) -> Any:
    """A small transformers configuration."""
    from transformers import CONFIG_MAPPING

    options = {**TINY[model_type], **overrides}
    if model_type == "detr":
        options["backbone_config"] = CONFIG_MAPPING["resnet"](**{**_RESNET, "out_features": ["stage4"]})
        options |= {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    return CONFIG_MAPPING[model_type](**options)


def randomize(model: Any, *, seed: int = 0) -> Any:
    """Give every parameter and running statistic a random value of a sensible size."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                # Kept small where a sum is long, so that activations stay in range.
                parameter.copy_(noise * min(0.2, parameter[0].numel() ** -0.5))
            else:
                parameter.add_(noise, alpha=0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model.eval()


def save_tiny_encoder(folder: Path, model_type: str, task: str, *, seed: int = 0, **overrides: Any) -> Path:
    """Write a random checkpoint of an architecture for a task."""
    import transformers

    from optimum_neuron.sources import TASKS, architectures_of

    labels = {"num_labels": 2} if task == "question-answering" else {}
    config = tiny_encoder_config(model_type, **overrides | labels)
    # If a task has several classes, transformers chooses by the name in the checkpoint.
    config.architectures = list(architectures_of(task)[model_type][:1])
    model = getattr(transformers, TASKS[task].auto_class).from_config(config)
    randomize(model, seed=seed).save_pretrained(folder)
    return folder


def tiny_shapes(model_type: str, task: str) -> dict[str, Any]:
    """Small static shapes for an architecture, no C++ compiler."""
    from optimum_neuron.kinds.encoder import find_architecture

    options: dict[str, Any] = {"optlevel": "1"}
    is_contrastive = find_architecture(model_type)[1].contrastive
    if is_contrastive and task in ("feature-extraction", "zero-shot-image-classification"):
        return options | {"text_batch_size": 2, "image_batch_size": 1, "sequence_length": LENGTH}
    options["batch_size"] = 2
    if model_type in TEXTS:
        options["sequence_length"] = LENGTH
        options |= {"num_choices": 3} if task == "multiple-choice" else {}
    if model_type in ("cvt", "resnet", "detr", "segformer", "pp_lcnet"):
        options |= {"height": 64, "width": 64}
    if model_type in RECORDINGS and model_type != "audio-spectrogram-transformer":
        options |= {"nb_max_frames": FRAMES[model_type]} if model_type in FRAMES else {"audio_sequence_length": SAMPLES}
    return options


def save_letters(folder: Path) -> Path:
    """Write a tokenizer with one token for each letter, and begin, end and mask."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<mask>", "<unk>"]
    vocabulary = {token: i for i, token in enumerate([*special, *"abcdefghijklmnopqrstuvwxyz.? "])}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    names = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "mask": "<mask>", "unk": "<unk>", "cls": "<s>", "sep": "</s>"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in names.items()},
    ).save_pretrained(folder)
    return folder
