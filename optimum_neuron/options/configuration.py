"""Everything that decides how a model is compiled, saved with the artifact.

`CompileConfig` has the fields of every model, `NeuronConfig` those of a decoder; other kinds have theirs in
`kinds/*/configuration.py`. A configuration that a user writes may leave sizes open; `resolve` fills them in for a model
and returns a complete one, in which every size has a value, as types of the fields say. This module does not depend on
transformers or files beyond its own JSON.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

from ..base.core import AttentionKernel, AutoCast, AutoCastType, KVCacheDtype, OptLevel, TorchDtype
from ..errors import ConfigError, invalid_choice, raise_together
from .decoder_checks import BLOCK_OPTIONS, block_sizes, decoder_errors, require_kernel_blocks, wrong_type
from .option import MODEL_GROUP, OPEN, ChecksKeywords, check_known, option, options_of
from .peer_attributes import (
    CONFIG_FILE as CONFIG_FILE,
    NEFF_FILE as NEFF_FILE,
    DecoderAttributes,
    SavedConfig,
    dtype_name,
)
from .sizes import count_errors, default_buckets, limit_error

MAX_DEFAULT_SEQUENCE_LENGTH = 4096
"""Default sequence length where the model allows more."""
FIRST_BUCKET = 128
"""Smallest default prompt bucket; the next ones are four times as long."""
FIRST_DECODE_BUCKET = 1024
"""Smallest default decode bucket: with fewer slots, attention is a small part of a step."""
DEFAULT_LORA_RANK = 16
"""Largest rank of an adapter if none is requested, as in vLLM."""
DEFAULT_MAX_TOPK = 256
"""Likeliest tokens of a step if no number is requested, as NxD Inference's `global_topk`."""

DEGREES = ("tensor_parallel_size", "pipeline_parallel_size")
"""Fields whose product is the number of cores of a model."""

_CHOICES = {"auto_cast": AutoCast, "auto_cast_type": AutoCastType, "optlevel": OptLevel, "torch_dtype": TorchDtype}
_NAMES = {"task": "text-generation", "target": "inf2", "instance_type": "inf2.xlarge"}
"""Fields that hold a name, each with an example."""


class Hooks:
    """Functions that packages above provide; `wiring.py` sets them."""

    exported_config: Callable[[str | Path, Mapping[str, Any]], CompileConfig]
    """Return the configuration of an exported model."""


