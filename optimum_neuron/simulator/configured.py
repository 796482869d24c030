"""Estimate of a transformers configuration: a decoder from its sizes, other models from the graphs of an export.

config_estimate(source, DecoderRequest(sequence_length=128), machine, {}, trust_remote_code=False)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import AutoCast, Choice
from ..errors import ConfigError
from ..options import options_of
from .captures import CapturedModel, capture_model, capture_on_cores
from .decoders import DTYPES, DecoderRequest, require_no_options
from .graph_choice import DEFAULT_OUTPUT_LENGTH
from .known import DecoderCounts, Known, RunCounts
from .machine import Machine, positive, require_fits
from .programs import DEFAULT_AUTO_CAST, batch_axes, linked_estimate, program_estimate, rows_of_run
from .quantity import Estimate
from .stacks import parse_sdk

if TYPE_CHECKING:
    from ..exporters import Kind, ModelSource

TEXT_IN_LARGER = "image-text-to-text"
"""Task of a configuration that holds a decoder beside other modules."""


def config_estimate(
    source: ModelSource,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
    *,
    trust_remote_code: bool,
    known: Known | None = None,
) -> Estimate:
    """Estimate a configuration, and keep its counts in the files of `known`; a model in memory has none."""
    from ..exporters import kind_of
    from .work import decoder_sizes

    task = task_of_config(source.config, options.get("task") or "auto")
    kind = kind_of(task, source.config.model_type)
    if options.get("task"):
        kind.require_task(source, task)
    notes = _quantization_notes(source.config)
    counts: DecoderCounts | RunCounts
    if not kind.is_estimated_by_size:
        if kind.generates:
            result = _seq2seq_estimate(source, request, machine, options, task, trust_remote_code=trust_remote_code)
            return result.noted(*notes)
        counts = _count_run(source, request, machine, options, task, notes, trust_remote_code=trust_remote_code)
    else:
        _require_no_stages(options)
        options = {key: value for key, value in options.items() if key != "task"}
        if compiles := _program_options(source, kind, request, options):
            result = _compiled_estimate(source, request, machine, compiles, task, trust_remote_code=trust_remote_code)
            return result.noted(*notes)
        require_no_options(options, "a decoder")
        sizes = decoder_sizes(source.config, trust_remote_code=trust_remote_code)
        counts = DecoderCounts(sizes=sizes, notes=(*filter(None, [kind.estimate_note]), *notes))
    kept = None if known is None else known.keep(source.name, counts)
    return dataclasses.replace(counts.estimate(source.name, request, machine), counts=kept)


def _quantization_notes(config: Any) -> tuple[str, ...]:
    """Say how the quantized weights of a configuration are weighed; nothing where weights are plain."""
    from ..exporters import method_of, published_scheme, quantization_of

    quantization = quantization_of(config)
    if quantization is None:
        return ()
    scheme, method = published_scheme(quantization), method_of(quantization)
    export = f"compiles them as {scheme.value}" if scheme.value else "dequantizes them"
    return (f"the checkpoint's weights are quantized with {method}; an export {export}: {scheme.reason}",)


def _require_no_stages(options: Mapping[str, Any]) -> None:
    if options.get("pipeline_parallel_size", 1) != 1:
        message = "An estimate of a configuration has no pipeline stages."
        hint = "Export the model with pipeline_parallel_size, which needs no weights, and estimate the exported folder."
        raise ConfigError(message, hint=hint, option="pipeline_parallel_size", value=options["pipeline_parallel_size"])


def _program_options(
    source: ModelSource, kind: Kind, request: DecoderRequest, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of an export that make a decoder another program than sizes describe; none for a plain one."""
    from ..exporters import QUANTIZATION_OPTIONS, published_cache, published_scheme, quantization_of, translate

    names = {name for name, option in options_of(kind.config_class).items() if option.is_keyword and option.in_graph}
    names = names - OF_REQUEST | {*QUANTIZATION_OPTIONS}
    require_no_options({name: value for name, value in options.items() if name not in names}, "a decoder")
    options = {name: value for name, value in translate(options).items() if value is not None}
    options |= published_cache(source.config, chosen=options.get("kv_cache_dtype"))
    if request.speculation is not None:
        options = {"speculation": True} | options
        if request.speculation.num_candidates is not None:
            options = {"extend_length": request.speculation.num_candidates + 1} | options
    settings = quantization_of(source.config)
    published = None if settings is None else published_scheme(settings).value
    return options if published is None else {"quantization": published} | options


def _compiled_estimate(
    source: ModelSource,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
    task: str,
    *,
    trust_remote_code: bool,
) -> Estimate:
    """Estimate a decoder from the graphs that an export with these options would compile."""
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
    captured, count = capture_on_cores(source, request, machine, options, trust_remote_code=trust_remote_code)
    plain = {name: value for name, value in options.items() if name not in ("task", "instance_type")}
    plain |= {"torch_dtype": captured.config.torch_dtype, "tensor_parallel_size": count.value}
    spelled = ", ".join(f"{name}={value}" for name, value in sorted(plain.items()))
    result = program_estimate(
        captured.program,
        captured.config,
        dataclasses.replace(request, **FIXED),
        machine,
        name=source.name,
        origin=f"as an export with {spelled} would compile it; no weights were read",
    )
    return dataclasses.replace(result, num_cores=count, divisible=True)


