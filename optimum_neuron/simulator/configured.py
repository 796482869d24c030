"""Estimate of a transformers configuration: a decoder from its sizes, other models from the graphs of an export.

config_estimate(source, DecoderRequest(sequence_length=128), machine, {}, trust_remote_code=False)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import AutoCast
from ..errors import ConfigError
from .decoders import DTYPES, DecoderRequest, decoder_estimate
from .machine import Machine, require_fits
from .programs import DEFAULT_AUTO_CAST, linked_estimate
from .quantity import Estimate
from .stacks import parse_sdk

if TYPE_CHECKING:
    from ..compiler import MemoryNeed, Program
    from ..exporters import ModelSource

TEXT_IN_LARGER = "image-text-to-text"
"""Task of a configuration that holds a decoder beside other modules."""


def config_estimate(
    source: ModelSource, request: DecoderRequest, machine: Machine, options: dict[str, Any], *, trust_remote_code: bool
) -> Estimate:
    from ..exporters import kind_of
    from .work import decoder_sizes

    task = _task(source.config, options.get("task") or "auto")
    kind = kind_of(task, source.config.model_type)
    if options.get("task"):
        kind.require_task(source, task)
    if not kind.is_estimated_by_size:
        return _forward_estimate(source, request, machine, options, task, trust_remote_code=trust_remote_code)
    if options.get("pipeline_parallel_size", 1) != 1:
        message = "An estimate of a configuration has no pipeline stages."
        hint = "Export the model with pipeline_parallel_size, which needs no weights, and estimate the exported folder."
        raise ConfigError(message, hint=hint, option="pipeline_parallel_size", value=options["pipeline_parallel_size"])
    require_no_options({key: value for key, value in options.items() if key != "task"}, "a decoder")
    sizes = decoder_sizes(source.config, trust_remote_code=trust_remote_code)
    result = decoder_estimate(sizes, request, machine, name=source.name)
    return result.noted(kind.estimate_note) if kind.estimate_note else result


def decodes(config: Any) -> bool:
    """Return whether a model is a causal language model, or one with an image or audio encoder."""
    from ..exporters import kind_of

    return kind_of(_task(config, "auto"), config.model_type).is_estimated_by_size


def _task(config: Any, task: str) -> str:
    """Return the task of a model; without an architecture in the configuration, the usual one of its type."""
    from ..exporters import infer_task, tasks_of

    if task == "auto" and _holds_a_decoder(config):
        return TEXT_IN_LARGER
    if task == "auto" and not config.architectures:
        served = tasks_of(config.model_type)
        decodes = "text-generation" in served and "fill-mask" not in served
        task = "text-generation" if decodes else next(iter(set(served) & {"feature-extraction"}), "auto")
    return infer_task(config, task).value


def _holds_a_decoder(config: Any) -> bool:
    """Return whether a causal language model is a part of a larger model, next to an image or audio encoder."""
    names = config.architectures or ()
    generates = any(name.endswith(("ForConditionalGeneration", "ForCausalLM")) for name in names)
    text = config.get_text_config(decoder=True)
    return generates and text is not config and not getattr(config, "is_encoder_decoder", False)


def _forward_estimate(
    source: ModelSource,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
    task: str,
    *,
    trust_remote_code: bool,
) -> Estimate:
    """Estimate another model from the graphs that an export would compile; the largest of several buckets."""
    from ..exporters import kind_of

    kind = kind_of(task, source.config.model_type)
    require_decoder_options_absent(request, task, generates=kind.generates)
    dtype = DTYPES.get(request.dtype or "", request.dtype) or "float32"
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if dtype == "float32" else "none")
    shapes = dict.fromkeys(kind.batch_options(task), request.batch_size)
    if not shapes and request.batch_size > 1:
        require_no_options({"batch_size": request.batch_size}, f"a model for {task}")
    if request.sequence_length is not None:
        shapes["sequence_length"] = request.sequence_length
    options = {**options, **shapes, "torch_dtype": dtype, "task": task, "instance_type": machine.instance.value.name}
    program, need = capture_model(source, trust_remote_code=trust_remote_code, **options)
    memory = dataclasses.asdict(need)
    require_fits(source.name, memory, machine)
    return linked_estimate(
        program,
        request,
        machine,
        name=source.name,
        memory=memory,
        auto_cast=auto_cast,
        task=task,
        rows=request.batch_size,
        origin=f"as an export would compile it, weights in {dtype}, auto_cast {auto_cast}",
        assumptions=(f"Neuron SDK {request.sdk or 'current'}: single-pass models changed little between releases",),
    )


def capture_model(
    source: ModelSource, *, trust_remote_code: bool = False, **options: Any
) -> tuple[Program, MemoryNeed]:
    """Capture a model as an export with these options would, without weights and without host code.

    Returns:
        The graphs with their weights named, and the HBM that they need of a core.

    Raises:
        CaptureError: the model's code is not static.
        ConfigError: an option is unknown, or one of another kind of model.
        ModelError: transformers cannot build it.
    """
    from ..compiler import compile_graphs, memory_need
    from ..exporters import Progress, kind_of, neuron_config

    config, target = neuron_config(source, options, trust_remote_code=trust_remote_code)
    plan = kind_of(config.task, source.config.model_type).plan(source, config, trust_remote_code=trust_remote_code)
    with Progress(f"Estimating {source.name} for {config.target}") as progress:
        program = compile_graphs(plan.captures, target=None, on_done=progress.captured).program
    return program, memory_need(program, lnc=target.value.chip.default_lnc)


def require_decoder_options_absent(request: DecoderRequest, task: str, *, generates: bool) -> None:
    """Check that there are no options of decoders; a model that generates has an output length."""
    if request.sdk is not None:
        parse_sdk(request.sdk)
    cores = request.tensor_parallel_size
    values = {
        "output_length": None if generates else request.output_length,
        "tensor_parallel_size": None if cores == 1 else cores,
        "concurrency": None if generates else request.concurrency,
        "stack": request.stack,
    }
    options = [name for name, value in values.items() if value is not None]
    if options:
        message = f"{', '.join(options)} has no effect on a model for {task}, which runs on one core."
        raise ConfigError(message, hint="Remove it; data_parallel_size sets the number of replicas.", options=options)


def require_no_options(options: Mapping[str, Any], what: str) -> None:
    """Check that no options are left that would be ignored."""
    if options:
        raise ConfigError(f"{', '.join(options)} has no effect on {what}.", hint="Remove it.", options=list(options))
