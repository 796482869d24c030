"""Private names of transformers, and the methods of its generation and pipelines that this package overrides.

from optimum_neuron.upstream.transformers import prepare_attention_mask
"""

from __future__ import annotations

from typing import Any

from .contract import Name, Override, import_name

_CANDIDATES = "Speculation prepares the inputs of its candidates as transformers does."

NAMES = (
    Name(
        target="transformers.generation.candidate_generator._prepare_attention_mask",
        why=_CANDIDATES,
        parameters=("model_kwargs", "new_length", "is_encoder_decoder"),
    ),
    Name(
        target="transformers.generation.candidate_generator._prepare_position_ids",
        why=_CANDIDATES,
        parameters=("model_kwargs", "new_length", "is_encoder_decoder"),
    ),
    Name(
        target="transformers.generation.candidate_generator._prepare_token_type_ids",
        why=_CANDIDATES,
        parameters=("model_kwargs", "new_length"),
    ),
    Name(
        target="transformers.distributed.checkpoint._redistribute_state_dict",
        why="Checkpoints of sharded training are saved and read as transformers' Trainer does.",
    ),
)
_GENERATION = "transformers.generation.utils.GenerationMixin"
_WHISPER = "transformers.models.whisper.generation_whisper.WhisperGenerationMixin"
_PIPELINE = "transformers.pipelines.base.Pipeline"

OVERRIDES = (
    Override(
        target=f"{_GENERATION}._sample",
        why="The loop reads tokens from the program, which samples on the device.",
        parameters=("input_ids", "logits_processor", "stopping_criteria", "generation_config", "streamer"),
    ),
    Override(
        target=f"{_GENERATION}._assisted_decoding",
        why="Candidates are checked by one graph for all sequences.",
        parameters=("input_ids", "logits_processor", "stopping_criteria", "generation_config", "assistant_model"),
    ),
    Override(
        target=f"{_GENERATION}._get_candidate_generator",
        why="No more candidates are proposed than the cache can forget.",
        callers=(f"{_GENERATION}._assisted_decoding",),
    ),
    Override(
        target=f"{_GENERATION}._valid_auto_compile_criteria",
        why="A compiled model is not compiled again.",
        callers=(f"{_GENERATION}._sample", f"{_GENERATION}._prefill"),
    ),
    Override(
        target=f"{_GENERATION}._prepare_cache_for_generation",
        why="The KV cache is in the program.",
        parameters=("generation_config", "model_kwargs"),
        callers=(f"{_GENERATION}.generate",),
    ),
    Override(
        target=f"{_GENERATION}._expand_inputs_for_generation",
        why="Adapters and features are repeated for beams and returned sequences too.",
        parameters=("expand_size", "is_encoder_decoder", "input_ids"),
        callers=(f"{_GENERATION}.generate",),
    ),
    Override(
        target=f"{_GENERATION}._expand_multimodal_outputs",
        why="Features of audio are repeated for beams and returned sequences.",
        parameters=("input_ids", "mm_encoder_output", "expand_size", "inputs_embeds"),
        callers=(f"{_GENERATION}._expand_inputs_for_generation",),
    ),
    Override(
        target=f"{_GENERATION}._prepare_position_ids_for_generation",
        why="Positions of images have three axes.",
        parameters=("inputs_tensor", "model_kwargs"),
        callers=(f"{_GENERATION}.generate",),
    ),
    Override(
        target=f"{_GENERATION}._update_model_kwargs_for_generation",
        why="The type of generated tokens depends on the architecture.",
        parameters=("outputs", "model_kwargs"),
        callers=(f"{_GENERATION}._sample", f"{_GENERATION}._beam_search", f"{_GENERATION}._assisted_decoding"),
    ),
    Override(
        target=f"{_GENERATION}._maybe_prepare_encoder_kwargs_for_generation",
        why="Audio is encoded once for all sequences of a prompt.",
        parameters=("inputs_tensor", "model_kwargs", "model_input_name", "generation_config"),
        callers=(f"{_GENERATION}.generate",),
    ),
    Override(
        target=f"{_GENERATION}._prepare_text_encoder_decoder_kwargs_for_generation",
        why="Whisper's encoder is a program.",
        parameters=("inputs_tensor", "model_kwargs", "model_input_name", "generation_config"),
        callers=(f"{_GENERATION}._maybe_prepare_encoder_kwargs_for_generation",),
    ),
    Override(
        target=f"{_WHISPER}._retrieve_logit_processors",
        why="Whisper's processors are created once for a recording.",
        callers=(f"{_WHISPER}.generate",),
    ),
    Override(
        target=f"{_WHISPER}._postprocess_outputs",
        why="Word timestamps come from the weights that the program returns.",
        parameters=("seek_outputs",),
        callers=(f"{_WHISPER}.generate_with_fallback",),
    ),
    Override(
        target=f"{_PIPELINE}._sanitize_parameters",
        why="Pipelines that transformers 5 removed are built on its base class.",
        callers=(f"{_PIPELINE}.__init__", f"{_PIPELINE}.__call__"),
    ),
    Override(
        target=f"{_PIPELINE}._forward",
        why="Pipelines that transformers 5 removed are built on its base class.",
        parameters=("input_tensors",),
        callers=(f"{_PIPELINE}.forward",),
    ),
    *(
        Override(target=f"{_PIPELINE}.{name}", why="Pipelines that transformers 5 removed choose what they load.")
        for name in ("_load_processor", "_load_image_processor", "_load_feature_extractor", "_load_tokenizer")
    ),
)
ROWS = (*NAMES, *OVERRIDES)


def __getattr__(name: str) -> Any:
    return import_name(__name__, NAMES, name)
