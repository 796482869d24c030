"""Configuration classes of `transformers_neuronx`, with their checks. It does not know what an option does here.

>>> from optimum_neuron.transformers_neuronx import NeuronConfig, QuantizationConfig
>>> NeuronConfig(quant=QuantizationConfig(quant_dtype="s8")).quant.quant_dtype
's8'
"""

from __future__ import annotations

import dataclasses
import enum
import json
import warnings
from typing import Any

from ..errors import ConfigError, invalid_choice
from ..options.value_types import COUNT, NUMBER, ChecksFields


class _Named(enum.StrEnum):
    """Choices whose values are the words of the vendor's documents."""


class GQA(_Named):
    """How cores share grouped keys and values."""

    SHARD_OVER_HEADS = "shard-over-heads"
    SHARD_OVER_BATCH = "shard-over-batch"
    REPLICATED_HEADS = "replicated-heads"
    ALL_GATHER_HEADS = "all-gather-heads"


class Layout(_Named):
    """Order of the axes hidden, sequence, and batch."""

    HSB = "HSB"
    BSH = "BSH"
    SBH = "SBH"


class _Checked(ChecksFields):
    """A dataclass that checks the keywords, types, and words that it gets."""

    def _require(self, name: str, choices: tuple[Any, ...]) -> None:
        if (value := getattr(self, name)) not in choices:
            raise invalid_choice(name, value, choices)


@dataclasses.dataclass
class QuantizationConfig(_Checked):
    """Weights in 8 bits."""

    quant_dtype: str = "s8"
    """"s8", or "f8e4m3fn"."""
    dequant_dtype: str = "f16"
    """Dtype of the products; here it is that of `amp`."""
    quantize_method: str = "vector_dynamic"
    """"vector_dynamic": a scale for each row; "direct_cast": none."""
    quantize_attn: bool = True
    """False leaves the projections of attention as they are."""
    no_quantize_list: list[str] = dataclasses.field(default_factory=list)
    """Weights that stay as they are, by name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("quant_dtype", ("s8", "f8e4m3fn"))
        self._require("dequant_dtype", ("f32", "f16", "bf16"))
        self._require("quantize_method", ("vector_dynamic", "direct_cast"))


@dataclasses.dataclass
class KVCacheQuantizationConfig(_Checked):
    """Keys and values in 8 bits."""

    quant_dtype: str = "s8"
    """"s8", "f8e4m3fn", or a dtype of 16 bits."""
    dequant_dtype: str = "bf16"
    """Dtype of the products; here it is that of `amp`."""
    quantize_method: str = "direct_cast"
    """How they are rounded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("quant_dtype", ("s8", "f8e4m3fn", "f16", "bf16"))
        self._require("dequant_dtype", ("f32", "f16", "bf16"))
        self._require("quantize_method", ("vector_dynamic", "direct_cast"))


