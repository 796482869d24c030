"""Estimate of a transformers configuration: a decoder from its sizes, other models from what an export would compile.

config_estimate(source, DecoderRequest(sequence_length=128), machine, {}, trust_remote_code=False)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import AutoCast, Choice
from ..errors import ConfigError, refusal
from .decoders import DecoderRequest, decoder_estimate, serving_estimate
from .graphs import graph_estimate
from .machine import Machine, choose_copies, require_fits
from .quantity import Estimate

if TYPE_CHECKING:
    from ..exporters.source import ModelSource

DEFAULT_AUTO_CAST: AutoCast = "matmul"
"""Of models of one forward in float32: published measurements use it."""
TEXT_IN_LARGER = "image-text-to-text"
"""Task of a configuration that holds a decoder beside other modules."""


def config_estimate(
    source: ModelSource, request: DecoderRequest, machine: Machine, options: dict[str, Any], *, trust_remote_code: bool
) -> Estimate:
    from ..exporters.kinds import kind_of
    from .work.sizes import decoder_sizes

    task = _task(source.config, options.get("task") or "auto")
    kind = kind_of(task, source.config.model_type)
    if options.get("task"):
        kind.require_task(source, task)
    if kind.is_estimated_by_size:
        require_no_options({key: value for key, value in options.items() if key != "task"}, "a decoder")
        sizes = decoder_sizes(source.config, trust_remote_code=trust_remote_code)
        told = decoder_estimate(sizes, request, machine, name=source.name)
        return dataclasses.replace(told, notes=(*told.notes, *([kind.estimate_note] if kind.estimate_note else [])))
    return _forward_estimate(source, request, machine, options, task, trust_remote_code=trust_remote_code)


def decodes(config: Any) -> bool:
    """Whether a model is a causal language model, or one with a part that reads images or sounds."""
    from ..exporters.kinds import kind_of

    return kind_of(_task(config, "auto"), config.model_type).is_estimated_by_size


def _task(config: Any, asked: str) -> str:
    """What a model is for; a configuration that names no architecture is taken for what its type is known for."""
    from ..exporters.source import infer_task
    from ..exporters.tasks import tasks_of

    if asked == "auto" and _holds_a_decoder(config):
        return TEXT_IN_LARGER
    if asked == "auto" and not config.architectures:
        served = tasks_of(config.model_type)
        decodes = "text-generation" in served and "fill-mask" not in served
        asked = "text-generation" if decodes else next(iter(set(served) & {"feature-extraction"}), "auto")
    return infer_task(config, asked).value


def _holds_a_decoder(config: Any) -> bool:
    """Whether a causal language model is a part of a larger model, beside a model of images or sounds."""
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
    """A model of one forward, from the graphs that an export would compile; the largest of several buckets."""
    from ..exporters.kinds import kind_of
    from .capture import capture_model
    from .compiled import serving_plan_of
    from .decoders import DTYPES
    from .work.graph import work_of_program

    kind = kind_of(task, source.config.model_type)
    require_decoder_options_absent(request, task, generates=kind.generates)
    dtype = DTYPES.get(request.dtype or "", request.dtype) or "float32"
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if dtype == "float32" else "none")
    rows = ("text_batch_size", "image_batch_size") if task.startswith("zero-shot") else ("batch_size",)
    # A batch of one is the default: a kind without that axis has no option for it.
    axes = [axis for axis in rows if request.batch_size > 1 or axis in kind.config_class.option_names()]
    export = {**options, **dict.fromkeys(axes, request.batch_size), "torch_dtype": dtype, "task": task}
    export["instance_type"] = machine.instance.value.name
    if request.sequence_length is not None:
        export["sequence_length"] = request.sequence_length
    captured = capture_model(source, trust_remote_code=trust_remote_code, **export)
    memory = {
        "weights": captured.memory.weights,
        "kv_cache": captured.memory.kv_cache,
        "scratch": captured.memory.scratch,
        "code": captured.memory.code,
    }
    require_fits(source.name, memory, machine)
    arithmetic = f"as an export would compile it, weights in {dtype}, auto_cast {auto_cast}"
    plan = serving_plan_of(captured.program, request, auto_cast=auto_cast)
    if plan is not None:
        return serving_estimate(
            plan.value,
            machine,
            name=source.name,
            kind="seq2seq",
            num_cores=Choice(value=1, reason="an encoder-decoder runs on one core"),
            num_copies=choose_copies(machine, 1, request.data_parallel_size),
            memory=memory,
            assumptions=(f"{arithmetic}: {plan.reason}", machine.price_source),
            notes=("no published value of this class of model",),
        )
    graph_name = list(captured.program.graphs)[-1]
    work = work_of_program(captured.program, graph_name, auto_cast=auto_cast)
    return graph_estimate(
        work,
        machine,
        name=source.name,
        rows=request.batch_size,
        memory=memory,
        task=task,
        num_copies=request.data_parallel_size,
        assumptions=(
            f"graph {graph_name} {arithmetic}",
            f"Neuron SDK {request.sdk or 'current'}: models of one forward changed little between releases",
        ),
    )


def require_decoder_options_absent(request: DecoderRequest, task: str, *, generates: bool = False) -> None:
    """Refuse options that a model on one core does not have; one that generates has a length of its answers.

    Raises:
        ConfigError: at least one was given; all are named.
    """
    from .stacks import parse_sdk

    if request.sdk is not None:
        parse_sdk(request.sdk)
    cores = request.tensor_parallel_size
    given = {
        "output_length": None if generates else request.output_length,
        "tensor_parallel_size": None if cores == 1 else cores,
        "concurrency": None if generates else request.concurrency,
        "stack": request.stack,
    }
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if named:
        raise ConfigError(
            refusal(
                asked=", ".join(named),
                found=f"a model for {task}",
                why="it runs on one core: only decoders have these options",
                do="leave them out; data_parallel_size sets the number of copies",
            )
        )


def require_no_options(options: Mapping[str, Any], what: str) -> None:
    """Refuse keywords that nobody would read.

    Raises:
        ConfigError: at least one was given; all are named.
    """
    if unread := [f"{name}={value!r}" for name, value in options.items()]:
        raise ConfigError(
            refusal(
                asked=", ".join(unread),
                found=f"{what}, which has no such options",
                why="an option that nobody reads would be ignored in silence",
                do="leave them out",
            )
        )
