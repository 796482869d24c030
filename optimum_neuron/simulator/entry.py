"""`estimate`: what a model would take on an instance, from its configuration, its compiled program, or a torch module.

    from optimum_neuron.simulator import estimate

    estimate("meta-llama/Llama-3.1-8B", instance="inf2.48xlarge", tensor_parallel_size=8).tpot_ms

Nothing is downloaded beyond the configuration, no weight is read, and nothing is compiled for the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import AutoCast, Choice
from ..errors import ConfigError, DeviceMemoryError, refusal
from .decoders import DecoderRequest, decoder_estimate, serving_estimate
from .graphs import graph_estimate
from .machine import Machine, choose_copies, choose_machine, positive
from .quantity import Estimate
from .queueing import under_load

if TYPE_CHECKING:
    import torch

    from ..compiler.ir import Program
    from ..configuration import CompileConfig
    from ..exporters.source import ModelSource
    from .diffusion.source import Pipeline

DEFAULT_AUTO_CAST: AutoCast = "matmul"
"""Of models of one forward in float32: published measurements use it."""
TEXT_IN_LARGER = "image-text-to-text"
"""Task of models whose text model alone is estimated."""
SOURCE_OPTIONS = ("trust_remote_code", "subfolder", "revision", "cache_dir")
"""Keywords that say where a configuration is."""


def estimate(
    model: Any,
    *,
    instance: str | None = None,
    batch_size: int = 1,
    sequence_length: int | None = None,
    output_length: int | None = None,
    tensor_parallel_size: int | None = None,
    data_parallel_size: int | None = None,
    concurrency: int | None = None,
    dtype: str | None = None,
    auto_cast: AutoCast | None = None,
    sdk: str | None = None,
    stack: str | None = None,
    price: float | None = None,
    requests_per_s: float | None = None,
    example_inputs: Sequence[torch.Tensor] | None = None,
    **options: Any,
) -> Estimate:
    """Estimate time, memory and money of a model on an instance. Every number is simulated.

    Args:
        model: folder or id of a model or of a diffusion pipeline, exported folder, NEFF file, transformers
            configuration, or torch module.
        instance: instance or family; None as elsewhere in this package.
        batch_size: rows of a run, or of a decode step.
        sequence_length: tokens of a row; of a decoder prompt and answer together.
        output_length: tokens of an answer; None for half of the sequence.
        tensor_parallel_size: cores that share a copy of a decoder; None for the fewest that hold it.
        data_parallel_size: copies on the instance; None for as many as it holds.
        concurrency: requests of a decoder that arrive together; None for the batch.
        dtype: dtype of the weights; None for the checkpoint's.
        auto_cast: rounding of float32 products; None for "matmul" where weights are float32.
        sdk: release of the Neuron SDK, which decides the serving stack; None for the current one.
        stack: serving stack, see `stacks.STACKS`; None for the usual one.
        price: US dollars for an hour of the instance; None for the published on-demand price.
        requests_per_s: requests that arrive at random, for waiting times; None for none.
        example_inputs: arguments of a torch module's forward; real or on the meta device.
        **options: shapes of `main_export` such as `height`, those of pictures (`num_inference_steps`,
            `guidance_scale`, `data_parallel_mode`), and where to find the model.

    Returns:
        Quantities with 80 % intervals, memory, bounds, assumptions.

    Raises:
        ConfigError: a size, core count, instance, SDK or keyword is not possible.
        DeviceMemoryError: it does not fit a core; the message has the table and what would fit.
        ModelError: the model cannot be found or built.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.simulator import estimate

        config = LlamaConfig(num_hidden_layers=2, hidden_size=256, num_attention_heads=4)
        told = estimate(config, instance="trn1.2xlarge", sequence_length=512)
        assert told.simulated and told.tpot_ms.low < told.tpot_ms.value < told.tpot_ms.high
        ```
    """
    positive("batch_size", batch_size)
    machine = choose_machine(instance, price=price)
    request = DecoderRequest(
        batch_size=batch_size,
        sequence_length=sequence_length,
        output_length=output_length,
        tensor_parallel_size=tensor_parallel_size,
        data_parallel_size=data_parallel_size,
        concurrency=concurrency,
        dtype=dtype,
        auto_cast=auto_cast,
        sdk=sdk,
        stack=stack,
    )
    told = _estimate(model, example_inputs, request, machine, options)
    if requests_per_s is None:
        return told
    room = machine.num_logical_cores // told.num_cores.value
    return under_load(told, requests_per_s, room=room, price_usd_per_h=machine.price_usd_per_h)


def _estimate(
    model: Any,
    example_inputs: Sequence[torch.Tensor] | None,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
) -> Estimate:
    if hasattr(model, "forward") and hasattr(model, "parameters"):
        _require_no_options(options, "a torch module")
        return _module_estimate(model, example_inputs, request, machine)
    if isinstance(model, (str, Path)) and _is_compiled(Path(model)):
        _require_no_options(options, "a compiled model")
        program, config, name = _read_compiled(Path(model))
        return program_estimate(program, config, request, machine, name=name)
    if isinstance(model, (str, Path)) and (pipeline := _pipeline_of(model, options)) is not None:
        from .diffusion.estimate import diffusion_estimate

        asked = {key: value for key, value in options.items() if key not in SOURCE_OPTIONS}
        return diffusion_estimate(pipeline, request, machine, asked)
    source = source_of(model, options)
    where = {key: options.pop(key) for key in SOURCE_OPTIONS if key in options}
    return _config_estimate(source, request, machine, options, trust_remote_code=where.get("trust_remote_code", False))


def program_estimate(
    program: Program, config: CompileConfig | None, request: DecoderRequest, machine: Machine, *, name: str
) -> Estimate:
    """Estimate a compiled program, from its own graphs.

    Args:
        program: of a NEFF or of a loaded model.
        config: how it was compiled; None where a NEFF does not say.
        request: lengths, copies and stack; shapes are those of the program.
        machine: where.
        name: of the model.
    """
    from ..compiler.memory import memory_need
    from .compiled import serving_plan_of
    from .work.graph import work_of_program

    need = memory_need(program, lnc=machine.rates.num_physical)
    memory = {"weights": need.weights, "kv_cache": need.kv_cache, "scratch": need.scratch, "code": need.code}
    auto_cast = config.auto_cast if config is not None else "none"
    plan = serving_plan_of(program, request, auto_cast=auto_cast)
    if plan is not None:
        return serving_estimate(
            plan.value,
            machine,
            name=name,
            kind="seq2seq" if plan.value.prefill.name.startswith("encode") else "decoder",
            num_cores=Choice(value=1, reason="compiled for one core"),
            num_copies=choose_copies(machine, 1, request.data_parallel_size),
            memory=memory,
            assumptions=(plan.reason, machine.price_source),
        )
    graph_name = list(program.graphs)[-1]
    work = work_of_program(program, graph_name, auto_cast=auto_cast)
    rows = max((spec.shape[0] for spec in program.graphs[graph_name].inputs.values() if spec.shape), default=1)
    return graph_estimate(
        work,
        machine,
        name=name,
        rows=rows,
        memory=memory,
        task=config.task if config is not None else None,
        num_copies=request.data_parallel_size,
        assumptions=(f"graph {graph_name} of the compiled program, its largest shapes",),
    )


def _config_estimate(
    source: ModelSource, request: DecoderRequest, machine: Machine, options: dict[str, Any], *, trust_remote_code: bool
) -> Estimate:
    from ..exporters.kinds import kind_of
    from .work.sizes import decoder_sizes

    task = _task(source.config, options.get("task") or "auto")
    if task == TEXT_IN_LARGER or kind_of(task, source.config.model_type).name == "decoder":
        if unknown := {key: value for key, value in options.items() if key != "task"}:
            from ..configuration import check_known

            check_known(unknown, [], what="the estimate of a decoder")
        sizes = decoder_sizes(source.config, trust_remote_code=trust_remote_code)
        told = decoder_estimate(sizes, request, machine, name=source.name)
        if task != TEXT_IN_LARGER:
            return told
        return dataclasses.replace(told, notes=(*told.notes, "the text model alone: what reads images is not counted"))
    return _forward_estimate(source, request, machine, options, task, trust_remote_code=trust_remote_code)


def decodes(config: Any) -> bool:
    """Whether a model is a causal language model, or one with a part that reads images or sounds."""
    from ..exporters.kinds import kind_of

    task = _task(config, "auto")
    return task == TEXT_IN_LARGER or kind_of(task, config.model_type).name == "decoder"


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

    generates = kind_of(task, source.config.model_type).name in ("seq2seq", "speech")
    require_decoder_options_absent(request, task, generates=generates)
    dtype = DTYPES.get(request.dtype or "", request.dtype) or "float32"
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if dtype == "float32" else "none")
    rows = ("text_batch_size", "image_batch_size") if task.startswith("zero-shot") else ("batch_size",)
    given = dict(options, **dict.fromkeys(rows, request.batch_size), torch_dtype=dtype, task=task)
    given["instance_type"] = machine.instance.value.name
    if request.sequence_length is not None:
        given["sequence_length"] = request.sequence_length
    captured = capture_model(source, trust_remote_code=trust_remote_code, **given)
    memory = {
        "weights": captured.memory.weights,
        "kv_cache": captured.memory.kv_cache,
        "scratch": captured.memory.scratch,
        "code": captured.memory.code,
    }
    if sum(memory.values()) > machine.hbm_bytes_per_core:
        raise DeviceMemoryError(
            refusal(
                asked=f"{source.name} on one core of {machine.instance.value.name}",
                found=f"it needs {sum(memory.values()) / 2**30:.2f} of {machine.hbm_bytes_per_core / 2**30:.0f} GiB",
                why="a model of one forward runs on one core",
                do="pass a smaller batch_size or sequence_length, or an instance with more memory for each core",
            ),
            details={"hbm_bytes": memory},
        )
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


def _module_estimate(
    module: Any, example_inputs: Sequence[Any] | None, request: DecoderRequest, machine: Machine
) -> Estimate:
    """Any torch module: exported on its example inputs."""
    import torch

    from .work.graph import work_of_graph

    if not example_inputs:
        raise ConfigError(
            refusal(
                asked=f"estimating a {type(module).__name__}",
                found="no example_inputs",
                why="a graph is static: its shapes come from them",
                do="pass example_inputs=(tensor, ...), on any device, the meta device too",
            )
        )
    require_decoder_options_absent(request, "any forward")
    exported = torch.export.export(module.eval(), tuple(example_inputs), strict=False)
    kinds = {spec.arg.name: spec.kind.name for spec in exported.graph_signature.input_specs}
    inputs = [node for node in exported.graph.nodes if node.op == "placeholder"]
    roles: list[Any] = ["value" if kinds.get(node.name) == "USER_INPUT" else "weight" for node in inputs]
    float32 = all(p.dtype == torch.float32 for p in module.parameters())
    auto_cast: AutoCast = request.auto_cast or (DEFAULT_AUTO_CAST if float32 else "none")
    work = work_of_graph(exported.graph_module, name=type(module).__name__, roles=roles, auto_cast=auto_cast)
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    rows = int(example_inputs[0].shape[0]) if getattr(example_inputs[0], "ndim", 0) else 1
    return graph_estimate(
        work,
        machine,
        name=type(module).__name__,
        rows=rows,
        memory={"weights": weights, "code": 96 * 2**20},
        num_copies=request.data_parallel_size,
        assumptions=(f"exported on the example inputs, auto_cast {auto_cast}",),
    )


def _require_no_options(options: Mapping[str, Any], what: str) -> None:
    """Refuse keywords that nobody would read.

    Raises:
        ConfigError: at least one was given; all are named.
    """
    if unread := [f"{name}={value!r}" for name, value in options.items() if name not in SOURCE_OPTIONS]:
        raise ConfigError(
            refusal(
                asked=", ".join(unread),
                found=what,
                why="its shapes are its own, and an option that nobody reads would be ignored in silence",
                do="leave them out",
            )
        )


def _pipeline_of(model: str | Path, options: Mapping[str, Any]) -> Pipeline | None:
    """The diffusion pipeline that a name stands for; None where it is anything else."""
    from ..exporters.source import find_folder
    from .diffusion.source import is_pipeline, read_pipeline, require_no_component

    where = {key: options[key] for key in SOURCE_OPTIONS if key in options and key != "trust_remote_code"}
    folder = find_folder(model, with_weights=False, **where)
    if is_pipeline(folder):
        return read_pipeline(folder, name=str(model))
    require_no_component(folder)
    return None


def source_of(model: Any, options: dict[str, Any]) -> ModelSource:
    """Where a model's configuration is; weights are not downloaded."""
    from ..exporters.source import ModelSource, load_source

    if isinstance(model, (str, Path)):
        where = {key: options[key] for key in SOURCE_OPTIONS if key in options}
        return load_source(model, with_weights=False, **where)
    if not hasattr(model, "get_text_config"):
        raise ConfigError(
            refusal(
                asked=f"estimating a {type(model).__name__}",
                found="neither a name, a folder, a transformers configuration nor a torch module",
                why="work is counted from one of these",
                do="pass one of them",
            )
        )
    return ModelSource(name=model.model_type, folder=Path(), config=model, revision=None)


def _is_compiled(path: Path) -> bool:
    from ..exporters.folder import is_export

    with contextlib.suppress(OSError):
        return (path.is_dir() and is_export(path)) or (path.is_file() and path.suffix in (".neuron", ".neff"))
    return False


def _read_compiled(path: Path) -> tuple[Program, CompileConfig | None, str]:
    from ..compiler.neff import open_neff
    from ..compiler.package import read_program
    from ..exporters.folder import NEFF_FILE, read_folder

    config = read_folder(path).config if path.is_dir() else None
    with open_neff(path / NEFF_FILE if path.is_dir() else path) as neff:
        return read_program(neff), config, path.name