@dataclasses.dataclass
class ContinuousBatchingConfig(_Checked):
    """Sequences that join and leave a batch."""

    max_num_seqs: COUNT | None = None
    """Rows of the batch."""
    batch_size_for_shared_caches: COUNT | None = None
    """An older name of `max_num_seqs`."""
    max_model_len: COUNT | None = None
    """Tokens of a sequence."""
    optimized_paged_attention: bool = False
    """A cache of blocks."""
    enable_chunked_prefill: bool = False
    """Prompts in parts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.enable_chunked_prefill and not self.optimized_paged_attention:
            message = "enable_chunked_prefill=True needs optimized_paged_attention=True."
            raise ConfigError(message, hint="Pass both, or neither.", option="enable_chunked_prefill")
        older = self.batch_size_for_shared_caches
        if self.max_num_seqs is not None and older not in (None, self.max_num_seqs):
            message = f"batch_size_for_shared_caches={older} and max_num_seqs={self.max_num_seqs} are the same option."
            raise ConfigError(message, hint="Pass max_num_seqs.", option="batch_size_for_shared_caches", value=older)
        self.max_num_seqs = self.max_num_seqs or older
        self.batch_size_for_shared_caches = self.max_num_seqs


@dataclasses.dataclass(kw_only=True)
class GenerationConfig(_Checked):
    """How `forward` picks tokens with `on_device_generation`."""

    max_length: COUNT | None = None
    """Tokens of a sequence, at which `sample` ends; None: the compiled length."""
    do_sample: bool = False
    """Draw tokens; False takes the likeliest."""
    top_k: COUNT | list[COUNT] = 50
    """Tokens that may be drawn; a list has one number for each row."""
    top_p: float | list[float] = 1.0
    """Share of probability that may be drawn."""
    top_p_min_tokens: NUMBER | list[NUMBER] = 1
    """Tokens that `top_p` leaves at least."""
    global_top_k: COUNT | None = None
    """Tokens that are compared at all; None: all."""
    eos_token_id: int | list[int] | None = None
    """Tokens that end a sequence; None: those of the model's configuration."""
    temperature: float | list[float] = 1.0
    """Divisor of logits."""
    dynamic: bool = False
    """Whether `update_generation_config` may change it."""
    deterministic: bool = False
    """Take the token where 0.5 falls in the cumulated probabilities, which is the same in every run."""
    per_batch_line: bool = False
    """Whether rows have settings of their own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("top_k", "top_p", "temperature", "top_p_min_tokens")
        lists = [name for name in names if isinstance(getattr(self, name), list)]
        if lists and not self.per_batch_line:
            message = f"{', '.join(lists)} has a value for each row, but per_batch_line=False."
            raise ConfigError(message, hint="Pass per_batch_line=True, or one value.", options=lists)


@dataclasses.dataclass(kw_only=True)
class SparseAttnConfig(_Checked):
    """Attention that skips blocks; no model here has it, see `options.py`."""

    attn_type: str = "blk_sparse"
    """"blk_sparse", "window", or "custom"."""
    causal: bool = False
    """Whether tokens see earlier ones only."""
    sparse_attn_config: Any = None
    """Blocks, or the window."""
    same_mask_per_layer: bool = True
    """Whether layers share a mask."""


_KINDS: dict[str, type] = {
    "sparse_attn": SparseAttnConfig,
    "quant": QuantizationConfig,
    "kv_cache_quant": KVCacheQuantizationConfig,
    "continuous_batching": ContinuousBatchingConfig,
    "on_device_generation": GenerationConfig,
}
"""Fields of `NeuronConfig` that are objects, and their classes."""


@dataclasses.dataclass(kw_only=True)
class NeuronConfig(_Checked):
    """Options of a compiled decoder, as `transformers_neuronx` names them; `options.py` has what each does here."""

    sparse_attn: SparseAttnConfig | None = None
    quant: QuantizationConfig | None = None
    kv_cache_quant: KVCacheQuantizationConfig | None = None
    continuous_batching: ContinuousBatchingConfig | None = None
    attention_layout: Layout | str = Layout.HSB
    collectives_layout: Layout | str = Layout.HSB
    cache_layout: Layout | str = Layout.SBH
    padding_side: str = "left"
    group_query_attention: GQA | str | None = None
    sequence_parallel_norm: bool = False
    sequence_parallel_norm_threshold: NUMBER = 2048
    bf16_rms_norm: bool = False
    on_device_embedding: bool = False
    on_device_generation: GenerationConfig | None = None
    all_reduce_dtype: str | None = None
    cast_logits_dtype: str = "float32"
    fuse_qkv: bool = False
    qkv_tiling: bool = False
    weight_tiling: bool = False
    mlp_in_weight_tiling_permute_order: list[int] = dataclasses.field(default_factory=lambda: [1, 2, 0, 3])
    mlp_out_weight_tiling_permute_order: list[int] = dataclasses.field(default_factory=lambda: [1, 2, 0, 3])
    log_softmax_scores: bool = False
    shard_over_sequence: bool = False
    output_all_logits: bool = False
    attn_output_transposed: bool = False
    fused_rmsnorm_qkv: bool = False
    fused_rmsnorm_mlp: bool = False
    mlp_out_weight_transpose: bool = False
    fuse_mlp: bool = False
    is_eagle_target: bool = False
    is_eagle_draft: bool = False
    has_pre_attention_norm: bool = True
    compilation_worker_count: COUNT | None = None
    duplicate_q_weight_sos: bool = False
    use_2d_cache_ids: bool | None = None
    lhs_aligned: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("use_2d_cache_ids", "lhs_aligned"):
            if (value := getattr(self, name)) is not None:
                warnings.warn(f"{name} is deprecated: pass padding_side.", DeprecationWarning, stacklevel=3)
                self.padding_side = "right" if value else self.padding_side
        if self.continuous_batching is not None:
            self.padding_side = "right"
        self._require("padding_side", ("left", "right"))
        self._require("cast_logits_dtype", ("float32", "float16", "bfloat16"))
        if self.group_query_attention is not None:
            self._require("group_query_attention", tuple(map(str, GQA)))
        for name in ("attention_layout", "collectives_layout", "cache_layout"):
            setattr(self, name, str(getattr(self, name)).removeprefix("LAYOUT_"))
            self._require(name, tuple(map(str, Layout)))
        for name, kind in _KINDS.items():
            if not isinstance(value := getattr(self, name), kind | None):
                message = f"{name} is a {type(value).__name__}."
                raise ConfigError(message, hint=f"Pass a {kind.__name__}.", option=name, value=type(value).__name__)
        if self.qkv_tiling and not self.fuse_qkv:
            raise ConfigError("qkv_tiling=True needs fuse_qkv=True.", hint="Pass both.", option="qkv_tiling")

    def to_json(self) -> str:
        """Return the options as JSON text."""
        return json.dumps(dataclasses.asdict(self), default=str, indent=2, sort_keys=True)