HOOKS = Hooks()
"""The hooks of this process."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CompileConfig(SavedConfig, ChecksKeywords):
    """Task, arithmetic and target of one compiled model, whatever its shapes are."""

    group: ClassVar[str] = "compiler"
    """Title of the fields' options on the command line."""
    sizes_of_model: ClassVar[tuple[str, ...]] = ()
    """Fields that may be left open, and have a value in a complete configuration."""

    task: str = option(
        group=MODEL_GROUP,
        help="task, such as text-generation, by its name here or in optimum (default: from the config)",
    )
    """Task, as transformers' pipelines name it."""
    target: str = option("inf2", is_keyword=False)
    """Compile target: inf2, trn1, trn1n, trn2 or trn3."""
    instance_type: str = option(
        "inf2.xlarge",
        help="inf2, trn1, trn1n, trn2, trn3, or an instance such as inf2.xlarge or, for stages, 2xtrn1.32xlarge",
        metavar="TARGET",
        in_program=False,
    )
    """Instance whose memory and cores are simulated, or several that share the stages ("2xtrn1.32xlarge")."""
    auto_cast: AutoCast = option("none", help="fp32 operations to round to a narrower type")
    """Which float32 operations are rounded to `auto_cast_type`."""
    auto_cast_type: AutoCastType = option("bf16", help="dtype that auto-cast rounds to")
    """Dtype that auto-cast rounds to."""
    optlevel: OptLevel = option(
        "2",
        help="effort of the compiler",
        in_graph=False,
        levels={
            "1": "no C++ compiler needed, ready at once",
            "2": "each distinct layer compiled ahead of time",
            "3": "as -O2, alternative kernels are tried and seldom used graphs compiled too",
        },
    )
    """Effort: "1" starts at once, "2" compiles each distinct block, "3" also tries alternative kernels."""
    torch_dtype: TorchDtype = option(
        "float32", group=MODEL_GROUP, flags=("--torch_dtype", "--dtype"), help="dtype of the weights (default: its own)"
    )
    """Dtype of weights and cache."""
    allow_host_ops: tuple[str, ...] = option(
        (),
        help="operators that may run on the host if the target refuses them, for example aten.sort",
        metavar="OP,OP",
        in_graph=False,
    )
    """Operators that may run on the host where the target refuses them, for example ["aten.sort"]."""
    inline_weights_to_neff: bool = option(
        False,
        help="put the weights into the NEFF; a fine-tuned checkpoint then needs its own export",
        flags=("--inline-weights-neff",),
        in_graph=False,
        in_program=False,
    )
    """Keep the weights inside the NEFF instead of in a separate file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "torch_dtype", dtype_name(self.torch_dtype))
        raise_together(self._problems())
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), list):
                # JSON and keyword arguments bring lists; a frozen configuration holds a tuple.
                object.__setattr__(self, field.name, tuple(value))
        object.__setattr__(self, "allow_host_ops", plain_op_names(self.allow_host_ops))

    def __eq__(self, other: object) -> bool:
        # A completed configuration is equal to one that a user wrote in full.
        return isinstance(other, CompileConfig) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def _problems(self) -> Iterator[ConfigError]:
        """Yield an error for each value that is not allowed."""
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in get_args(choices):
                yield invalid_choice(name, value, get_args(choices))  # type: ignore[misc]
        for name, example in _NAMES.items():
            if not isinstance(value := getattr(self, name), str):
                yield wrong_type(name, value, f"a name, such as {example!r}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool) and not isinstance(value, bool):
                yield wrong_type(field.name, value, "True or False")
            elif field.default is dataclasses.MISSING and value is None:
                yield ConfigError(f"{field.name} is missing.", option=field.name)
        names = self.allow_host_ops
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            yield wrong_type("allow_host_ops", names, 'a list of operators, for example ["aten.sort"]')
        if self.auto_cast != "none" and self.torch_dtype != "float32":
            message = f"auto_cast={self.auto_cast!r} rounds float32 operations, but torch_dtype={self.torch_dtype!r}."
            hint = "Pass torch_dtype for weights and cache, or auto_cast with float32 weights."
            yield ConfigError(message, hint=hint, options=["auto_cast", "torch_dtype"])

    @property
    def axes(self) -> tuple[str, ...]:
        """Fields that are sizes of the model's inputs."""
        return ()

    @property
    def static_shapes(self) -> dict[str, int | list[int]]:
        """Compiled size or sizes of each axis."""
        data = self.to_dict()
        return {axis: data[axis] for axis in self.axes}

    @property
    def input_shapes(self) -> dict[str, int | list[int]]:
        """`static_shapes`, under the name that Optimum's configurations have."""
        return self.static_shapes

    @property
    def open_sizes(self) -> list[str]:
        """Fields that have no value yet; empty for a complete configuration."""
        return [name for name in self.sizes_of_model if getattr(self, name) is None]

    def completed(self, **sizes: Any) -> Self:
        """Return the configuration with its open sizes filled in."""
        return type(self)(**self._values() | sizes).require_complete()

    def require_complete(self) -> Self:
        """Check that every size has a value, as a program needs; return the configuration."""
        raise_together(ConfigError(f"{name} is missing.", option=name) for name in self.open_sizes)
        return self

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.field_names()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in self._values().items()}
        return plain | {"torch_dtype": str(self.torch_dtype)}

    def to_json(self) -> str:
        """Return JSON text with sorted keys."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build from plain data.

        Raises:
            ConfigError: a key is unknown (the nearest one is named) or a value is not allowed.
        """
        check_known(data, cls.field_names(), what=cls.__name__, listed=f"`help({cls.__name__})`")
        return cls(**data)

    @classmethod
    def from_pretrained(cls, model_id: str | Path, **where: Any) -> Self:
        """Read the configuration of an exported model, or one that `save_pretrained` wrote.

        Args:
            model_id: folder, or Hub model ID.
            **where: fields of `SourceOptions`.

        Raises:
            ArtifactError: the model was not exported.
            ConfigError: it is a model of another kind.
        """
        config = HOOKS.exported_config(model_id, where)
        if not isinstance(config, cls):
            name = type(config).__name__
            message = f"The configuration of {model_id} is a {name}, not a {cls.__name__}."
            raise ConfigError(message, hint=f"Use {name}.from_pretrained.", model=str(model_id), config_class=name)
        return config

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of all fields, those of a base class first."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the keywords that set a field."""
        return [name for name, option in options_of(cls).items() if option.is_keyword]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeuronConfig(DecoderAttributes, CompileConfig):
    """Static shapes, arithmetic and target of one compiled decoder.

    >>> NeuronConfig(batch_size=1, sequence_length=512).resolve(max_position_embeddings=8192).prefill_buckets
    (128, 512)
    """

    group: ClassVar[str] = "shapes (a graph is static: every size is fixed here)"
    sizes_of_model: ClassVar[tuple[str, ...]] = ("sequence_length", "prefill_buckets", "decode_buckets")

    task: str = "text-generation"
    """Task, as transformers' pipelines name it."""
    batch_size: int = option(1, help="sequences or images per call")
    """Batch size of every graph; smaller batches are padded, larger ones are split."""
    sequence_length: int = option(
        OPEN, help="tokens of a sequence, prompt and answer; an encoder takes several, for example 64,128,512"
    )
    """Tokens of a sequence, prompt and answer together; None: the model's limit, at most 4096."""
    prefill_buckets: tuple[int, ...] = option(OPEN, help="prompt lengths to compile, for example 64,256")
    """Prompt lengths to compile for; None: 128, then four times longer each, up to sequence_length."""
    decode_buckets: tuple[int, ...] = option(OPEN, help="cache slots of a decode step, for example 1024,4096")
    """Cache slots that a decode step attends to; None: 1024, then four times as many, up to sequence_length."""
    extend_length: int = 8
    """Tokens that one call adds to a sequence that is already in the cache (assisted generation)."""
    speculation: bool = option(False, help="compile fast checks of extend_length tokens, for assisted generation")
    """Compile fast host code for checks of `extend_length` tokens, and return hidden states for draft heads."""
    hidden_state_layers: tuple[int, ...] | None = option(
        None, help="with speculation, layers whose inputs are returned for an EAGLE-3 draft"
    )
    """With `speculation`, layers whose inputs an EAGLE-3 draft reads; None: 2, the middle one, and the third last."""
    on_device_sampling: bool = option(False, help="decode steps return the likeliest tokens, not only logits")
    """Decode steps return the likeliest tokens too, and the host reads these in place of all logits where it can."""
    max_topk: int | None = option(None, help="with --on_device_sampling, likeliest tokens of a step (default: 256)")
    """Likeliest tokens of a step; None: 256, with `on_device_sampling`."""
    family: str | None = None
    """Implementation: a family's name or "generic"; None chooses."""
    tensor_parallel_size: int = option(
        1, help="cores that share every layer", flags=("--tensor_parallel_size", "--num_cores")
    )
    """Cores that share every layer: each has a part of the weights, of the cache, and of the work."""
    pipeline_parallel_size: int = option(1, help="stages that the layers are divided into, each on its own cores")
    """Stages that the layers are divided into, one after the other; each has `tensor_parallel_size` cores."""
    sequence_parallel: bool = option(
        False,
        help="with tensor parallelism, divide norms and residual stream of prompts along the sequence",
        flags=("--sequence_parallel", "--sequence_parallel_enabled"),
    )
    """Divide norms and residual stream of prompts along the sequence, where the cores divide a bucket's length."""
    max_loras: int | None = option(None, help="LoRA adapters that are loaded at once, beside the base model")
    """LoRA adapters that are loaded at once, beside the base model; None compiles a decoder without adapters."""
    max_lora_rank: int | None = option(None, help="largest rank of an adapter, with max_loras (default: 16)")
    """Largest rank of an adapter; None: 16, with `max_loras`."""
    lora_target_modules: tuple[str, ...] | None = option(
        None, help="modules that adapters may change, for example q_proj,v_proj (default: all linear layers)"
    )
    """Modules that adapters may change, by the end of their names as in PEFT; None: all linear layers."""
    continuous_batching: bool = option(
        False, help="requests join and leave a batch at every step and share a cache of blocks (generate_batch)"
    )
    """Requests join and leave a batch of `batch_size` rows at every step, and share a pool of cache blocks."""
    block_size: int | None = option(None, help="with --continuous_batching, tokens of a cache block (default: 32)")
    """Tokens of a block of the cache; None: 32."""
    num_blocks: int | None = option(
        None, help="with --continuous_batching, blocks of the cache (default: batch_size whole sequences, and one)"
    )
    """Blocks of the cache; None: enough for `batch_size` whole sequences. One of them takes what padding writes."""
    prefill_chunk_size: int | None = option(
        None, help="prompt tokens read at once; 0 for all (default with --continuous_batching: 128)", allows_zero=True
    )
    """Tokens of prompts read at once; 0: all. None: 0; with `continuous_batching` 128, or the last of the buckets."""

    quantization: str | None = option(
        None,
        help="store weights in 8 or 4 bits: int8, fp8, int4, or a form such as int4-g64-zp or int8-dynamic",
        metavar="SCHEME",
    )
    """Scheme of quantized weights: "int8", "fp8", "int4", with a group size, "mxfp4" for experts, or "int8-dynamic",
    which quantizes activations too; None: weights have `torch_dtype`."""
    modules_to_not_convert: tuple[str, ...] = option(
        (), help="modules that are not quantized, by their names in the checkpoint", metavar="NAME,NAME"
    )
    """Modules that are not quantized, such as "lm_head" or "down_proj", as transformers spells them."""

    kv_cache_dtype: KVCacheDtype = option(
        "auto", help="store keys and values in 8 bits (auto: in torch_dtype, or as the checkpoint says)"
    )
    """What keys and values are stored in: "int8" with a scale for each token and head, "fp8" (e4m3), "fp8-static" with
    the scales of the checkpoint, or "auto": as its `kv_cache_scheme` says, else in `torch_dtype`."""
    attention_kernel: AttentionKernel = option(
        "plain", help="attention of prompts: operators of PyTorch (plain), or the flash attention kernel in NKI (nki)"
    )
    """What attends in prompts: "plain", operators of PyTorch, or "nki", flash attention as a kernel, whose instructions
    the program holds and whose time they give."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Fields that are sizes of the model's inputs."""
        return ("batch_size", "sequence_length")

    def _problems(self) -> Iterator[ConfigError]:
        yield from count_errors(self, ("batch_size", "extend_length", *DEGREES))
        optional = ("sequence_length", "max_loras", "max_lora_rank", "max_topk", *BLOCK_OPTIONS)
        yield from count_errors(self, optional, optional=True)
        if self.kv_cache_dtype not in get_args(KVCacheDtype):
            yield invalid_choice("kv_cache_dtype", self.kv_cache_dtype, get_args(KVCacheDtype))  # type: ignore[misc]
        if self.attention_kernel not in get_args(AttentionKernel):
            yield invalid_choice("attention_kernel", self.attention_kernel, get_args(AttentionKernel))  # type: ignore[misc]
        yield from super()._problems()
        yield from decoder_errors(self)

    def _lengths(self, max_position_embeddings: int) -> dict[str, Any]:
        """Sequence length and buckets for a model."""
        length = self.sequence_length or min(max_position_embeddings, MAX_DEFAULT_SEQUENCE_LENGTH)
        if length > max_position_embeddings:
            raise limit_error("sequence_length", length, max_position_embeddings)
        chunk = 0 if self.continuous_batching else min(self.prefill_chunk_size or 0, length)
        prefill_buckets = self.prefill_buckets or default_buckets(FIRST_BUCKET, chunk or length)
        if self.sequence_parallel and all(bucket % self.tensor_parallel_size for bucket in prefill_buckets):
            raise ConfigError(
                f"sequence_parallel=True divides no prompt: none of prefill_buckets={prefill_buckets} is a multiple of "
                f"tensor_parallel_size={self.tensor_parallel_size}.",
                hint=f"Pass multiples of {self.tensor_parallel_size} as prefill_buckets, or remove sequence_parallel.",
                option="sequence_parallel",
                prefill_buckets=list(prefill_buckets),
            )
        require_kernel_blocks(self.attention_kernel, prefill_buckets)
        return {
            "sequence_length": length,
            "prefill_buckets": prefill_buckets,
            "decode_buckets": self.decode_buckets or default_buckets(FIRST_DECODE_BUCKET, length),
            "prefill_chunk_size": chunk,
            "extend_length": min(self.extend_length, chunk or length),
            "max_topk": self.max_topk or (DEFAULT_MAX_TOPK if self.on_device_sampling else None),
            "max_lora_rank": self.max_lora_rank or (None if self.max_loras is None else DEFAULT_LORA_RANK),
        } | (block_sizes(self, length) if self.continuous_batching else {})

    def resolve(self, *, max_position_embeddings: int) -> Self:
        """Return the complete configuration, with sequence length and buckets for a model.

        Raises:
            ConfigError: the sequence is longer than the model has positions.
        """
        return self.completed(**self._lengths(max_position_embeddings))


def num_cores_of(config: CompileConfig) -> int:
    """Return the number of cores that a compiled model runs on; kinds of models without a degree have one."""
    return math.prod(getattr(config, name, 1) for name in DEGREES)


def plain_op_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of operators in one spelling, in order: "aten::sort" and "aten.sort.stable" are "aten.sort".

    >>> plain_op_names(["aten::sort", "aten.argsort", "aten.sort.stable"])
    ('aten.argsort', 'aten.sort')
    """
    return tuple(sorted({".".join(name.replace("::", ".").split(".")[:2]) for name in names}))
