"""`estimate`: time, memory, and cost of a model on an instance, from its configuration, its compiled program, or a
torch module.

    from optimum_neuron.simulator import estimate

    estimate("meta-llama/Llama-3.1-8B", instance="inf2.48xlarge", tensor_parallel_size=8).tpot_ms

Every estimate takes one road: a request, counts of the model, their time on a machine. Nothing is downloaded beyond the
configuration, no weight is read, and nothing is compiled for the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..base.core import AutoCast, Choice
from ..errors import ConfigError, ModelError
from ..files.plain_json import read_object
from ..hardware import require_compilable
from ..options.option import takes_options
from .clients import with_clients
from .compiled import SERVED_AS, ProgramCounts
from .configured import count_config
from .fitted import Constants
from .graphs import RunCounts
from .known import find_counts
from .machine import Machine, choose_machine, require_one_instance
from .programs import count_module, count_program
from .queueing import under_load
from .request import EstimateRequest, request_of
from .result import Estimate
from .speculation import Draft, choose_speculation, draft_of_parameters

if TYPE_CHECKING:
    import torch

    from ..compiler import Program
    from ..options.configuration import CompileConfig
    from ..sources import ModelSource


class Counts(Protocol):
    """Counted work of a model, whatever it was counted from."""

    def estimate(self, name: str, request: EstimateRequest, machine: Machine) -> Estimate:
        """Time a request on a machine; `name` is the model's in the result."""