OF_REQUEST = {"task", "target", "instance_type", "torch_dtype"}
"""Options of an export that have other names in an estimate."""
FIXED: dict[str, Any] = {"batch_size": 1, "tensor_parallel_size": None, "dtype": None, "auto_cast": None}
"""Sizes of a request that its graphs have already."""


def decodes(config: Any) -> bool:
    """Return whether a model is a causal language model, or one with an image or audio encoder."""
    from ..exporters import kind_of

    return kind_of(task_of_config(config, "auto"), config.model_type).is_estimated_by_size


def task_of_config(config: Any, task: str) -> str:
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


def _count_run(
    source: ModelSource,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
    task: str,
    notes: tuple[str, ...],
    *,
    trust_remote_code: bool,
) -> RunCounts:
    """Count a single-pass model in the graph that an export would compile, the largest of several buckets."""
    from .work import work_of_program

    captured, count, arithmetic = _capture_whole(
        source, request, machine, options, task, trust_remote_code=trust_remote_code
    )
    graph, axes = list(captured.program.graphs)[-1], batch_axes(captured.config)
    return RunCounts(
        work=work_of_program(captured.program, graph, auto_cast=arithmetic.auto_cast),
        rows=rows_of_run(axes),
        axes=axes,
        memory=dataclasses.asdict(captured.need),
        num_cores=count.value,
        num_cores_reason=count.reason,
        dtype=arithmetic.dtype,
        auto_cast=arithmetic.auto_cast,
        task=task,
        notes=notes,
    )


def _seq2seq_estimate(
    source: ModelSource,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
    task: str,
    *,
    trust_remote_code: bool,
) -> Estimate:
    """Estimate a model that encodes a source and generates, from the graphs that an export would compile."""
    captured, count, arithmetic = _capture_whole(
        source, request, machine, options, task, trust_remote_code=trust_remote_code
    )
    memory = dataclasses.asdict(captured.need)
    require_fits(source.name, memory, machine, num_cores=count.value)
    result = linked_estimate(
        captured.program,
        request,
        machine,
        name=source.name,
        memory=memory,
        auto_cast=arithmetic.auto_cast,
        task=task,
        axes=batch_axes(captured.config),
        origin=f"as an export would compile it, weights in {arithmetic.dtype}, auto_cast {arithmetic.auto_cast}",
    )
    return dataclasses.replace(result, num_cores=count, divisible=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arithmetic:
    """Dtype of the weights, and the rounding of matmuls."""

    dtype: str
    auto_cast: AutoCast


def _capture_whole(
    source: ModelSource,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
    task: str,
    *,
    trust_remote_code: bool,
) -> tuple[CapturedModel, Choice[int], _Arithmetic]:
    """Capture a model that is no decoder, on the cores that share it, with its arithmetic."""
    from ..exporters import kind_of

    kind = kind_of(task, source.config.model_type)
    divides = "tensor_parallel_size" in kind.config_class.option_names()
    _require_options_of_kind(request, task, generates=kind.generates, divides=divides)
    dtype = DTYPES.get(request.dtype or "", request.dtype) or "float32"
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if dtype == "float32" else "none")
    options = {**_shapes(kind, request, task), **options, "torch_dtype": dtype, "auto_cast": auto_cast, "task": task}
    options["instance_type"] = machine.instance.value.name
    arithmetic = _Arithmetic(dtype=dtype, auto_cast=auto_cast)
    if divides:
        captured, count = capture_on_cores(source, request, machine, options, trust_remote_code=trust_remote_code)
        return captured, count, arithmetic
    captured = capture_model(source, trust_remote_code=trust_remote_code, **options)
    return captured, Choice(value=1, reason="models of this kind run on one core"), arithmetic


def _shapes(kind: Kind, request: DecoderRequest, task: str) -> dict[str, int]:
    """Return the sizes of a request under the names of a kind's options."""
    shapes = dict.fromkeys(kind.batch_options(task), request.batch_size)
    if not shapes and request.batch_size > 1:
        require_no_options({"batch_size": request.batch_size}, f"a model for {task}")
    if request.sequence_length is not None:
        shapes["sequence_length"] = request.sequence_length
    if kind.generates and (request.output_length or 0) >= DEFAULT_OUTPUT_LENGTH:
        shapes["decoder_sequence_length"] = 1 + positive("output_length", request.output_length or 0)
    return shapes


def _require_options_of_kind(request: DecoderRequest, task: str, *, generates: bool, divides: bool) -> None:
    """Check that a request has no options of another kind of model."""
    if request.sdk is not None:
        parse_sdk(request.sdk)
    cores = request.tensor_parallel_size
    values = {
        "input_length": None if generates else request.input_length,
        "output_length": None if generates else request.output_length,
        "tensor_parallel_size": None if divides or cores == 1 else cores,
        "concurrency": None if generates else request.concurrency,
        "batches_in_flight": request.batches_in_flight if generates else None,
        "prefix_hit_rate": request.prefix_hit_rate,
        "acceptance_rate": request.speculation and request.speculation.acceptance_rate,
        "stack": request.stack,
    }
    require_no_options({name: value for name, value in values.items() if value is not None}, f"a model for {task}")
