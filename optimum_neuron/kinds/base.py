"""What differs between kinds of models, behind one small interface: `Kind`.

A step of an export knows a task and an architecture and asks `registry.kind_of(task, model_type)`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ..base.core import Choice
from ..base.transformers_types import PreTrainedConfig, PreTrainedModel
from ..errors import ConfigError, ModelError
from ..options.configuration import DEGREES, CompileConfig
from ..options.peer_attributes import renamed, report_without_effect
from ..sources import architectures_of, tasks_of
from ..weights import Shards

if TYPE_CHECKING:
    from ..compiler import Program, Recapture
    from ..engine import Signature
    from ..sources import ModelSource
    from .scenario import Recorder, Scenario


MODEL = "model"
"""Attribute of captured modules that holds the model: the first part of a program's weight names."""

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
    """Further metadata of the NEFF that running the program needs."""
    num_stages: int = 1
    """Pipeline stages that the layers are divided into."""
    prefixes: tuple[str, ...] = (MODEL,)
    """Paths of the user's model inside the captured modules, the longest first."""


SHARING = "prefix_sharing"
"""Why requests of continuous batching do not share prefixes, in a program's metadata."""
DECODER_CHOICES = ("attention", "windows", "quantization", "attention_kernel", "kv_cache")
"""Automatic choices of decoders in a program's metadata, where there were any; see `models.Family`."""


def shard_facts(shards: Shards) -> dict[str, Any]:
    """Return the metadata of a model's divided weights; `shards` has their names in the model."""
    return {} if shards.group_size == 1 else {"shards": shards.under(MODEL).to_dict()}


Config = TypeVar("Config", bound=CompileConfig)


class Kind(ABC, Generic[Config]):
    """How one kind of model is configured, built, compared and recognized. Its methods keep no state."""

    name: ClassVar[str]
    """Key in `KINDS`."""
    config_class: type[Config]
    """Its configuration; users may leave sizes open."""

    synonyms: ClassVar[Mapping[str, str]] = {}
    """Keywords of Optimum Neuron for this kind, to the options that they are here."""
    without_effect: ClassVar[Mapping[str, str]] = {
        "num_beams": "generate() takes any number of beams",
        "dynamic_batch_size": ANY_BATCH,
    }
    """Keywords of other kinds that change nothing for this one, and why."""

    captures_module: ClassVar[bool] = False
    """Whether the code of a model in memory is captured, instead of that of its architecture."""
    generates: ClassVar[bool] = False
    """Whether it generates tokens one after the other."""
    is_estimated_by_size: ClassVar[bool] = False
    """Whether an estimate needs only the sizes of its text decoder, and captures no graph."""
    estimate_note: ClassVar[str] = ""

    def plain(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options under the names that they have here; options without effect are logged and removed.

        Raises:
            ConfigError: an option is given under both of its names.
        """
        options = dict(options)
        for name in DEGREES:
            if name not in self.config_class.option_names() and (degree := options.pop(name, 1)) != 1:
                message = f"{name}={degree} is not supported for this kind of model ({self.name})."
                hint = "Pass 1; data_parallel_mode puts replicas on several cores."
                raise ConfigError(message, hint=hint, option=name, value=degree)
        report_without_effect(options, self.without_effect)
        return renamed(
            {name: value for name, value in options.items() if name not in self.without_effect}, self.synonyms
        )

    def batch_options(self, task: str) -> tuple[str, ...]:
        """Return the keywords that set a model's batch size."""
        return tuple({"batch_size"} & set(self.config_class.option_names()))

    def unserved(self, source: ModelSource, task: str) -> str:
        """Return why transformers has no model of this architecture for a task; empty: it has one."""
        config = source.config
        is_served = config.model_type in architectures_of(task) or hasattr(config, "auto_map")
        return "" if is_served else "transformers has no class for it"

    def require_task(self, source: ModelSource, task: str) -> None:
        """Reject an architecture that does not serve a task."""
        if reason := self.unserved(source, task):
            model_type, tasks = source.config.model_type, tasks_of(source.config.model_type)
            message = f"A {model_type} model does not support {task}: {reason}."
            hint = f"Pass one of its tasks ({', '.join(tasks) or 'none can be exported'}), or another checkpoint."
            raise ModelError(message, hint=hint, task=task, model_type=model_type, tasks=tasks)

    def ignored_endings(self) -> tuple[str, ...]:
        """Fields of a transformers configuration that no graph depends on, by the end of their name."""
        return ("dropout", "dropout_prob", "layerdrop", "pdrop", "initializer_range", "initializer_factor")

    @abstractmethod
    def resolve(self, source: ModelSource, config: Config, *, trust_remote_code: bool) -> Config:
        """Return the complete configuration, with sizes that depend on the model.

        Raises:
            ConfigError, ModelError: the model cannot be compiled like that.
        """

    @abstractmethod
    def plan(self, source: ModelSource, config: Config, *, trust_remote_code: bool) -> Plan:
        """Build the model without weights.

        Raises:
            CaptureError, ModelError: it cannot be built, or its code is not static.
        """

    def signature(self, program: Program, metadata: Mapping[str, Any], model_config: PreTrainedConfig) -> Signature:
        """Return how a program is called."""
        from ..engine import Signature

        if "signature" in metadata:
            return Signature.from_dict(metadata["signature"])
        return self.rebuilt_signature(program, metadata, model_config)

    def rebuilt_signature(
        self, program: Program, metadata: Mapping[str, Any], model_config: PreTrainedConfig
    ) -> Signature:
        """Return how a program is called whose NEFF was written before there were signatures."""
        raise AssertionError(f"every {self.name} has a signature")

    @abstractmethod
    def scenarios(
        self, recorder: Recorder, reference: PreTrainedModel, metadata: Mapping[str, Any], config: Config
    ) -> Iterable[Scenario]:
        """Return the uses of a model that its validation compares with the reference model in float32."""

    def prepare_reference(self, reference: PreTrainedModel, config: Config) -> Any:
        """Return the reference model so that it returns everything that the compiled one does."""
        return reference

    @abstractmethod
    def problems(self, program: Program, metadata: Mapping[str, Any], config: Config) -> list[str]:
        """Return how a program differs from a configuration; it would fail in the middle of a run."""


def other_graphs(program: Program, expected: Collection[str]) -> list[str]:
    """Return a problem if the graphs of a program have other names than expected."""
    if set(program.graphs) == set(expected):
        return []
    return [f"its graphs are {', '.join(sorted(program.graphs))} instead of {', '.join(sorted(expected))}"]