@takes_options(EstimateRequest)
def estimate(model: Any, *, example_inputs: Sequence[torch.Tensor] | None = None, **options: Any) -> Estimate:
    """Estimate time, memory and money of a model on an instance. Every number is simulated.

    Args:
        model: folder or id of a model or of a diffusion pipeline, exported folder, NEFF file, transformers
            configuration, or torch module.
        example_inputs: arguments of a torch module's forward; real or on the meta device.
        **options: Options of an export that decide the graphs, such as `height`, `quantization`, and
            `continuous_batching`, and options that locate the model.

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
    return estimate_request(model, request_of(options), example_inputs=example_inputs)


def estimate_request(
    model: Any, request: EstimateRequest, *, example_inputs: Sequence[torch.Tensor] | None = None
) -> Estimate:
    """Estimate a request; the model is one of `estimate`."""
    machine = choose_machine(request.instance, price=request.price, constants=request.constants)
    request = _with_draft(request, machine)
    return _with_load(_timed(model, request, machine, example_inputs), request, machine)


def timed_by(model: Any, request: EstimateRequest) -> Callable[[Constants], Estimate]:
    """Count a request once, and return the function that times it with any constants."""
    machine = choose_machine(request.instance, price=request.price)
    counted = _counted(model, request, machine, None)

    def timed(constants: Constants) -> Estimate:
        own = dataclasses.replace(machine, constants=constants)
        return _with_load(_estimate_counts(counted, request, own), request, own)

    return timed


def _with_load(result: Estimate, request: EstimateRequest, machine: Machine) -> Estimate:
    """Add the load of a request, and a note on memory that may be too small."""
    if result.fit != "fits":
        high, room = (size / 2**30 for size in (result.quantities["hbm_bytes_per_core"].high, result.available_bytes))
        result = result.noted(f"it may not fit: a core has {room:.0f} GiB, and needs up to {high:.1f} GiB")
    if request.num_clients is not None:
        return with_clients(result, request.num_clients, machine.constants, num_requests=request.num_requests)
    if request.requests_per_s is None:
        return result
    room = machine.num_logical_cores // result.num_cores.value
    return under_load(result, request.requests_per_s, room=room)


def estimate_program(program: Program, config: CompileConfig, *, name: str, **options: Any) -> Estimate:
    """Estimate a compiled program that is in memory; options are those of `estimate`."""
    return estimate_request(_Compiled(program, config, name), request_of(options))


@dataclasses.dataclass(frozen=True)
class _Compiled:
    """A compiled model."""

    program: Program
    config: CompileConfig | None
    """Of its export; None for a NEFF without one."""
    name: str
    auto_cast: AutoCast = "none"
    """How it was compiled, if there is no configuration."""


def _timed(
    model: Any, request: EstimateRequest, machine: Machine, example_inputs: Sequence[torch.Tensor] | None = None
) -> Estimate:
    """Count a model and time its counts."""
    return _estimate_counts(_counted(model, request, machine, example_inputs), request, machine)


def _estimate_counts(
    counted: tuple[str, Counts, Choice[str] | None], request: EstimateRequest, machine: Machine
) -> Estimate:
    name, counts, origin = counted
    encodes = isinstance(counts, ProgramCounts) and counts.plan.value.encode is not None
    if not isinstance(counts, RunCounts) and not encodes:
        require_compilable(machine.target)
    result = counts.estimate(name, request, machine)
    return result if origin is None else dataclasses.replace(result, counts=origin)


def _counted(
    model: Any, request: EstimateRequest, machine: Machine, example_inputs: Sequence[torch.Tensor] | None
) -> tuple[str, Counts, Choice[str] | None]:
    """Return the name of a model, its counts, and where those of a checkpoint are kept."""
    if hasattr(model, "forward") and hasattr(model, "parameters"):
        require_one_instance(machine, "a torch module")
        return type(model).__name__, count_module(model, example_inputs, request, machine), None
    if example_inputs is not None:
        message = "example_inputs has no effect on a model that is not a torch module."
        raise ConfigError(message, hint="Remove it.", option="example_inputs", options=["example_inputs"])
    named = isinstance(model, (str, Path))
    if named and is_compiled(Path(model)):
        model = _read_compiled(Path(model))
    if isinstance(model, _Compiled):
        name, cast = model.name, model.auto_cast
        return name, count_program(model.program, model.config, request, machine, name=name, auto_cast=cast), None
    require_one_instance(machine, "an estimate of a configuration")
    if not named:
        source = source_of(model, request.source)
        return source.name, count_config(source, request, machine), None
    from ..sources import find_folder

    folder = find_folder(model, with_weights=False, **request.source)
    known = find_counts(folder, request, machine)
    if known.counts is not None:
        return str(model), known.counts, Choice(value="cached", reason=known.reason)
    if _is_pipeline(folder):
        from .diffusion import count_pipeline, read_pipeline

        require_compilable(machine.target)
        return str(model), count_pipeline(read_pipeline(folder, name=str(model)), request, machine), None
    counts = count_config(source_of(model, request.source), request, machine)
    return str(model), counts, known.keep(str(model), counts)


def _with_draft(request: EstimateRequest, machine: Machine) -> EstimateRequest:
    """Add the speculation of a request; a draft model is estimated on the same machine, one sequence at a time."""
    draft = None
    if request.draft_parameters is not None:
        if request.draft_model is not None:
            message, hint = "draft_model and draft_parameters are two drafts.", "Pass one of them."
            raise ConfigError(message, hint=hint, options=["draft_model", "draft_parameters"])
        draft = draft_of_parameters(request.draft_parameters, machine)
    elif request.draft_model is not None:
        draft = _draft_of(request.draft_model, request, machine)
    if draft is None and request.acceptance_rate is None and request.num_speculative_tokens is None:
        return request
    speculation = choose_speculation(request.acceptance_rate, request.num_speculative_tokens, draft)
    return dataclasses.replace(request, speculation=speculation)


def _draft_of(model: Any, request: EstimateRequest, machine: Machine) -> Draft:
    """Return a draft model with its times for the lengths of a request."""
    compiled = isinstance(model, (str, Path)) and is_compiled(Path(model))
    asked = {name: getattr(request, name) for name in ("sequence_length", "input_length", "output_length")}
    asked["stack"] = None if compiled else SERVED_AS.name
    no_decoder = ConfigError(
        "The draft model is no decoder, so it drafts no tokens.",
        hint="Pass a smaller decoder as draft_model.",
        option="draft_model",
    )
    try:
        result = _timed(model, EstimateRequest(**asked), machine)
    except ConfigError as error:
        if asked.keys() & set(error.details.get("options", ())):  # options of decoders have no effect on it
            raise no_decoder from error
        raise
    if result.tpot_ms is None or result.ttft_ms is None:
        raise no_decoder
    return Draft(
        name=f"draft model {result.model}",
        candidate_s=1e-3 * result.tpot_ms.value,
        prompt_s=1e-3 * result.ttft_ms.value,
    )


def _is_pipeline(folder: Path) -> bool:
    """Return whether a folder holds a diffusion pipeline; one component does not say how often it runs."""
    from ..sources import INDEX_FILE, is_pipeline

    path = folder / "config.json"
    if is_pipeline(folder) or not path.is_file():
        return is_pipeline(folder)
    data = read_object(path)
    if "_class_name" in data and "model_type" not in data:
        class_name = data["_class_name"]
        message = f"{folder} has a {class_name}, which is one component of a diffusion pipeline."
        hint = f"Pass the folder of the pipeline, which has a {INDEX_FILE}."
        raise ModelError(message, hint=hint, class_name=class_name, missing=INDEX_FILE)
    return False


def source_of(model: Any, options: Mapping[str, Any]) -> ModelSource:
    """Folder of a model's configuration; weights are not downloaded."""
    from ..sources import ModelSource, load_source, require_readable

    if isinstance(model, (str, Path)):
        return load_source(model, with_weights=False, **options)
    if not hasattr(model, "get_text_config"):
        name = type(model).__name__
        hint = "Pass a name, a folder, a transformers configuration, or a torch module."
        raise ConfigError(f"A {name} cannot be estimated.", hint=hint, type=name)
    require_readable(model, model=f"a {model.model_type} configuration")
    # The current folder may hold a checkpoint, which is not this model's.
    return ModelSource(name=model.model_type, folder=Path(os.devnull), config=model, revision=None)


def is_compiled(path: Path) -> bool:
    from ..options.configuration import is_export

    with contextlib.suppress(OSError):
        return (path.is_dir() and is_export(path)) or (path.is_file() and path.suffix in (".neuron", ".neff"))
    return False


def _read_compiled(path: Path) -> _Compiled:
    from ..artifact import open_artifact
    from ..exporters import read_folder
    from ..options.configuration import NEFF_FILE

    config = read_folder(path).config if path.is_dir() else None
    artifact = open_artifact(path / NEFF_FILE if path.is_dir() else path)
    return _Compiled(artifact.program, config, path.name, artifact.metadata.get("auto_cast", "none"))
