"""All programs of a pipeline: exported from its components, or loaded from its folder.

prepared = prepare_pipeline(source, config, target, cache=cache, validate=True)
prepared.parts["unet"].program
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from ...base.core import Choice
from ...compiler.cache import CompileCache
from ...compiler.lower import Mode
from ...engine import Calls
from ...errors import ConfigError, ValidationError
from ...hardware import Target, resolve_instance
from ...kinds.diffusion import (
    METHODS,
    STRENGTH,
    NeuronDiffusionConfig,
    calls_of,
    comparable,
    component_of,
    config_of_part,
    example_arguments,
    in_place,
    note_calls,
    part_name,
    redirected,
    require_shared,
    require_sliceable,
    sliced,
    whole_config,
    with_effects,
    with_sizes,
)
from ...options.configuration import NEFF_FILE
from ...runtime import Copies, claimed
from ...sources import ModelSource
from ...sources.pipelines import (
    Custom,
    PipelineAdditions,
    compiled_models,
    component_sources,
    customize,
    empty_component,
    load_component,
    pipeline_class,
    read_additions,
    stock_pipeline,
)
from ..load import load_exported
from ..prepare import before_host_code, prepare
from ..prepared import Prepared
from ..validation import OutputError, compare, comparison_key, default_tolerance, recorded_or_compared

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

PICTURE_TOLERANCE = 1e-3
"""Largest difference of a picture in float32, whose values are 0 to 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedPipeline:
    """The compiled programs of a pipeline, and the stock pipeline that calls them."""

    source: ModelSource
    config: NeuronDiffusionConfig
    target: Choice[Target]
    stock: Any
    """Stock pipeline with schedulers, tokenizers, processors and a safety checker, and with models without weights."""
    parts: Mapping[str, Prepared]
    """Each program by the name of its folder, such as "vae_decoder"."""
    validation: tuple[OutputError, ...] = ()
    """Difference of a whole picture."""
    validated: Choice[str] = Choice(value="off", reason="validation is switched off")
    """Whether the picture was compared now, or the comparison was recorded, and why."""
    additions: PipelineAdditions = dataclasses.field(default_factory=PipelineAdditions)
    """What was added to the pipeline of the folder."""

    @property
    def host(self) -> None:
        """None: each of `parts` has host code."""

    @property
    def models(self) -> dict[str, nn.Module]:
        """Models without weights by their names in the pipeline."""
        return compiled_models(self.stock)

    def parts_of(self, component: str) -> dict[str, Prepared]:
        """Return the programs of a component by the method that each carries out."""
        names = {method: part_name(component, method) for method in METHODS}
        return {method: self.parts[name] for method, name in names.items() if name in self.parts}

    def connected(self, copies: Mapping[str, Copies]) -> dict[str, Any]:
        """Return the models of the pipeline, whose methods run the programs on some cores."""
        models = {}
        for name, model in self.models.items():
            calls = {
                method: Calls(copies[part_name(name, method)], calls_of(part.metadata))
                for method, part in self.parts_of(name).items()
            }
            models[name] = redirected(model, functools.partial(_call, name, calls))
        return models

    def close(self) -> None:
        """Free all cores."""
        for part in self.parts.values():
            if part.loaded is not None:
                part.loaded.close()


def _call(component: str, calls: Mapping[str, Calls], method: str, arguments: dict[str, Any]) -> Any:
    if method not in calls:
        message = f"The pipeline was exported without {component}.{method}."
        raise ConfigError(message, hint="Export it for another task.", component=component, method=method)
    return calls[method](method, arguments)


def prepare_pipeline(
    source: ModelSource,
    config: NeuronDiffusionConfig,
    target: Choice[Target],
    *,
    cache: CompileCache | None,
    validate: bool = True,
    atol: float | None = None,
    host_code: Mode = "background",
    claims: bool = False,
    compiler_workdir: str | Path | None = None,
    custom: Custom | None = None,
) -> PreparedPipeline:
    """Compile, load and validate every component of a pipeline.

    Args:
        cache: cache of compiled programs; None compiles always.
        validate: compare each component, and a whole picture, with diffusers.
        atol: largest difference that passes; None derives it from the arithmetic.
        host_code: when code for this machine is compiled.
        claims: claim cores of the instance; False loads on private ones.
        compiler_workdir: folder that gets a copy of each NEFF, in a folder of its component.
        custom: class and models of the pipeline, where they are not those of its folder.
    """
    custom = custom or customize(source, config.task, PipelineAdditions())
    sources = component_sources(source, custom.kind, custom.modules)
    models = {name: sliced(empty_component(each, config.torch_dtype), config) for name, each in sources.items()}
    require_sliceable(models.values(), config)
    stock = stock_pipeline(source, custom.kind, {**models, **custom.others}, dtype=config.torch_dtype)
    require_shared(models, config.tensor_parallel_size)
    config = with_sizes(with_effects(config, stock), stock)
    parts: dict[str, Prepared] = {}
    prepared = PreparedPipeline(
        source=source, config=config, target=target, stock=stock, parts=parts, additions=custom.additions
    )
    try:
        with before_host_code(validate):
            for part, calls in note_calls(stock, config, **custom.additions.example_images()).items():
                component = component_of(part, sources)
                part_config = config_of_part(config, part, calls, component, models[component])
                name = f"{source.name}/{part}"
                with _claimed(part_config, name) if claims else contextlib.nullcontext() as claim:
                    parts[part] = prepare(
                        sources[component],
                        part_config,
                        target,
                        cache=cache,
                        validate=validate,
                        atol=atol,
                        host_code=host_code,
                        claim=claim,
                        compiler_workdir=None if compiler_workdir is None else Path(compiler_workdir) / part,
                    )
            if validate and all(part.loaded is not None for part in parts.values()):
                prepared = _with_validated_picture(prepared, sources, custom, cache=cache, atol=atol)
    except BaseException:
        prepared.close()
        raise
    return prepared


