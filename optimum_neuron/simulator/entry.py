"""`estimate`: time, memory, and cost of a model on an instance, from its configuration, its compiled program, or a
torch module.

    from optimum_neuron.simulator import estimate

    estimate("meta-llama/Llama-3.1-8B", instance="inf2.48xlarge", tensor_parallel_size=8).tpot_ms

Nothing is downloaded beyond the configuration, no weight is read, and nothing is compiled for the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import AutoCast
from ..errors import ConfigError
from ..options import SOURCE_OPTIONS, check_known, source_options
from .compiled import SERVED_AS
from .configured import config_estimate
from .decoders import DecoderRequest, require_no_options
from .known import find_counts
from .machine import Machine, choose_machine, positive, require_one_instance
from .programs import module_estimate, program_estimate
from .quantity import Estimate
from .queueing import under_load
from .speculation import Draft, choose_speculation, draft_of_parameters

if TYPE_CHECKING:
    import torch

    from ..compiler import Program
    from ..configuration import CompileConfig
    from ..exporters import ModelSource
    from .diffusion import Pipeline


def estimate(
    model: Any,
    *,
    instance: str | None = None,
    batch_size: int = 1,
    sequence_length: int | None = None,
    input_length: int | None = None,
    output_length: int | None = None,
    tensor_parallel_size: int | None = None,
    data_parallel_size: int | None = None,
    concurrency: int | None = None,
    batches_in_flight: int | None = None,
    prefix_hit_rate: float | None = None,
    dtype: str | None = None,
    auto_cast: AutoCast | None = None,
    sdk: str | None = None,
    stack: str | None = None,
    price: float | None = None,
    requests_per_s: float | None = None,
    acceptance_rate: float | None = None,
    num_speculative_tokens: int | None = None,
    draft_model: Any = None,
    draft_parameters: int | None = None,
    example_inputs: Sequence[torch.Tensor] | None = None,
    **options: Any,
) -> Estimate:
    """Estimate time, memory and money of a model on an instance. Every number is simulated.

    Args:
        model: folder or id of a model or of a diffusion pipeline, exported folder, NEFF file, transformers
            configuration, or torch module.
        instance: instance or family, or several for an export with stages ("2xtrn1.32xlarge"); None as elsewhere in
            this package.
        batch_size: rows of a run, or of a decode step.
        sequence_length: compiled tokens of a sequence, in a decoder prompt and answer together; None for the sum of
            `input_length` and `output_length`, or the model's own, at most 4096.
        input_length: tokens of a prompt, or of an encoder-decoder's source; None for what the answer leaves.
        output_length: tokens of an answer; None for half of the sequence, or for what the prompt leaves.
        tensor_parallel_size: cores that share a replica; None for the fewest that hold it.
        data_parallel_size: replicas on the instance; None for as many as it holds.
        concurrency: requests of a decoder that arrive together; None for the batch.
        batches_in_flight: batches that each replica of a single-pass model has at once, so that copies of one overlap
            with the run of another; None for one.
        prefix_hit_rate: share of the prompt tokens that are in the prefix cache, with continuous batching; None for an
            empty cache.
        dtype: dtype of the weights; None for the checkpoint's.
        auto_cast: rounding of float32 products; None for "matmul" where weights are float32.
        sdk: release of the Neuron SDK, which decides the serving stack; None for the current one.
        stack: serving stack, see `stacks.STACKS`; None for the usual one.
        price: US dollars for an hour of one instance; None for the published on-demand price.
        requests_per_s: requests that arrive at random, for waiting times; None for none.
        acceptance_rate: share of the candidates of speculation that are accepted; None for no speculation.
        num_speculative_tokens: candidates of a check; None for as many as the program checks.
        draft_model: a model that proposes them, as `model`; None for prompt lookup, which takes no time.
        draft_parameters: weights that another draft reads for a check, such as Medusa heads or an EAGLE layer.
        example_inputs: arguments of a torch module's forward; real or on the meta device.
        **options: Shapes of `main_export` such as `height`, image options (`num_inference_steps`, `guidance_scale`,
            `data_parallel_mode`), options that locate the model, and those of an export that decide a decoder's graphs,
            such as `quantization`, `continuous_batching`, and `max_loras`.

    Returns:
        Quantities with 80 % intervals, memory, bounds, assumptions.

    Raises:
        ConfigError: a size, core count, instance, SDK or keyword is not possible.
        DeviceMemoryError: It does not fit a core; the message has the table and the changes that would make it fit.
        ModelError: the model cannot be found or built.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.simulator import estimate

        config = LlamaConfig(num_hidden_layers=2, hidden_size=256, num_attention_heads=4)
        result = estimate(config, instance="trn1.2xlarge", sequence_length=512)
        assert result.simulated and result.tpot_ms.low < result.tpot_ms.value < result.tpot_ms.high
        ```
    """
    _require_known(options)
    positive("batch_size", batch_size)
    machine = choose_machine(instance, price=price)
    draft_request = DecoderRequest(
        sequence_length=sequence_length, input_length=input_length, output_length=output_length
    )
    draft = _draft_of(draft_model, draft_parameters, machine, draft_request)
    request = DecoderRequest(
        batch_size=batch_size,
        sequence_length=sequence_length,
        input_length=input_length,
        output_length=output_length,
        tensor_parallel_size=tensor_parallel_size,
        data_parallel_size=data_parallel_size,
        concurrency=concurrency,
        batches_in_flight=batches_in_flight,
        prefix_hit_rate=prefix_hit_rate,
        dtype=dtype,
        auto_cast=auto_cast,
        sdk=sdk,
        stack=stack,
        speculation=choose_speculation(acceptance_rate, num_speculative_tokens, draft),
    )
    result = _estimate(model, example_inputs, request, machine, options)
    return _completed(result, machine, requests_per_s)


def estimate_program(
    program: Program,
    config: CompileConfig,
    *,
    name: str,
    instance: str | None = None,
    price: float | None = None,
    requests_per_s: float | None = None,
    acceptance_rate: float | None = None,
    num_speculative_tokens: int | None = None,
    draft_model: Any = None,
    draft_parameters: int | None = None,
    prefix_hit_rate: float | None = None,
    **lengths: int | None,
) -> Estimate:
    """Estimate a compiled program that is in memory; arguments are those of `estimate`.

    Raises:
        ConfigError: as `estimate`.
    """
    machine = choose_machine(instance, price=price)
    request = DecoderRequest(prefix_hit_rate=prefix_hit_rate, **lengths)  # type: ignore[arg-type]
    draft = _draft_of(draft_model, draft_parameters, machine, request)
    speculation = choose_speculation(acceptance_rate, num_speculative_tokens, draft)
    request = dataclasses.replace(request, speculation=speculation)
    return _completed(program_estimate(program, config, request, machine, name=name), machine, requests_per_s)


def _require_known(options: dict[str, Any]) -> None:
    """Check that keywords are options of some model; whether it is this one is checked with its kind.

    Raises:
        ConfigError: one is of none.
    """
    from ..exporters import compile_options, translate

    known = [*inspect.signature(estimate).parameters, *compile_options(), *SOURCE_OPTIONS]
    if any(name not in known for name in options):
        from .diffusion import OPTIONS  # imports torch

        known += [*OPTIONS, "refiner_model", "denoising_end"]
        check_known(translate(options), known, what="the estimate", listed="`optimum-cli neuron estimate --help`")


def _completed(result: Estimate, machine: Machine, requests_per_s: float | None) -> Estimate:
    """Add a note on memory that may not suffice, and a load if there is one."""
    if result.fit != "fits":
        high, room = (size / 2**30 for size in (result.quantities["hbm_bytes_per_core"].high, result.available_bytes))
        result = result.noted(f"it may not fit: a core has {room:.0f} GiB, and needs up to {high:.1f} GiB")
    if requests_per_s is None:
        return result
    room = machine.num_logical_cores // result.num_cores.value
    return under_load(result, requests_per_s, room=room)


def _estimate(
    model: Any,
    example_inputs: Sequence[torch.Tensor] | None,
    request: DecoderRequest,
    machine: Machine,
    options: dict[str, Any],
) -> Estimate:
    from ..exporters import find_folder

    others = {key: value for key, value in options.items() if key not in SOURCE_OPTIONS}
    if hasattr(model, "forward") and hasattr(model, "parameters"):
        require_no_options(others, "a torch module")
        require_one_instance(machine, "a torch module")
        return module_estimate(model, example_inputs, request, machine)
    if isinstance(model, (str, Path)) and is_compiled(Path(model)):
        require_no_options(others, "a compiled model")
        program, config, name = _read_compiled(Path(model))
        return program_estimate(program, config, request, machine, name=name)
    require_one_instance(machine, "an estimate of a configuration")
    trusted = options.get("trust_remote_code", False)
    if not isinstance(model, (str, Path)):
        return config_estimate(source_of(model, options), request, machine, others, trust_remote_code=trusted)
    folder = find_folder(model, with_weights=False, **source_options(options))
    known = find_counts(folder, request, machine, options)
    if known.counts is not None:
        return known.estimate(str(model), request, machine)
    if (pipeline := _pipeline_of(folder, name=str(model))) is not None:
        from .diffusion import diffusion_estimate

        return diffusion_estimate(pipeline, request, machine, others)
    source = source_of(model, options)
    return config_estimate(source, request, machine, others, trust_remote_code=trusted, known=known)


def _draft_of(model: Any, num_parameters: int | None, machine: Machine, request: DecoderRequest) -> Draft | None:
    """The draft of a request, whose model is estimated on the same machine, one sequence of its lengths at a time."""
    if num_parameters is not None:
        if model is not None:
            message, hint = "draft_model and draft_parameters are two drafts.", "Pass one of them."
            raise ConfigError(message, hint=hint, options=["draft_model", "draft_parameters"])
        return draft_of_parameters(num_parameters, machine)
    if model is None:
        return None
    compiled = isinstance(model, (str, Path)) and is_compiled(Path(model))
    lengths = {name: getattr(request, name) for name in ("sequence_length", "input_length", "output_length")}
    request = DecoderRequest(stack=None if compiled else SERVED_AS.name, **lengths)
    result = _estimate(model, None, request, machine, {})
    if result.tpot_ms is None or result.ttft_ms is None:
        message = f"{result.model} is no decoder, so it drafts no tokens."
        raise ConfigError(message, hint="Pass a smaller decoder as draft_model.", option="draft_model")
    return Draft(
        name=f"draft model {result.model}",
        candidate_s=1e-3 * result.tpot_ms.value,
        prompt_s=1e-3 * result.ttft_ms.value,
    )


def _pipeline_of(folder: Path, *, name: str) -> Pipeline | None:
    """The diffusion pipeline of a folder; None where it has anything else."""
    from ..exporters.diffusion import is_pipeline
    from .diffusion import read_pipeline, require_no_component

    if is_pipeline(folder):
        return read_pipeline(folder, name=name)
    require_no_component(folder)
    return None


def source_of(model: Any, options: dict[str, Any]) -> ModelSource:
    """Folder of a model's configuration; weights are not downloaded."""
    from ..exporters import ModelSource, load_source, require_readable

    if isinstance(model, (str, Path)):
        return load_source(model, with_weights=False, **source_options(options))
    if not hasattr(model, "get_text_config"):
        name = type(model).__name__
        hint = "Pass a name, a folder, a transformers configuration, or a torch module."
        raise ConfigError(f"A {name} cannot be estimated.", hint=hint, type=name)
    require_readable(model, model=f"a {model.model_type} configuration")
    # The current folder may hold a checkpoint, which is not this model's.
    return ModelSource(name=model.model_type, folder=Path(os.devnull), config=model, revision=None)


def is_compiled(path: Path) -> bool:
    from ..exporters import is_export

    with contextlib.suppress(OSError):
        return (path.is_dir() and is_export(path)) or (path.is_file() and path.suffix in (".neuron", ".neff"))
    return False


def _read_compiled(path: Path) -> tuple[Program, CompileConfig | None, str]:
    from ..artifact import open_artifact
    from ..configuration import NEFF_FILE
    from ..exporters import read_folder

    config = read_folder(path).config if path.is_dir() else None
    return open_artifact(path / NEFF_FILE if path.is_dir() else path).program, config, path.name
