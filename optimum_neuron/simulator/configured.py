"""Counts of a transformers configuration: a decoder from its sizes, other models from the graphs of an export.

count_config(source, EstimateRequest(sequence_length=128), machine)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..base.core import Choice
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError
from ..options.option import options_of
from .captures import capture_model, capture_on_cores
from .compiled import ProgramCounts
from .decoders import DecoderCounts
from .graph_choice import DEFAULT_OUTPUT_LENGTH
from .graphs import RunCounts
from .machine import Machine, require_fits
from .programs import auto_cast_of, batch_axes, counts_of_program, memory_of_program
from .request import DTYPES, EstimateRequest, require_no_options
from .stacks import parse_sdk

if TYPE_CHECKING:
    from ..kinds import Kind
    from ..sources import ModelSource

TEXT_IN_LARGER = "image-text-to-text"
"""Task of a configuration that holds a decoder beside other modules."""
OF_REQUEST = {"task", "target", "instance_type", "torch_dtype"}
"""Options of an export that have other names in an estimate."""


def count_config(
    source: ModelSource, request: EstimateRequest, machine: Machine
) -> DecoderCounts | ProgramCounts | RunCounts:
    """Count a configuration."""
    from ..kinds import kind_of
    from .work import decoder_sizes

    task = task_of_config(source.config, request.task or "auto")
    kind = kind_of(task, source.config.model_type)
    if request.task:
        kind.require_task(source, task)
    notes = _quantization_notes(source.config)
    counts: DecoderCounts | ProgramCounts | RunCounts
    if not kind.is_estimated_by_size:
        counts = _counts_of_graphs(source, kind, request, machine, task)
    elif compiles := _program_options(source, kind, request):
        counts = _counts_as_compiled(source, request, machine, compiles, task)
    else:
        counts = DecoderCounts(sizes=decoder_sizes(source.config, trust_remote_code=request.trusts_code))
        notes = (*filter(None, [kind.estimate_note]), *notes)
    return dataclasses.replace(counts, notes=notes)


def _quantization_notes(config: PreTrainedConfig) -> tuple[str, ...]:
    """Say how the quantized weights of a configuration are weighed; nothing where weights are plain."""
    from ..sources import method_of, published_scheme, quantization_of

    quantization = quantization_of(config)
    if quantization is None:
        return ()
    scheme, method = published_scheme(quantization), method_of(quantization)
    export = f"compiles them as {scheme.value}" if scheme.value else "dequantizes them"
    return (f"the checkpoint's weights are quantized with {method}; an export {export}: {scheme.reason}",)


def _program_options(source: ModelSource, kind: Kind, request: EstimateRequest) -> dict[str, Any]:
    """Return the options of an export that make a decoder another program than sizes describe; none for a plain one."""
    from ..exporters import QUANTIZATION_OPTIONS, translate
    from ..sources import published_cache, published_scheme, quantization_of

    if (num_stages := request.pipeline_parallel_size or 1) != 1:
        message = "An estimate of a configuration has no pipeline stages."
        hint = "Export the model with pipeline_parallel_size, which needs no weights, and estimate the exported folder."
        raise ConfigError(message, hint=hint, option="pipeline_parallel_size", value=num_stages)
    names = {name for name, option in options_of(kind.config_class).items() if option.is_keyword and option.in_graph}
    names = names - OF_REQUEST | {*QUANTIZATION_OPTIONS}
    require_no_options({name: value for name, value in request.export.items() if name not in names}, "a decoder")
    options = {name: value for name, value in translate(request.export).items() if value is not None}
    options |= published_cache(source.config, chosen=options.get("kv_cache_dtype"))
    if request.speculation is not None:
        options = {"speculation": True} | options
        if request.speculation.num_candidates is not None:
            options = {"extend_length": request.speculation.num_candidates + 1} | options
    settings = quantization_of(source.config)
    published = None if settings is None else published_scheme(settings).value
    return options if published is None else {"quantization": published} | options


def _counts_as_compiled(
    source: ModelSource, request: EstimateRequest, machine: Machine, options: dict[str, Any], task: str
) -> ProgramCounts | RunCounts:
    """Count a decoder in the graphs that an export with these options would compile."""
    request.require_effect("decoder", "a decoder")
    fixed = {name: getattr(request, name) for name in ("sdk", "stack") if getattr(request, name) is not None}
    if fixed:
        message = f"{', '.join(fixed)} cannot be chosen with {', '.join(options)}: graphs are those of this package."
        raise ConfigError(message, hint="Remove it.", options=list(fixed))
    chosen = {
        "sequence_length": request.sequence_length,
        "torch_dtype": DTYPES.get(request.dtype or "", request.dtype),
        "auto_cast": request.auto_cast,
    }
    options = {name: value for name, value in chosen.items() if value is not None} | options
    options |= {"task": task, "batch_size": request.batch_size, "instance_type": machine.instance.value.name}
    captured, count = capture_on_cores(source, request, machine, options)
    plain = {name: value for name, value in options.items() if name not in ("task", "instance_type")}
    plain |= {"torch_dtype": captured.config.torch_dtype, "tensor_parallel_size": count.value}
    spelled = ", ".join(f"{name}={value}" for name, value in sorted(plain.items()))
    return counts_of_program(
        captured.program,
        request,
        num_cores=count,
        memory=memory_of_program(captured.program, machine, name=source.name),
        auto_cast=captured.config.auto_cast,
        task=captured.config.task,
        axes=batch_axes(captured.config),
        origin=f"as an export with {spelled} would compile it; no weights were read",
    )


def decodes(config: PreTrainedConfig) -> bool:
    """Return whether a model is a causal language model, or one with an image or audio encoder."""
    from ..kinds import kind_of

    return kind_of(task_of_config(config, "auto"), config.model_type).is_estimated_by_size


def task_of_config(config: PreTrainedConfig, task: str) -> str:
    """Return the task of a model; without an architecture in the configuration, the usual one of its type."""
    from ..sources import infer_task, tasks_of

    if task == "auto" and _holds_a_decoder(config):
        return TEXT_IN_LARGER
    if task == "auto" and not config.architectures:
        served = tasks_of(config.model_type)
        decodes = "text-generation" in served and "fill-mask" not in served
        task = "text-generation" if decodes else next(iter(set(served) & {"feature-extraction"}), "auto")
    return infer_task(config, task).value


def _holds_a_decoder(config: PreTrainedConfig) -> bool:
    """Return whether a causal language model is a part of a larger model, next to an image or audio encoder."""
    names = config.architectures or ()
    generates = any(name.endswith(("ForConditionalGeneration", "ForCausalLM")) for name in names)
    text = config.get_text_config(decoder=True)
    return generates and text is not config and not facts_of(config).is_encoder_decoder


def _counts_of_graphs(
    source: ModelSource, kind: Kind, request: EstimateRequest, machine: Machine, task: str
) -> ProgramCounts | RunCounts:
    """Count a model that is no decoder in the graphs that an export would compile."""
    divides = "tensor_parallel_size" in kind.config_class.option_names()
    _require_effect(kind, request, task, without=() if divides else ("tensor_parallel_size",))
    dtype = DTYPES.get(request.dtype or "", request.dtype) or "float32"
    auto_cast = auto_cast_of(request, machine.target, float32=dtype == "float32")
    options = {**_shapes(kind, request, task), **request.export, "torch_dtype": dtype, "auto_cast": auto_cast}
    options |= {"task": task, "instance_type": machine.instance.value.name}
    if divides:
        captured, count = capture_on_cores(source, request, machine, options)
    else:
        captured = capture_model(source, trust_remote_code=request.trusts_code, **options)
        count = Choice(value=1, reason="models of this kind run on one core")
    memory = dataclasses.asdict(captured.need)
    if kind.generates:
        require_fits(source.name, memory, machine, num_cores=count.value)
    counts = counts_of_program(
        captured.program,
        request,
        num_cores=count,
        memory=memory,
        auto_cast=auto_cast,
        task=task,
        axes=batch_axes(captured.config),
        origin=f"as an export would compile it, weights in {dtype}, auto_cast {auto_cast}",
    )
    if isinstance(counts, RunCounts):
        return dataclasses.replace(counts, has_release=True).in_stages(request.pipeline_parallel_size, machine)
    return counts


def _require_effect(kind: Kind, request: EstimateRequest, task: str, *, without: Collection[str]) -> None:
    """Check that the options of a request have an effect on a model that is no decoder."""
    if request.sdk is not None:
        parse_sdk(request.sdk)
    if not kind.batch_options(task):
        without = (*without, "batch_size")
    request.require_effect(
        "encoder-decoder" if kind.generates else "single-pass", f"a model for {task}", without=without
    )


def _shapes(kind: Kind, request: EstimateRequest, task: str) -> dict[str, int]:
    """Return the sizes of a request under the names of a kind's options."""
    shapes = dict.fromkeys(kind.batch_options(task), request.batch_size)
    if request.sequence_length is not None:
        shapes["sequence_length"] = request.sequence_length
    if kind.generates and (request.output_length or 0) >= DEFAULT_OUTPUT_LENGTH:
        shapes["decoder_sequence_length"] = 1 + (request.output_length or 0)
    return shapes
