"""`NeuronDiffusionPipeline`: a stock pipeline of diffusers, compiled; it finds the class in the pipeline's index.

The stock `__call__` runs, so schedulers, callbacks, generators and every argument work as in diffusers. Models are
compiled programs, so what would change their code after the compile is refused.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from ...base.core import Choice
from ...compiler.cache import open_cache
from ...compiler.lower import Mode
from ...errors import ConfigError, ModelError
from ...exporters import neuron_config, translate
from ...exporters.diffusion import (
    PreparedPipeline,
    check_pipeline_output,
    describe_pipeline,
    load_pipeline,
    place,
    prepare_pipeline,
    save_pipeline,
)
from ...kinds import compile_options
from ...kinds.diffusion import NeuronDiffusionConfig, part_name
from ...options.option import EXPORT_HELP, SOURCE_OPTIONS, check_known, source_options
from ...options.peer_attributes import follows_upstream
from ...runtime import Copies
from ...sources import is_exported_pipeline, is_pipeline, load_source, plain_task, task_of
from ...sources.pipelines import customize, pipeline_class, split_additions
from ...upstream.torch import parse_to
from ..loading import EXPORT_OPTIONS, LOAD_OPTIONS, not_exported, require_name
from ..weights import Weights, rebound
from .adapters import AdapterMethods
from .classes import CLASSES
from .guidance import adds_rows, require_guidance
from .refusals import refuse_methods
from .sizes import default_sizes


@refuse_methods
class NeuronDiffusionPipelineBase(AdapterMethods):
    """What compiled pipelines add to diffusers; the base of one class for each stock class."""

    stock: ClassVar[Any] = None
    """Stock class; None finds it in the pipeline's index."""
    prepared: PreparedPipeline
    copies: Mapping[str, Copies]
    """Each program on its cores, by the name of its folder."""

    @classmethod
    def from_pretrained(cls, model_id: str | Path, export: bool | None = None, **options: Any) -> Any:
        """Load an exported pipeline, or export one.

        Args:
            model_id: folder or Hub model ID.
            export: True exports a pipeline, False requires an exported one, None accepts both.
            **options: fields of `NeuronDiffusionConfig`; the location of the model; for an export
                `disable_validation, atol, disable_neuron_cache, cache_url, compiler_workdir`; `wait_for_host_code`; and
                components in memory by their names, such as `unet` or `scheduler`.

        Raises:
            NeuronError: see `optimum_neuron/errors.py`.
        """
        require_name(model_id, cls.__name__)
        location = source_options(options)
        source = load_source(model_id, **location)
        if not is_pipeline(source.folder):
            message = f"{model_id} is no pipeline of diffusers: it has no model_index.json."
            raise ModelError(message, hint="Pass the folder of a whole pipeline.", model=str(model_id))
        kind = pipeline_class(source.config.model_type) if cls.stock is None else cls.stock
        names = inspect.signature(kind.__init__).parameters
        modules = {name: value for name, value in options.items() if name in names and not isinstance(value, str)}
        additions, options = split_additions({k: value for k, value in options.items() if k not in modules})
        options = translate(options)
        known = [*compile_options(), *SOURCE_OPTIONS, *EXPORT_OPTIONS, *LOAD_OPTIONS]
        check_known(options, known, what=cls.__name__, listed=EXPORT_HELP)
        shapes = {name: value for name, value in options.items() if name in compile_options()}
        how = {name: value for name, value in options.items() if name in EXPORT_OPTIONS}
        mode: Mode = "wait" if options.get("wait_for_host_code") else "background"
        if is_exported_pipeline(source.folder):
            given = {"export": export, **how, **additions.without_lora().to_dict()}
            given = {name: value for name, value in given.items() if value not in (None, False)}
            if given:
                message = f"{model_id} has already been exported, so {', '.join(given)} has no effect."
                raise ConfigError(message, hint="Remove it, or pass the checkpoint.", options=given)
            prepared = load_pipeline(source, shapes, host_code=mode, kind=cls.stock, modules=modules)
            pipe = cls._wrap(prepared)
            if additions:
                pipe.put_loras(additions.loras, **location)
            return pipe
        if export is False or (export is None and follows_upstream()):
            raise not_exported(str(model_id), export)
        config, target = neuron_config(source, {**shapes, "task": cls._task(shapes.get("task"))})
        prepared = prepare_pipeline(
            source,
            config,
            target,
            cache=open_cache(how.pop("disable_neuron_cache", False), how.pop("cache_url", None)),
            validate=not how.pop("disable_validation", False),
            host_code=mode,
            claims=True,
            custom=customize(source, config.task, additions, kind=cls.stock, given=modules, **location),
            **how,
        )
        return cls._wrap(prepared)

    @classmethod
    def _task(cls, requested: str | None) -> str | None:
        """The task of the stock class, as its name says, or the requested one where the class is for any."""
        own = None if cls.stock is None else task_of(cls.stock.__name__)
        if own is not None and requested is not None and plain_task(requested) not in ("auto", own):
            message = f"{cls.__name__} is for {own}, not {requested}."
            raise ModelError(message, hint="Use NeuronDiffusionPipeline, or remove task.", task=requested)
        return own or requested

    @staticmethod
    def _wrap(prepared: PreparedPipeline) -> Any:
        """Return the pipeline of compiled programs."""
        try:
            return _connected(prepared, place(prepared))
        except BaseException:
            prepared.close()
            raise

    @classmethod
    def from_pipe(cls, pipeline: object) -> Any:
        """Return a pipeline of this class with the programs of another compiled one; nothing is compiled or loaded.

        Args:
            pipeline: compiled pipeline with the same models, such as text-to-image for image-to-image. The two share
                their cores: closing one closes the other.

        Raises:
            ConfigError: it is not compiled, or this class is for any pipeline.
            ModelError: it lacks models of this class.
        """
        if not isinstance(pipeline, NeuronDiffusionPipelineBase) or cls.stock is None:
            message = f"{cls.__name__}.from_pipe cannot take a {type(pipeline).__name__}."
            hint = (
                "Pass a compiled pipeline, and call from_pipe of a class such as NeuronStableDiffusionImg2ImgPipeline."
            )
            raise ConfigError(message, hint=hint, pipeline=type(pipeline).__name__)
        try:
            stock = cls.stock.from_pipe(pipeline.prepared.stock, torch_dtype=None)
        except (ValueError, TypeError, AttributeError) as error:
            message = f"A {cls.__name__} cannot have the models of a {type(pipeline).__name__}: {error}"
            raise ModelError(
                message, hint="Export it from the checkpoint.", pipeline=type(pipeline).__name__
            ) from error
        pipe = _connected(dataclasses.replace(pipeline.prepared, stock=stock), pipeline.copies)
        for name in stock.components.keys() - pipeline.prepared.models.keys():
            setattr(pipe, name, getattr(pipeline, name, getattr(stock, name)))  # the scheduler may have been replaced
        return pipe

    @property
    def neuron_config(self) -> NeuronDiffusionConfig:
        """Sizes and flags of the compile."""
        return self.prepared.config

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute, such as `scheduler`; compiled models stay."""
        if "prepared" in self.__dict__ and name in self.prepared.models:
            message = f"{name} is compiled, so it cannot be replaced by a {type(value).__name__}."
            hint = f"Use replace_weights({name}=...), or pass {name}= to from_pretrained."
            raise ConfigError(message, hint=hint, component=name)
        super().__setattr__(name, value)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Make pictures, with the arguments of the stock pipeline; sizes have those of the export as their defaults."""
        signature = inspect.signature(self.stock.__call__)
        given = signature.bind_partial(self, *args, **kwargs).arguments
        if adds_rows(self):
            require_guidance(self.neuron_config, given)
        self.require_image_adapters(given)
        kwargs |= default_sizes(self.neuron_config, signature, given)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Save the pipeline as an exported folder, for `from_pretrained`; its own schedulers are saved."""
        if not push_to_hub:
            check_known(kwargs, [], what="save_pretrained")
        check_pipeline_output(self.prepared.source.folder, Path(save_directory))
        save_pipeline(self.prepared, Path(save_directory), pipe=self)
        if push_to_hub:
            self.push_to_hub(save_directory, **kwargs)

    def push_to_hub(
        self,
        save_directory: str | Path,
        repository_id: str,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        commit_message: str = "Upload exported pipeline",
    ) -> str:
        """Save the pipeline in a folder, upload it to the Hub, and return the URL of the commit.

        Args:
            save_directory: folder to write and upload.
            repository_id: repository on the Hub, which is created if needed.
            private: whether a new repository is private.
            revision: branch to write to.
            token: Hub token; None uses the login's.
            commit_message: message of the commit.
        """
        from huggingface_hub import HfApi

        self.save_pretrained(save_directory)
        api = HfApi(token=token)
        api.create_repo(repository_id, private=private, exist_ok=True)
        return api.upload_folder(
            repo_id=repository_id, folder_path=save_directory, revision=revision, commit_message=commit_message
        )

    def replace_weights(self, weights: str | Path | None = None, **components: Weights) -> None:
        """Replace the weights of components by others of the same architecture, without compiling.

        Args:
            weights: folder of a whole pipeline, whose components replace those here.
            **components: a folder, a state dict, or a model for each component, for example `unet=tuned_unet`.

        Raises:
            WeightsError: tensors are missing or have another shape; components before that one are replaced.
            ConfigError: a component is unknown.
        """
        if weights is not None:
            folder = load_source(weights).folder
            components = {name: folder / name for name in self.prepared.models} | components
        check_known(components, self.prepared.models, what="replace_weights")
        parts = dict(self.prepared.parts)
        for name, each in components.items():
            for method in self.prepared.parts_of(name):
                part = part_name(name, method)
                parts[part] = rebound(parts[part], self.copies[part], each)
        off = Choice(value="off", reason="weights were replaced")
        self.prepared = dataclasses.replace(self.prepared, parts=parts, validation=(), validated=off)

    def close(self) -> None:
        """Free the cores, the HBM, and the threads of the pipeline; later calls raise `CoreBusyError`."""
        for copies in self.copies.values():
            copies.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait_for_host_code(self, timeout_s: float | None = None) -> bool:
        """Wait until the host code of all programs is ready, each for at most `timeout_s`; return whether it is.

        Raises:
            LoweringError: a block could not be compiled.
        """
        return all(part.host.wait(timeout_s) for part in self.prepared.parts.values() if part.host is not None)

    def describe(self) -> dict[str, Any]:
        """Return every automatic choice with its reason, cores, memory, validation, and timings as plain data."""
        cores = {name: list(copies.core_ids) for name, copies in self.copies.items()}
        return {**describe_pipeline(self.prepared, pipe=self), "cores": cores}

    def to(self, *args: object, **kwargs: object) -> Self:
        """Accept the CPU, "neuron", and the compiled dtype: compiled programs cannot be moved or cast.

        Raises:
            ConfigError: the arguments name another device or dtype.
        """
        device, dtype, *_ = parse_to(*args, **kwargs)
        own = getattr(torch, self.neuron_config.torch_dtype)
        if device is not None and device.type not in ("cpu", "neuron"):
            message = f"to('{device}') is not supported: the programs of a compiled pipeline stay on their cores."
            raise ConfigError(message, hint="Remove to().", device=str(device))
        if dtype not in (None, own):
            message = f"to({dtype}) is not supported: the pipeline is compiled in {own}."
            raise ConfigError(message, hint="Export with another torch_dtype, or remove to().", dtype=str(dtype))
        return self


def _connected(prepared: PreparedPipeline, copies: Mapping[str, Copies]) -> Any:
    """The pipeline whose models are programs on cores."""
    pipe: Any = copy.copy(prepared.stock)
    for name, model in prepared.connected(copies).items():
        setattr(pipe, name, model)
    stock: Any = type(prepared.stock)
    pipe.__class__ = compiled_class(stock)
    pipe.prepared, pipe.copies = prepared, copies
    return pipe


class NeuronDiffusionPipeline(NeuronDiffusionPipelineBase):
    """A compiled diffusion pipeline of the class that its index names, or that the task has for it.

    Example:
        ```python no-run
        from optimum_neuron import NeuronDiffusionPipeline

        pipe = NeuronDiffusionPipeline.from_pretrained("a_pipeline", export=True, height=512, width=512)
        pipe("a lighthouse at night", generator=torch.Generator().manual_seed(0)).images[0].save("lighthouse.png")
        ```
    """


def named_class(name: str) -> Any:
    """Return a class of `CLASSES`."""
    from ...sources.pipelines import pipeline_class

    return compiled_class(pipeline_class(CLASSES[name]))


@functools.cache
def compiled_class(stock: Any) -> Any:
    """Return the class of the compiled pipelines of a stock class, which it is a subclass of."""
    name = f"Neuron{stock.__name__}"
    doc = f"diffusers' `{stock.__name__}` with models compiled for simulated NeuronCores."
    return type(name, (NeuronDiffusionPipelineBase, stock), {"__doc__": doc, "__module__": __package__, "stock": stock})
