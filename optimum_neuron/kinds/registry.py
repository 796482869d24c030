"""The kinds of models that can be exported, by name.

A kind is a row of `KINDS`: its configuration, and a module with a `Kind` named KIND. The module is imported for
models of the kind only; the command line, keyword arguments, and the cache need no more than the row.

`register_kind` and `register_task` add a kind; no other file changes.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.transformers_types import PreTrainedConfig
from ..options.configuration import CompileConfig, NeuronConfig
from ..options.option import options_of
from ..sources import find_task
from .base import Kind
from .diffusion import NeuronDiffusionConfig
from .encoder import NeuronEncoderConfig
from .encoder_decoder import (
    NeuronSeq2SeqConfig,
    NeuronSpeechSeq2SeqConfig,
)
from .multimodal.audio import NeuronAudioTextConfig
from .multimodal.image import NeuronImageTextConfig

if TYPE_CHECKING:
    from ..compiler import Program
    from ..engine import Signature


@dataclasses.dataclass(frozen=True, kw_only=True)
class KindRow:
    """The data of a kind."""

    config_class: type[CompileConfig]
    """Configuration; its fields are the kind's keywords and options. Exported folders hold a complete one."""
    module: str
    """Module with the `Kind`, as KIND."""


KINDS = {
    name: KindRow(config_class=config_class, module=f"{__package__}.{module}")
    for name, config_class, module in (
        ("decoder", NeuronConfig, "decoder.plan"),
        ("seq2seq", NeuronSeq2SeqConfig, "encoder_decoder.plan"),
        ("speech", NeuronSpeechSeq2SeqConfig, "encoder_decoder.speech"),
        ("image_text", NeuronImageTextConfig, "multimodal.image.plan"),
        ("audio_text", NeuronAudioTextConfig, "multimodal.audio.plan"),
        ("encoder", NeuronEncoderConfig, "encoder.plan"),
        ("diffusion", NeuronDiffusionConfig, "diffusion.plan"),
    )
}
"""Every kind by its name, which is `Task.kind`, in the order of their options on the command line."""


def register_kind(name: str, row: KindRow) -> None:
    """Add a kind."""
    if KINDS.setdefault(name, row) != row:
        raise ValueError(f"a kind named {name!r} is registered already")


def config_classes() -> tuple[type[CompileConfig], ...]:
    """Return the configurations that users write, the base class first."""
    return (CompileConfig, *(row.config_class for row in KINDS.values()))


def compile_options(*, of_graphs: bool = False) -> tuple[str, ...]:
    """Return the keywords that decide a program; a model has those of its kind.

    Args:
        of_graphs: only options that decide which operators the graphs have.
    """
    options = {name: option for config_class in config_classes() for name, option in options_of(config_class).items()}
    return tuple(name for name, option in options.items() if option.is_keyword and (option.in_graph or not of_graphs))


def kind_of(task: str, model_type: str) -> Kind[Any]:
    """Return the kind of a task's models; if a task has several, the architecture decides."""
    kind: Kind[Any] = importlib.import_module(KINDS[find_task(task, model_type).kind].module).KIND
    return kind


def signature_of(
    program: Program, metadata: Mapping[str, Any], *, task: str, model_config: PreTrainedConfig
) -> Signature:
    """Return how a compiled model is called."""
    return kind_of(task, model_config.model_type).signature(program, metadata, model_config)
