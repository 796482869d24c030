"""What differs between kinds of models while they are exported, behind one small interface.

`prepare`, `build`, `save` and `load_exported` know a task and an architecture and ask `kind_of(task, model_type)`: a
decoder is compiled into prompts and steps that share a cache (`decoder.py`), an encoder into one graph for each
combination of buckets (`encoders/plan.py`), an encoder-decoder into both (`seq2seq/plan.py`, `seq2seq/speech.py`).
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..configuration import CompileConfig
from ..core import Choice
from ..errors import ConfigError
from .tasks import find_task

if TYPE_CHECKING:
    from ..compiler.compile import Recapture
    from ..compiler.ir import Program
    from ..engine import Signature
    from .source import ModelSource
    from .validation import Recorder, Scenario


logger = logging.getLogger(__name__)


ANY_BATCH = "every batch is padded to the compiled one, or split over it"
"""Why a model that generates needs no `dynamic_batch_size`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A model that was built and can be captured."""

    choice: Choice[str]
    """The implementation, and why."""
    captures: Sequence[Recapture]
    """One function for each entry point."""
    weight_sources: Mapping[str, tuple[str, ...]]
    """Weight of the program to the checkpoint tensors that are joined along dimension 0."""
    facts: Mapping[str, Any]
    """What else the NEFF must say, so that the program can be run."""


class Kind(ABC):
    """How one kind of model is configured, built, compared and recognized. Its methods keep no state."""

    name: ClassVar[str]
    """As `Task.kind`."""
    config_class: ClassVar[type[CompileConfig]]
    """What decides a compile of this kind."""
    options: ClassVar[tuple[str, ...]]
    """Keywords of this kind beside those that every compile has."""

    synonyms: ClassVar[Mapping[str, str]] = {}
    """Keywords of Optimum Neuron for this kind, to the options that they are here."""
    without_effect: ClassVar[Mapping[str, str]] = {
        "num_beams": "generate() takes any number of beams",
        "dynamic_batch_size": ANY_BATCH,
    }
    """Keywords of other kinds that change nothing for this one, and why."""

    captures_module: ClassVar[bool] = False
    """Whether the code of a model in memory is captured, and not that of its architecture."""

    def plain(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options under the names that they have here; what changes nothing is reported and left out.

        Raises:
            ConfigError: an option is given under both of its names.
        """
        plain = {name: value for name, value in options.items() if name not in (*self.synonyms, *self.without_effect)}
        for name in options.keys() & self.without_effect.keys():
            logger.info("%s=%r changes nothing: %s.", name, options[name], self.without_effect[name])
        for name in options.keys() & self.synonyms.keys():
            ours = self.synonyms[name]
            if plain.setdefault(ours, options[name]) != options[name]:
                raise ConfigError(
                    f"{name}={options[name]!r} and {ours}={plain[ours]!r} are the same option. Pass {ours} only.",
                    details={"options": [name, ours]},
                )
        return plain

    def converts(self, family: str) -> bool:
        """Whether tensors that a checkpoint does not have may be had from transformers' own loader."""
        return True

    def ignored_endings(self) -> tuple[str, ...]:
        """Fields of a transformers configuration that no graph depends on, by the end of their name."""
        return ("dropout", "dropout_prob", "layerdrop", "pdrop", "initializer_range", "initializer_factor")

    @abstractmethod
    def resolve(self, source: ModelSource, config: Any, *, trust_remote_code: bool) -> Any:
        """Fill in what depends on the model.

        Raises:
            ConfigError, ModelError: the model cannot be compiled like that.
        """

    @abstractmethod
    def plan(self, source: ModelSource, config: Any, *, trust_remote_code: bool) -> Plan:
        """Build the model without weights.

        Raises:
            CaptureError, ModelError: it cannot be built, or its code is not static.
        """

    @abstractmethod
    def signature(self, program: Program, metadata: Mapping[str, Any], model_config: Any) -> Signature:
        """Return how a program is called, from its NEFF or, where that is of an older version, from its graphs."""

    @abstractmethod
    def scenarios(
        self, recorder: Recorder, reference: Any, metadata: Mapping[str, Any], config: Any
    ) -> Iterable[Scenario]:
        """Return the uses of a model that its validation compares with the reference model in float32."""

    def prepare_reference(self, reference: Any, config: Any) -> Any:
        """Return the reference model so that it returns everything that the compiled one does."""
        return reference

    @abstractmethod
    def problems(self, program: Program, metadata: Mapping[str, Any], config: Any) -> list[str]:
        """What in a program does not belong to a configuration; it would fail in the middle of a run."""


_MODULES = {
    "decoder": "decoder",
    "encoder": "encoders.plan",
    "seq2seq": "seq2seq.plan",
    "speech": "seq2seq.speech",
    "image_text": "image_text.plan",
}


def kind_of(task: str, model_type: str) -> Kind:
    """The kind of a task's models; one task can have two, of which the architecture is one."""
    return importlib.import_module(f"{__package__}.{_MODULES[find_task(task, model_type).kind]}").KIND


def signature_of(program: Program, metadata: Mapping[str, Any], *, task: str, model_config: Any) -> Signature:
    """Return how a compiled model is called."""
    return kind_of(task, model_config.model_type).signature(program, metadata, model_config)
