"""What there is for scripts of Optimum Neuron: its rules, names of attributes, dtypes, and a file of their own.

Whether a call came through `optimum.neuron` decides about rules: it ignores options that a model does not have, and
requests for results of layers that were not exported; this package refuses both. It exports a checkpoint only with
`export=True`.

Attributes say the same as the fields of `configuration.NeuronConfig`; those of features that are not here have the
value that stands for their absence. Options of other libraries are options here under other names, or change nothing
for a reason.

    >>> renamed({"tp_degree": 2, "batch_size": 1}, {"tp_degree": "tensor_parallel_size"})
    {'batch_size': 1, 'tensor_parallel_size': 2}
    >>> with upstream_rules():
    ...     follows_upstream()
    True
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..errors import ConfigError

logger = logging.getLogger(__name__)


_FOLLOWED: ContextVar[set[str] | None] = ContextVar("rules of Optimum Neuron", default=None)
"""What the block has logged; None outside of blocks."""


@contextlib.contextmanager
def upstream_rules() -> Iterator[None]:
    """Follow the rules of Optimum Neuron inside a block, in this thread."""
    told = _FOLLOWED.get()
    token = _FOLLOWED.set(set() if told is None else told)
    try:
        yield
    finally:
        _FOLLOWED.reset(token)


def follows_upstream() -> bool:
    """Return whether the rules of Optimum Neuron are followed."""
    return _FOLLOWED.get() is not None


def tell_ignored(shown: str, reason: str) -> None:
    """Log what is ignored under the rules of Optimum Neuron, once in a block.

    Args:
        shown: options with their values.
        reason: why they change nothing.
    """
    told, line = _FOLLOWED.get(), f"{shown} changes nothing: {reason}."
    if told is None or line in told:
        return
    told.add(line)
    logger.info("%s", line)


def without_foreign(options: Mapping[str, Any], names: Collection[str], model: str) -> dict[str, Any]:
    """Return the options of a call; under Optimum Neuron's rules, without the ones that the model does not have."""
    foreign = {name: value for name, value in options.items() if name not in names}
    if not foreign or not follows_upstream():
        return dict(options)
    shown = ", ".join(f"{name}={value!r}" for name, value in foreign.items())
    tell_ignored(shown, f"{model} has no such option")
    return {name: value for name, value in options.items() if name in names}


def renamed(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return options under the names that they have here.

    Args:
        names: other names, and the options that they are.
    """
    own = {name: value for name, value in options.items() if name not in names}
    return joined(own, ((name, names[name], options[name]) for name in names if name in options))


def joined(options: dict[str, Any], others: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return options, with the values of others: each a name, the option that it is, and a value."""
    options = dict(options)
    for other, name, value in others:
        if options.setdefault(name, value) != value:
            message = f"{other}={value!r} and {name}={options[name]!r} are the same option."
            raise ConfigError(message, hint=f"Pass {name} only: {other} is another name for it.", options=[other, name])
    return options


def report_without_effect(options: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Log, in one INFO line for each, which options change nothing, and why."""
    for name in reasons:
        if name in options:
            logger.info("%s=%r changes nothing: %s.", name, options[name], reasons[name])


CONFIG_FILE = "neuron_config.json"
"""Name of the file in an exported folder."""

NEFF_FILE = "model.neuron"
"""Name of the compiled program in an exported folder, as users' tools look for it."""

FILE_VERSION = 1
"""Version of a file with a configuration alone."""


class DtypeName(str):
    """Name of a dtype, which is equal to the `torch.dtype` too.

    >>> import torch
    >>> DtypeName("float16") == torch.float16, DtypeName("float16") == "float16"
    (True, True)
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other).__name__ == "dtype" and type(other).__module__ == "torch":
            return str(other) == f"torch.{self}"
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def dtype_name(value: object) -> Any:
    """Return a dtype, a name or of torch, as its name; anything else as it is."""
    is_dtype = isinstance(value, str) or type(value).__name__ == "dtype"
    return DtypeName(str(value).removeprefix("torch.")) if is_dtype else value


class SavedConfig:
    """A configuration that can be saved without a model."""

    ATOL_FOR_VALIDATION: float | None = None
    """Tolerance of a validation; None: it is derived from the arithmetic."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        raise NotImplementedError

    def save_pretrained(self, save_directory: str | Path) -> None:
        """Save the configuration alone, for `from_pretrained`."""
        folder = Path(save_directory)
        if (folder / NEFF_FILE).exists():
            message = f"{folder} has an exported model, which was compiled with its own configuration."
            raise ConfigError(message, hint="Choose another folder.", folder=str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        data = {"version": FILE_VERSION, "config_class": type(self).__name__, "neuron": self.to_dict()}
        (folder / CONFIG_FILE).write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _same_as(name: str, meaning: str = "") -> Any:
    """Return a property that is another attribute."""
    return property(lambda self: getattr(self, name), doc=meaning or f"`{name}`.")


class DecoderAttributes:
    """Attributes of a decoder's configuration under the names of Optimum Neuron."""

    batch_size: int
    sequence_length: int
    continuous_batching: bool
    tensor_parallel_size: int
    pipeline_parallel_size: int
    extend_length: int
    speculation: bool
    target: str

    checkpoint_id: str | None = None
    """Model that was exported; None for a configuration of no export."""
    checkpoint_revision: str | None = None
    """Its branch, tag, or commit on the Hub, if one was named."""
    ep_degree = 1
    """Groups of cores with different experts; experts are shared by tensor parallelism here."""
    fused_qkv = False
    """Whether queries, keys, and values are one matrix; layouts are the compiler's choice here."""
    output_logits = True
    """Whether calls can return logits: always here."""
    start_rank_id = 0
    """First core of this process in a group of several instances."""
    capacity_factor: float | None = None
    """Tokens of an expert, as a multiple of its share; None: no token is dropped."""
    glu_mlp = True
    """Whether experts have a gate."""

    tp_degree = _same_as("tensor_parallel_size")
    pp_degree = _same_as("pipeline_parallel_size")
    local_ranks_size = _same_as("world_size", "Cores of the model in this process.")
    max_batch_size = _same_as("batch_size")
    tkg_batch_size = _same_as("batch_size", "Sequences of a decode step.")
    max_context_length = _same_as("sequence_length", "Longest prompt.")
    n_active_tokens = _same_as("sequence_length", "Tokens of the longest prompt.")

    @property
    def world_size(self) -> int:
        """Cores of the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.ep_degree

    @property
    def ctx_batch_size(self) -> int:
        """Prompts that are read at once."""
        return 1 if self.continuous_batching else self.batch_size

    @property
    def speculation_length(self) -> int:
        """Tokens that a call checks for an assistant; 0: none were requested."""
        return self.extend_length if self.speculation else 0

    @property
    def logical_nc_config(self) -> int:
        """Physical cores of a core that programs see, by the chip's default (`hardware/chips.py`)."""
        return 1 if self.target in ("inf2", "trn1", "trn1n") else 2

    @property
    def weights_to_skip_layout_optimization(self) -> list[str]:
        """Weights whose layout the compiler may not change: none."""
        return []


def with_origin(config: object, checkpoint: str | None, revision: str | None) -> Any:
    """Note in a frozen configuration which model it was compiled for, and return it."""
    if isinstance(config, DecoderAttributes):
        object.__setattr__(config, "checkpoint_id", checkpoint)
        object.__setattr__(config, "checkpoint_revision", revision)
    return config
