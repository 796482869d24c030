"""Tags of NxD Inference's programs, and the compiler flags of each.

>>> "-O1" in compiler_args(NeuronConfig(), CONTEXT_ENCODING_MODEL_TAG).split()
True
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from .config import NeuronConfig

CONTEXT_ENCODING_MODEL_TAG = "context_encoding_model"
TOKEN_GENERATION_MODEL_TAG = "token_generation_model"  # noqa: S105  # no password
SPECULATION_MODEL_TAG = "speculation_model"
MEDUSA_MODEL_TAG = "medusa_speculation_model"
FUSED_SPECULATION_MODEL_TAG = "fused_speculation_model"
VISION_ENCODER_MODEL_TAG = "vision_encoder_model"

OF_PROMPTS = (CONTEXT_ENCODING_MODEL_TAG, VISION_ENCODER_MODEL_TAG)
"""Programs whose inputs are padded in all columns."""
_OF_STEPS = (TOKEN_GENERATION_MODEL_TAG, FUSED_SPECULATION_MODEL_TAG)
_LONGEST_STRIDED = 128 * 1024
"""Tokens from which a prompt's program of paired cores is compiled without --vectorize-strided-dma."""


def compiler_args(neuron: NeuronConfig, tag: str, given: str | None = None) -> str:
    """Return the flags of a program.

    Args:
        neuron: its options; programs of steps set `cc_pipeline_tiling_factor` to 1.
        tag: which program.
        given: flags in place of those of the tag.
    """
    words, inner = ([given], []) if given is not None else (list(_flags(neuron, tag)), list(_inner(neuron, tag)))
    if _has_fp8(neuron):
        inner.append("--experimental-unsafe-fp8e4m3fn-as-fp8e4m3")
    words.append(f"--internal-hlo2tensorizer-options='{' '.join([*inner, '--verify-hlo=true'])}'")
    if neuron.enable_output_completion_notifications:
        words.append("--internal-backend-options='--enable-output-completion-notifications'")
    return " ".join(words) + " "


def _flags(neuron: NeuronConfig, tag: str) -> Iterator[str]:
    """The flags of a tag."""
    if tag in _OF_STEPS:
        vars(neuron)["cc_pipeline_tiling_factor"] = 1
    is_paired = neuron.logical_nc_config > 1
    is_long = is_paired and tag == CONTEXT_ENCODING_MODEL_TAG and neuron.seq_len >= _LONGEST_STRIDED
    tensorizer = [
        "--enable-ccop-compute-overlap",
        f"--cc-pipeline-tiling-factor={neuron.cc_pipeline_tiling_factor}",
        *([] if is_long else ["--vectorize-strided-dma"]),
    ]
    yield from ("--auto-cast=none", "--model-type=transformer", f"--tensorizer-options='{' '.join(tensorizer)}'")
    yield f"--lnc={neuron.logical_nc_config}"
    yield "-O1" if tag in OF_PROMPTS else "-O2"
    if neuron.enable_long_context_mode:
        yield from ("--internal-disable-fma-on-ios", "--disable-mixed-precision-accumulation")
    if neuron.scratchpad_page_size:
        yield f"--hbm-scratchpad-page-size={neuron.scratchpad_page_size}"
    if neuron.is_block_kv_layout and neuron.attn_block_tkg_nki_kernel_enabled:
        yield "--internal-backend-options='--enable-verifier=false'"
    if tag in (neuron.dma_order_config or ()):
        yield f"--internal-dma-order-constraints='{json.dumps(neuron.dma_order_config[tag])}'"
        yield "--internal-bir-enable-sb-allocation"
    if neuron.enable_spill_reload_dge:
        yield "--internal-enable-dge-levels spill_reload"
    if neuron.target:
        yield f"--target {neuron.target}"


def _inner(neuron: NeuronConfig, tag: str) -> Iterator[str]:
    """Flags of the stage that reads the graph."""
    if tag in OF_PROMPTS:
        yield "--modular-flow-mac-threshold=10"
    if neuron.layer_boundary_markers:
        yield "--recursive-layer-det=false"


def _has_fp8(neuron: NeuronConfig) -> bool:
    has_weights = neuron.quantized and neuron.quantization_dtype == "f8e4m3"
    return bool(has_weights or neuron.kv_cache_quant or neuron.is_mlp_quantized())
