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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

from ..base.core import AttentionKernel, AutoCast, AutoCastType, KVCacheDtype, OptLevel, TorchDtype
from ..errors import ConfigError, invalid_choice, raise_together
from .decoder_options import (
    BLOCK_OPTIONS,
    DecoderOptions,
    block_sizes,
    decoder_errors,
    require_kernel_blocks,
    wrong_type,
)
from .hooks import HOOKS
from .option import MODEL_GROUP, ChecksKeywords, HasOptions, check_known, option, options_of
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CompileConfig(SavedConfig, ChecksKeywords, HasOptions):
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

    # Values of options that a kind does not have; a kind that has one declares it as a field.

    @property
    def tensor_parallel_size(self) -> int:
        """Cores that share every layer."""
        return 1

    @property
    def pipeline_parallel_size(self) -> int:
        """Stages that the layers are divided into."""
        return 1

    @property
    def quantization(self) -> str | None:
        """Scheme of quantized weights."""
        return None

    @property
    def modules_to_not_convert(self) -> tuple[str, ...]:
        """Modules that are not quantized."""
        return ()

    @property
    def kv_cache_dtype(self) -> KVCacheDtype:
        """What keys and values are stored in."""
        return "auto"

    @property
    def max_topk(self) -> int | None:
        """Likeliest tokens that a step returns."""
        return None

    @property
    def max_loras(self) -> int | None:
        """LoRA adapters that are loaded at once."""
        return None

    @property
    def output_attentions(self) -> bool:
        """Whether attention weights are returned too."""
        return False

    @property
    def decoder_sequence_length(self) -> int | None:
        """Tokens of an answer, beside those of the input."""
        return None

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

    def completed(self, **sizes: object) -> Self:
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
    def from_pretrained(cls, model_id: str | Path, **where: object) -> Self:
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
class NeuronConfig(DecoderAttributes, DecoderOptions, CompileConfig):
    """Static shapes, arithmetic and target of one compiled decoder.

    >>> NeuronConfig(batch_size=1, sequence_length=512).resolve(max_position_embeddings=8192).prefill_buckets
    (128, 512)
    """

    group: ClassVar[str] = "shapes (a graph is static: every size is fixed here)"
    sizes_of_model: ClassVar[tuple[str, ...]] = ("sequence_length", "prefill_buckets", "decode_buckets")

    task: str = "text-generation"
    """Task, as transformers' pipelines name it."""

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
        if self.quantization is not None and self.auto_cast != "none":
            message = (
                f"quantization={self.quantization!r} rounds weights, and auto_cast={self.auto_cast!r} rounds them too."
            )
            hint = "Pass one of the two; torch_dtype=bfloat16 makes activations narrow."
            yield ConfigError(message, hint=hint, options=["quantization", "auto_cast"])

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
    return math.prod(degrees_of(config).values())


def degrees_of(config: CompileConfig) -> dict[str, int]:
    """Return `DEGREES` with their values, 1 for kinds of models without them."""
    return {name: getattr(config, name) for name in DEGREES}


def plain_op_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of operators in one spelling, in order: "aten::sort" and "aten.sort.stable" are "aten.sort".

    >>> plain_op_names(["aten::sort", "aten.argsort", "aten.sort.stable"])
    ('aten.argsort', 'aten.sort')
    """
    return tuple(sorted({".".join(name.replace("::", ".").split(".")[:2]) for name in names}))


def is_export(folder: Path) -> bool:
    """Return whether a folder is a complete export."""
    return (folder / CONFIG_FILE).is_file() and (folder / NEFF_FILE).is_file()


def is_broken_export(folder: Path) -> bool:
    """Return whether a folder has part of an export, as a killed process leaves it."""
    return (folder / CONFIG_FILE).is_file() != (folder / NEFF_FILE).is_file()


def is_plain(folder: Path) -> bool:
    """Return whether a folder has no file of an export, of this package or of the vendor's."""
    programs = (NEFF_FILE, f"encoder/{NEFF_FILE}", f"decoder/{NEFF_FILE}")
    return not any((folder / name).exists() for name in (CONFIG_FILE, *programs))
