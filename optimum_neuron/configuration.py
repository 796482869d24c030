"""Everything that decides how a model is compiled, as saved beside the artifact.

`CompileConfig` has what every model has, `NeuronConfig` what a decoder has; `exporters/encoders/configuration.py` has
models of one forward. It knows nothing of transformers or files beyond its own JSON. Defaults that depend on the
model (sequence length, buckets) are filled in by `resolve`, so that a saved configuration has no open ends.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

from .core import AutoCast, AutoCastType, OptLevel, TorchDtype
from .errors import ConfigError, nearest, refusal

CONFIG_FILE = "neuron_config.json"
"""Name of the file in an exported folder."""

NEFF_FILE = "model.neuron"
"""Name of the compiled program in an exported folder, as users' tools look for it."""

MAX_DEFAULT_SEQUENCE_LENGTH = 4096
"""Default sequence length where the model allows more."""
FIRST_BUCKET = 128
"""Smallest default prompt bucket; the next ones are four times as long."""
FIRST_DECODE_BUCKET = 1024
"""Smallest default decode bucket: with fewer slots, attention is a small part of a step."""


_NAMES = {"task": "text-generation", "target": "inf2", "instance_type": "inf2.xlarge"}
"""Fields that hold a name, each with an example."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileConfig:
    """Task, arithmetic and target of one compiled model, whatever its shapes are."""

    resolved: ClassVar[tuple[str, ...]] = ()
    """Fields that `resolve` fills in."""

    task: str
    """Task, as transformers' pipelines name it."""
    target: str = "inf2"
    """Compile target: inf2, trn1, trn1n, trn2 or trn3."""
    instance_type: str = "inf2.xlarge"
    """Instance whose memory and cores are simulated."""
    auto_cast: AutoCast = "none"
    """Which float32 operations are rounded to `auto_cast_type`."""
    auto_cast_type: AutoCastType = "bf16"
    """What auto-cast rounds to."""
    optlevel: OptLevel = "2"
    """Effort: "1" starts at once, "2" compiles each distinct block, "3" also tries alternative kernels."""
    torch_dtype: TorchDtype = "float32"
    """Dtype of weights and cache."""
    allow_host_ops: tuple[str, ...] = ()
    """Operators that may run on the host where the target refuses them, for example ["aten.sort"]."""
    inline_weights_to_neff: bool = False
    """Keep the weights inside the NEFF instead of beside it."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ConfigError("\n".join(problems))
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), list):
                # JSON and keyword arguments bring lists; a frozen configuration holds a tuple.
                object.__setattr__(self, field.name, tuple(value))
        object.__setattr__(self, "allow_host_ops", plain_op_names(self.allow_host_ops))

    def _problems(self) -> Iterator[str]:
        """One refusal for each value that is not allowed."""
        choices = {
            "auto_cast": AutoCast,
            "auto_cast_type": AutoCastType,
            "optlevel": OptLevel,
            "torch_dtype": TorchDtype,
        }
        for name, kind in choices.items():
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed:
                yield refusal(
                    asked=f"{name}={value!r}",
                    found=f"not one of {', '.join(allowed)}" + nearest(str(value), allowed),
                    why="the compiler knows no other",
                    do="pass one of them",
                )
        for name, example in _NAMES.items():
            if not isinstance(value := getattr(self, name), str):
                yield f"{name}={value!r} is a {type(value).__name__}. Pass a name, such as {name}={example!r}."
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool) and not isinstance(value, bool):
                yield refusal(
                    asked=f"{field.name}={value!r}",
                    found=f"a {type(value).__name__}",
                    why="it is a switch",
                    do="pass True or False",
                )
        names = self.allow_host_ops
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            yield refusal(
                asked=f"allow_host_ops={names!r}",
                found="not a list of names",
                why="each operator that may run on the host is allowed by its name",
                do='pass for example ["aten.sort"]',
            )
        if self.auto_cast != "none" and self.torch_dtype != "float32":
            yield refusal(
                asked=f"auto_cast={self.auto_cast!r} with torch_dtype={self.torch_dtype!r}",
                found="two settings for the same arithmetic",
                why="auto-cast rounds float32 operations, and this model has none",
                do="keep one of the two: torch_dtype for weights and cache, or auto_cast on float32 weights",
            )

    @property
    def axes(self) -> tuple[str, ...]:
        """Fields that are sizes of the model's inputs."""
        return ()

    @property
    def static_shapes(self) -> dict[str, int | list[int]]:
        """Compiled size or sizes of each axis."""
        data = self.to_dict()
        return {axis: data[axis] for axis in self.axes}

    def open_ends(self) -> list[str]:
        """Return the fields of `resolved` that have no value; an exported folder has none of them."""
        return [name for name in self.resolved if getattr(self, name) is None]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }

    def to_json(self) -> str:
        """JSON text, sorted."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build from plain data.

        Raises:
            ConfigError: a key is unknown (the nearest one is named) or a value is not allowed.
        """
        check_known(data, cls.field_names(), what=cls.__name__)
        return cls(**data)

    @classmethod
    def from_pretrained(cls, model_id: str | Path, **where: Any) -> Self:
        """Read the configuration of an exported model.

        Args:
            model_id: exported folder, or id on the Hub.
            **where: `subfolder, revision, token, cache_dir, local_files_only, force_download`.

        Raises:
            ArtifactError: the model was not exported.
            ConfigError: it is a model of another kind.
        """
        from .exporters.folder import read_folder
        from .exporters.source import find_folder

        config = read_folder(find_folder(model_id, **where)).config
        if not isinstance(config, cls):
            raise ConfigError(
                f"{model_id} has a {type(config).__name__}, not a {cls.__name__}. Use {type(config).__name__}.",
                details={"model": str(model_id), "class": type(config).__name__},
            )
        return config

    @classmethod
    def field_names(cls) -> list[str]:
        """Names of all fields, those of a base class first."""
        return [field.name for field in dataclasses.fields(cls)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronConfig(CompileConfig):
    """Static shapes, arithmetic and target of one compiled decoder.

    Example:
        ```python
        from optimum_neuron import NeuronConfig

        config = NeuronConfig(batch_size=1, sequence_length=512)
        assert config.resolve(max_position_embeddings=8192).prefill_buckets == (128, 512)
        ```
    """

    resolved: ClassVar[tuple[str, ...]] = ("sequence_length", "prefill_buckets", "decode_buckets")

    task: str = "text-generation"
    """Task, as transformers' pipelines name it."""
    batch_size: int = 1
    """Rows of every graph; fewer are padded, more are split."""
    sequence_length: int | None = None
    """Tokens of a sequence, prompt and answer together; None: what the model allows, at most 4096."""
    prefill_buckets: tuple[int, ...] | None = None
    """Prompt lengths to compile for; None: 128, then four times longer each, up to sequence_length."""
    decode_buckets: tuple[int, ...] | None = None
    """Cache slots that a decode step attends to; None: 1024, then four times as many, up to sequence_length."""
    extend_length: int = 8
    """Tokens that one call adds to a sequence that is already in the cache (assisted generation)."""
    family: str | None = None
    """Implementation: a family's name or "generic"; None chooses."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Fields that are sizes of the model's inputs."""
        return ("batch_size", "sequence_length")

    def _problems(self) -> Iterator[str]:
        for name in ("batch_size", "sequence_length", "extend_length"):
            value = getattr(self, name)
            if not is_count(value) and not (name == "sequence_length" and value is None):
                yield count_refusal(name, value)
        yield from super()._problems()
        for name in _BUCKETS:
            yield from self._bucket_problems(name)

    def _bucket_problems(self, name: str) -> Iterator[str]:
        buckets, length = getattr(self, name), self.sequence_length
        if buckets is None:
            return
        if not is_rising(buckets):
            yield refusal(
                asked=f"{name}={buckets}",
                found="not a rising list of lengths",
                why="a sequence goes to the smallest bucket that holds it",
                do="pass for example (128, 512)",
            )
        elif isinstance(length, int) and buckets[-1] > length:
            yield refusal(
                asked=f"{name}={tuple(buckets)} with sequence_length={length}",
                found=f"the largest bucket is longer by {buckets[-1] - length}",
                why="the cache has sequence_length slots",
                do=f"end the buckets at {length}",
            )
        elif isinstance(length, int) and name == "decode_buckets" and buckets[-1] < length:
            yield refusal(
                asked=f"{name}={tuple(buckets)} with sequence_length={length}",
                found=f"no step sees the last {length - buckets[-1]} slots",
                why="a sequence of that length could not be continued",
                do=f"end the buckets at {length}",
            )

    def resolve(self, *, max_position_embeddings: int) -> Self:
        """Return a copy with sequence length and buckets filled in for a model.

        Raises:
            ConfigError: the sequence is longer than the model has positions.
        """
        length = self.sequence_length or min(max_position_embeddings, MAX_DEFAULT_SEQUENCE_LENGTH)
        if length > max_position_embeddings:
            raise ConfigError(
                refusal(
                    asked=f"sequence_length={length}",
                    found=f"the model has {max_position_embeddings} positions",
                    why="positions beyond max_position_embeddings were never trained",
                    do=f"pass sequence_length={max_position_embeddings} or less",
                )
            )
        return dataclasses.replace(
            self,
            sequence_length=length,
            prefill_buckets=self.prefill_buckets or default_buckets(FIRST_BUCKET, length),
            decode_buckets=self.decode_buckets or default_buckets(FIRST_DECODE_BUCKET, length),
            extend_length=min(self.extend_length, length),
        )


_BUCKETS = ("prefill_buckets", "decode_buckets")


def plain_op_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of operators in one spelling, in order: "aten::sort" and "aten.sort.stable" are "aten.sort".

    >>> plain_op_names(["aten::sort", "aten.argsort", "aten.sort.stable"])
    ('aten.argsort', 'aten.sort')
    """
    return tuple(sorted({".".join(name.replace("::", ".").split(".")[:2]) for name in names}))


def default_buckets(first: int, length: int) -> tuple[int, ...]:
    """Return `first`, then four times as much each, and `length` at the end."""
    rising = [first]
    while rising[-1] < length:
        rising.append(4 * rising[-1])
    return (*rising[:-1], length)


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 1; True and 1.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_rising(values: Any) -> bool:
    """Whether values are a non-empty rising list of counts, as buckets must be."""
    return (
        isinstance(values, (list, tuple))
        and len(values) > 0
        and all(map(is_count, values))
        and list(values) == sorted(set(values))
    )


def count_refusal(name: str, value: Any) -> str:
    """The refusal of a size that is no count."""
    return refusal(
        asked=f"{name}={value!r}",
        found="not a whole number of at least 1",
        why="compiled graphs have static, non-empty shapes",
        do=f"pass {name}=1 or more",
    )


def check_known(given: dict[str, Any], known: list[str], *, what: str) -> None:
    """Refuse unknown keywords, all at once, each with the nearest known one.

    Raises:
        ConfigError: at least one keyword is unknown.
    """
    unknown = [name for name in given if name not in known]
    if unknown:
        listed = "; ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
        raise ConfigError(
            refusal(
                asked=f"options of {what}",
                found=f"unknown: {listed}",
                why="an option that nobody reads would be ignored in silence",
                do=f"use {', '.join(sorted(known))}",
            )
        )
