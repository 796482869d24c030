"""A diffusion pipeline to be estimated: its models without weights, its calls, and their programs.

Programs are captured as an export would capture them; those of an exported folder are read from it.

    pipeline = read_pipeline(folder, name="stable-diffusion-1.5")
    pipeline.calls(config, num_steps=20)["unet"]     # the calls of a picture, and how often each is made
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...exporters import read_folder
from ...kinds.diffusion import (
    NeuronDiffusionConfig,
    calls_of,
    component_of,
    config_of_part,
    count_calls,
    is_shared,
    split_component,
    whole_config,
)
from ...options.configuration import NEFF_FILE
from ...sources import ModelSource, is_exported_pipeline, load_source, read_index
from ...sources.pipelines import (
    DENOISERS,
    bare_pipeline,
    component_sources,
    empty_component,
    pipeline_class,
    read_additions,
)
from ..captures import program_of

if TYPE_CHECKING:
    from ...compiler import Program
    from ...engine import Call

KEPT = 8
"""Dry runs that are kept: a comparison estimates one pipeline on many instances."""
_DENOISERS = (*DENOISERS, "prior", "decoder")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One program of a pipeline for a request."""

    program: Program
    counts: Mapping[str, int]
    """Runs of each graph."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline whose models are known by their configurations."""

    name: str
    """Model argument as the user typed it."""
    folder: Path
    stock: Any = dataclasses.field(repr=False)
    """Its class in diffusers."""
    sources: Mapping[str, ModelSource] = dataclasses.field(hash=False, repr=False)
    """Models by their names in model_index.json."""
    compiled: Any = None
    """Configuration of an exported folder; None for a checkpoint."""

    @property
    def class_name(self) -> str:
        """Its class in diffusers."""
        return str(self.stock.__name__)

    @property
    def denoiser(self) -> str:
        """The model that runs in every step."""
        return next((name for name in _DENOISERS if name in self.sources), next(iter(self.sources)))

    def default(self, argument: str) -> Any:
        """Return the default of an argument of a call; None where it has no such argument."""
        parameter = inspect.signature(self.stock.__call__).parameters.get(argument)
        return None if parameter is None or parameter.default is inspect.Parameter.empty else parameter.default

    def takes(self, argument: str) -> bool:
        """Return whether a call has an argument."""
        return argument in inspect.signature(self.stock.__call__).parameters

    def bare(self, dtype: str) -> Any:
        """Return the stock pipeline, with models of a dtype and without weights."""
        return _bare(self._key, dtype, _Unkeyed(self))

    def calls(self, config: NeuronDiffusionConfig, *, num_steps: int | None) -> dict[str, list[tuple[Call, int]]]:
        """Return the calls of each program, and how often a request makes each."""
        fields = {name: getattr(config, name) for name in (*config.axes, "guidance_scale", "torch_dtype")}
        return _counted(self._key, json.dumps([fields, num_steps], sort_keys=True), _Unkeyed((self, config, num_steps)))

    def parts(self, config: NeuronDiffusionConfig, *, num_steps: int | None) -> dict[str, Part]:
        """Return the programs of a request: captured, or those of the folder."""
        pipe, parts = self.bare(config.torch_dtype), {}
        for part, counted in self.calls(config, num_steps=num_steps).items():
            component = component_of(part, self.sources)
            calls = [call for call, _ in counted]
            own = config_of_part(config, part, calls, component, getattr(pipe, component))
            if self.compiled is None:
                program, graphs = program_of(self.sources[component], own), [call.graph for call in calls]
            else:
                program, graphs = _compiled_part(self.folder / part, own.calls)
            counts = dict(zip(graphs, (count for _, count in counted), strict=True))
            parts[part] = Part(program=program, counts=counts)
        return parts

    def weight_bytes(self, component: str, dtype: str, num_cores: int) -> int:
        """Return the bytes of all weights of a model on one of the cores that may share it."""
        return _weight_bytes(self._key, component, dtype, num_cores, _Unkeyed(self.sources[component]))

    @property
    def _key(self) -> str:
        configs = {name: source.config.to_dict() for name, source in self.sources.items()}
        facts = [str(self.folder), self.class_name, configs, str(self.compiled)]
        return json.dumps(facts, sort_keys=True, default=str)


class _Unkeyed:
    """A value that a cached function needs and that the rest of its arguments decide."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unkeyed)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=KEPT)
def _bare(key: str, dtype: str, pipeline: _Unkeyed) -> Any:
    own = pipeline.value
    models = {name: empty_component(source, dtype) for name, source in own.sources.items()}
    index = ModelSource(name=own.name, folder=own.folder, config=read_index(own.folder), revision=None)
    return bare_pipeline(index, own.stock, models)


@functools.lru_cache(maxsize=KEPT)
def _counted(key: str, request: str, arguments: _Unkeyed) -> dict[str, list[tuple[Call, int]]]:
    pipeline, config, num_steps = arguments.value
    more = read_additions(pipeline.folder).example_images()
    return count_calls(pipeline.bare(config.torch_dtype), config, num_steps=num_steps, **more)


@functools.lru_cache(maxsize=4 * KEPT)
def _weight_bytes(key: str, component: str, dtype: str, num_cores: int, source: _Unkeyed) -> int:
    model = empty_component(source.value, dtype)
    split_component(model, num_cores if is_shared(model) else 1)
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def _compiled_part(folder: Path, calls: tuple[dict[str, Any], ...]) -> tuple[Program, list[str]]:
    """A program of an exported folder, and the graph of each call."""
    from ...artifact import open_artifact

    artifact = open_artifact(folder / NEFF_FILE)
    compiled = calls_of(artifact.metadata)
    graphs = []
    for call in calls_of({"calls": calls}):
        fits = [one.graph for one in compiled if _shape(one) == _shape(call)]
        if not fits:
            message = (
                f"The pipeline in {folder.parent} calls {folder.name}.{call.method} as no graph of it was compiled."
            )
            hint = "Its schedulers or tokenizers were changed: export the pipeline again."
            raise ModelError(message, hint=hint, folder=str(folder))
        graphs.append(fits[0])
    return artifact.program, graphs


def _shape(call: Call) -> Any:
    return call.method, call.arguments, [(leaf.name, leaf.shape) for leaf in call.inputs]


def read_pipeline(folder: Path, *, name: str) -> Pipeline:
    """Read a pipeline's folder; `name` is the user's model argument."""
    index = ModelSource(name=name, folder=folder, config=read_index(folder), revision=None)
    kind = pipeline_class(index.config.model_type)
    if not is_exported_pipeline(folder):
        return Pipeline(name=name, folder=folder, stock=kind, sources=component_sources(index, kind, {}))
    folders = sorted(path.parent for path in folder.glob(f"*/{NEFF_FILE}"))
    names = index.config.to_dict()
    sources = {component_of(path.name, names): load_source(path) for path in folders}
    configs: list[Any] = [read_folder(path).config for path in folders]
    config = whole_config(configs)
    return Pipeline(name=name, folder=folder, stock=kind, sources=sources, compiled=config)