def _claimed(config: NeuronDiffusionConfig, name: str) -> Any:
    instance = resolve_instance(config.instance_type).value
    return claimed(instance, model=name, num_cores=config.tensor_parallel_size)


def load_pipeline(
    source: ModelSource,
    options: Mapping[str, Any],
    *,
    host_code: Mode = "background",
    kind: type[DiffusionPipeline] | None = None,
    modules: Mapping[str, Any] | None = None,
) -> PreparedPipeline:
    """Load an exported pipeline; `modules` are other parts than those of the folder, such as a scheduler."""
    options, modules = dict(options), modules or {}
    mode = options.pop("data_parallel_mode", None)
    folders = sorted(path.parent for path in source.folder.glob(f"*/{NEFF_FILE}"))
    parts: dict[str, Prepared] = {}
    try:
        for folder in folders:
            parts[folder.name] = load_exported(
                folder, options, name=f"{source.name}/{folder.name}", revision=source.revision, host_code=host_code
            )
        config = next(iter(parts.values())).config
        kind = kind or pipeline_class(source.config.model_type)
        models = {
            name: empty_component(each, config.torch_dtype) for name, each in _component_sources(source, parts).items()
        }
        stock = stock_pipeline(source, kind, models | dict(modules), dtype=config.torch_dtype)
        configs = cast("list[NeuronDiffusionConfig]", [part.config for part in parts.values()])
        whole = whole_config(configs)
        whole = with_effects(dataclasses.replace(whole, data_parallel_mode=mode or whole.data_parallel_mode), stock)
    except BaseException:
        for part in parts.values():
            if part.loaded is not None:
                part.loaded.close()
        raise
    target = next(iter(parts.values())).target
    additions = read_additions(source.folder)
    return PreparedPipeline(source=source, config=whole, target=target, stock=stock, parts=parts, additions=additions)


def _component_sources(source: ModelSource, parts: Mapping[str, Prepared]) -> dict[str, ModelSource]:
    names = source.config.to_dict()
    return {component_of(part, names): prepared.source for part, prepared in parts.items()}


def _with_validated_picture(
    prepared: PreparedPipeline,
    sources: Mapping[str, ModelSource],
    custom: Custom,
    *,
    cache: CompileCache | None,
    atol: float | None,
) -> PreparedPipeline:
    """Return a pipeline with the comparison of a picture, a recorded one if there is one."""
    neffs = {name: part.artifact.path for name, part in prepared.parts.items()}
    errors, _, choice = recorded_or_compared(
        _unknown(custom, cache),
        lambda: {
            "pipeline": type(prepared.stock).__name__,
            **comparison_key(prepared.source.folder, neffs, prepared.config, atol),
        },
        lambda: ([_compare_picture(prepared, sources, atol, custom.additions.example_images())], None),
    )
    return dataclasses.replace(prepared, validation=tuple(errors), validated=choice)


def _unknown(custom: Custom, cache: CompileCache | None) -> str:
    """Return why the comparison of a picture cannot be recognized later; empty: it can."""
    if cache is None:
        return "the compile cache is switched off"
    return "models in memory, and not in the folder, belong to it" if custom.modules or custom.others else ""


def _compare_picture(
    prepared: PreparedPipeline, sources: Mapping[str, ModelSource], atol: float | None, arguments: Mapping[str, Any]
) -> OutputError:
    """Compare a picture of few steps with that of diffusers in float32."""
    config, loaded = prepared.config, {name: part.loaded for name, part in prepared.parts.items()}
    copies = {name: Copies([one]) for name, one in loaded.items() if one is not None}
    actual = _picture(prepared, prepared.connected(copies), arguments)
    reference = {name: comparable(load_component(source, "float32")[0], config) for name, source in sources.items()}
    expected = _picture(prepared, reference, arguments)
    exact = config.torch_dtype == "float32" and config.auto_cast == "none"
    tolerance = atol if atol is not None else PICTURE_TOLERANCE if exact else default_tolerance(config, 1.0)
    error = compare("picture", actual, expected, tolerance=tolerance)
    if not error.ok:
        message = f"A picture of the compiled pipeline differs from that of diffusers: max {error.max_abs_error:.3g}."
        hint = "Pass a larger --atol if this precision is enough, or --disable-validation to skip the comparison."
        raise ValidationError(message, hint=hint, validation=[error.to_dict()])
    return error


def _picture(prepared: PreparedPipeline, models: Mapping[str, Any], more: Mapping[str, Any]) -> torch.Tensor:
    """Return a picture that the pipeline makes with some models."""
    height, width = prepared.config.resolutions()[0]
    arguments = example_arguments(
        prepared.stock, prepared.config, batch_size=1, height=height, width=width, more={"strength": STRENGTH, **more}
    )
    with in_place(prepared.stock, models), torch.no_grad():
        return torch.as_tensor(prepared.stock(**arguments)[0])
