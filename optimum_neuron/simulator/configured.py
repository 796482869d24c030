"""Estimate of a transformers configuration: a decoder from its sizes, other models from the graphs of an export.

config_estimate(source, DecoderRequest(sequence_length=128), machine, {}, trust_remote_code=False)
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..core import AutoCast, Choice
from ..errors import ConfigError
from ..hardware import legal_core_counts
from ..options import options_of
from .decoders import DTYPES, DecoderRequest, decoder_estimate
from .graph_choice import DEFAULT_OUTPUT_LENGTH, no_prefix_cache
from .machine import Machine, positive, require_fits, require_tensor_parallel_size
from .programs import DEFAULT_AUTO_CAST, batch_axes, linked_estimate, program_estimate
from .quantity import Estimate
from .stacks import parse_sdk

if TYPE_CHECKING:
    from ..compiler import MemoryNeed, Program
    from ..configuration import CompileConfig
    from ..exporters import Kind, ModelSource

TEXT_IN_LARGER = "image-text-to-text"
"""Task of a configuration that holds a decoder beside other modules."""


def config_estimate(
    source: ModelSource, request: DecoderRequest, machine: Machine, options: dict[str, Any], *, trust_remote_code: bool
) -> Estimate:
    from ..exporters import kind_of
    from .work import decoder_sizes

    task = task_of_config(source.config, options.get("task") or "auto")
    kind = kind_of(task, source.config.model_type)
    if options.get("task"):
        kind.require_task(source, task)
    if not kind.is_estimated_by_size:
        return _forward_estimate(source, request, machine, options, task, trust_remote_code=trust_remote_code)
    if options.get("pipeline_parallel_size", 1) != 1:
        message = "An estimate of a configuration has no pipeline stages."
        hint = "Export the model with pipeline_parallel_size, which needs no weights, and estimate the exported folder."
        raise ConfigError(message, hint=hint, option="pipeline_parallel_size", value=options["pipeline_parallel_size"])
    if request.batches_in_flight is not None:
        require_no_options({"batches_in_flight": request.batches_in_flight}, "a decoder")
    options = {key: value for key, value in options.items() if key != "task"}
    if compiles := _program_options(source, kind, request, options):
        return _compiled_estimate(source, request, machine, compiles, task, trust_remote_code=trust_remote_code)
    require_no_options(options, "a decoder")
    if request.prefix_hit_rate is not None:
        raise no_prefix_cache(request.prefix_hit_rate)
    sizes = decoder_sizes(source.config, trust_remote_code=trust_remote_code)
    result = decoder_estimate(sizes, request, machine, name=source.name)
    return result.noted(kind.estimate_note) if kind.estimate_note else result


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
    captured, count = _capture_on_cores(source, request, machine, options, trust_remote_code=trust_remote_code)
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


def _capture_on_cores(
    source: ModelSource, request: DecoderRequest, machine: Machine, options: dict[str, Any], *, trust_remote_code: bool
) -> tuple[CapturedModel, Choice[int]]:
    """Capture a model for the requested number of cores, or for the fewest legal ones that hold it.

    The first capture is returned if none fits. Numbers of cores that do not divide its heads are left out.
    """
    capture = functools.partial(capture_model, source, trust_remote_code=trust_remote_code, **options)
    instance, asked = machine.instance.value, request.tensor_parallel_size
    if asked is not None:
        require_tensor_parallel_size(instance, asked)
        return capture(tensor_parallel_size=asked), Choice(value=asked, reason=f"tensor_parallel_size={asked}")
    first, *more = legal_core_counts(instance).counts
    smallest = captured = capture(tensor_parallel_size=first)
    for count in (first, *more):
        if count > first:
            try:
                captured = capture(tensor_parallel_size=count)
            except ConfigError:
                continue
        if captured.need.total <= machine.hbm_bytes_per_core:
            return captured, Choice(value=count, reason=f"fewest legal cores of {instance.name} that hold a replica")
    return smallest, Choice(value=first, reason=f"no number of cores of {instance.name} holds a replica")


OF_REQUEST = {"task", "target", "instance_type", "torch_dtype"}
"""Options of an export that have other names in an estimate."""
FIXED: dict[str, Any] = {"batch_size": 1, "tensor_parallel_size": None, "dtype": None, "auto_cast": None}
"""Sizes of a request that its graphs have already."""


KEPT = 32
"""Captured programs that are kept: one for each legal number of cores."""
_PROGRAMS: dict[str, Program] = {}


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
    divides = "tensor_parallel_size" in kind.config_class.option_names()
    _require_options_of_kind(request, task, generates=kind.generates, divides=divides)
    dtype = DTYPES.get(request.dtype or "", request.dtype) or "float32"
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if dtype == "float32" else "none")
    arithmetic = {"torch_dtype": dtype, "auto_cast": auto_cast}
    options = {**_shapes(kind, request, task), **options, **arithmetic, "task": task}
    options["instance_type"] = machine.instance.value.name
    count: Choice[int] = Choice(value=1, reason="models of this kind run on one core")
    if divides:
        captured, count = _capture_on_cores(source, request, machine, options, trust_remote_code=trust_remote_code)
    else:
        captured = capture_model(source, trust_remote_code=trust_remote_code, **options)
    memory = dataclasses.asdict(captured.need)
    require_fits(source.name, memory, machine, num_cores=count.value)
    result = linked_estimate(
        captured.program,
        request,
        machine,
        name=source.name,
        memory=memory,
        auto_cast=auto_cast,
        task=task,
        axes=batch_axes(captured.config),
        origin=f"as an export would compile it, weights in {dtype}, auto_cast {auto_cast}",
        assumptions=(f"Neuron SDK {request.sdk or 'current'}: single-pass models changed little between releases",),
    )
    return dataclasses.replace(result, num_cores=count, divisible=divides and kind.generates)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class CapturedModel:
    """The graphs that an export would compile, with their weights named."""

    program: Program
    config: CompileConfig
    need: MemoryNeed
    """HBM of a core."""


def capture_model(
    source: ModelSource, *, trust_remote_code: bool = False, roles: Collection[str] | None = None, **options: Any
) -> CapturedModel:
    """Capture a model as an export with these options would, without weights and without host code.

    With `roles`, only entry points of a decoder that have one of them are captured.

    Raises:
        CaptureError: the model's code is not static.
        ConfigError: an option is unknown, or one of another kind of model.
        ModelError: transformers cannot build it.
    """
    from ..compiler import memory_need
    from ..exporters import neuron_config

    config, target = neuron_config(source, options, trust_remote_code=trust_remote_code)
    program = program_of(source, config, trust_remote_code=trust_remote_code, roles=roles)
    need = memory_need(program, lnc=target.value.chip.default_lnc)
    return CapturedModel(program=program, config=config, need=need)


def program_of(
    source: ModelSource,
    config: CompileConfig,
    *,
    trust_remote_code: bool = False,
    roles: Collection[str] | None = None,
) -> Program:
    """Capture a program; the newest are kept, because a comparison estimates one on many instances.

    Raises:
        CaptureError, ModelError: as `capture_model`.
    """
    from ..compiler import compile_graphs
    from ..exporters import Progress, kind_of

    fields = {name: value for name, value in config.to_dict().items() if name not in ("target", "instance_type")}
    model = source.config.to_json_string(use_diff=False)
    key = json.dumps([str(source.folder), model, fields, roles and sorted(roles)], sort_keys=True)
    if source.module is None and key in _PROGRAMS:
        return _PROGRAMS[key]
    plan = kind_of(config.task, source.config.model_type).plan(source, config, trust_remote_code=trust_remote_code)
    with Progress(f"Estimating {source.name} for {config.target}") as progress:
        program = compile_graphs(
            [one for one in plan.captures if roles is None or _role(one) in roles],
            target=None,
            auto_cast=config.auto_cast,
            auto_cast_type=config.auto_cast_type,
            num_stages=plan.num_stages,
            on_done=progress.captured,
        ).program
    if source.module is None:
        _PROGRAMS[key] = program
        while len(_PROGRAMS) > KEPT:
            del _PROGRAMS[next(iter(_PROGRAMS))]
    return program


def _role(recapture: Any) -> str:
    """Return the role of an entry point of a decoder, from the keywords of the function that captures it."""
    return str(recapture.keywords["role"])


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


def require_no_options(options: Mapping[str, Any], what: str) -> None:
    """Check that no options are left that would be ignored."""
    if options:
        named = ", ".join(f"{name}={value!r}" for name, value in options.items())
        message = f"{named} {'has' if len(options) == 1 else 'have'} no effect on {what}."
        raise ConfigError(message, hint=f"Remove {', '.join(options)}.", options=list(options))
