"""The request of an estimate: every option in one dataclass, with the models that it has an effect on.

Keywords of `estimate` and their documentation, flags of the command line, keys of cached counts, and errors for options
without an effect are derived from the fields: a new option is one field here.

    >>> request = request_of({"sequence_length": 128, "instance": "inf2.xlarge", "height": 64})
    >>> request.sequence_length, request.export
    (128, {'height': 64})
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, Literal

from ..base.core import AutoCast
from ..errors import ConfigError
from ..options.option import SOURCE_OPTIONS, HasOptions, Option, check_known, option, options_of, source_options
from .machine import positive
from .speculation import Speculation

Kind = Literal["decoder", "encoder-decoder", "single-pass", "pipeline", "module"]
"""Kinds of models that differ in their options; a torch module has its shapes already, as compiled models do."""
ALL: tuple[Kind, ...] = ("decoder", "encoder-decoder", "single-pass", "pipeline", "module")
CONFIGURED: tuple[Kind, ...] = ("decoder", "encoder-decoder", "single-pass")
SHAPED: tuple[Kind, ...] = (*CONFIGURED, "pipeline")
GENERATORS: tuple[Kind, ...] = ("decoder", "encoder-decoder")
DECODERS: tuple[Kind, ...] = ("decoder",)
PIPELINES: tuple[Kind, ...] = ("pipeline",)
RUNS: tuple[Kind, ...] = ("single-pass", "module")
MODULES: tuple[Kind, ...] = ("module",)
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3"}


def _asked(
    help: str,
    on: Collection[Kind] = ALL,
    *,
    default: Any = None,
    compiled: Collection[Kind] | None = None,
    **parts: Any,
) -> Any:
    """Return the field of an option.

    Args:
        on: kinds of models that it has an effect on.
        default: its value if it is not given.
        compiled: kinds of compiled models that it has an effect on; None: the same kinds.
        **parts: other fields of `options.Option`.
    """
    metadata = option(default, help=help, **parts).metadata
    return dataclasses.field(
        default=default, metadata={**metadata, "on": on, "compiled": on if compiled is None else compiled}
    )


_load = functools.partial(_asked, group="request")
_speculation = functools.partial(_asked, on=DECODERS, group="speculation")
_picture = functools.partial(_asked, on=PIPELINES, group="diffusion pipelines")
_machine = functools.partial(_asked, group="machine")
_DERIVED: Mapping[str, Any] = {"option": Option(is_keyword=False)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EstimateRequest(HasOptions):
    """What is asked of an estimate. The meaning of an option is its help text."""

    batch_size: int = _load(
        "batch size of a run or step; auto, with --compare or --optimize: the best that fits",
        SHAPED,
        compiled=(),
        default=1,
        flags=("--batch", "--batch_size"),
        words=("auto",),
    )
    sequence_length: int | None = _load(
        "compiled tokens of a sequence, of a decoder prompt and answer together (default: the sum of both, or the "
        "model's own, at most 4096)",
        SHAPED,
        compiled=DECODERS,
    )
    input_length: int | None = _load(
        "tokens of a prompt, padded to a compiled length (default: sequence - output)", GENERATORS
    )
    output_length: int | None = _load(
        "tokens of an answer (default: half of the sequence, or what the prompt leaves)", GENERATORS
    )
    concurrency: int | None = _load("requests that arrive together (default: the batch size)", GENERATORS)
    batches_in_flight: int | None = _load(
        "batches that each replica of a single-pass model has at once, which wait for their turn; stages of a pipeline "
        "work on several (default: 1)",
        RUNS,
        in_program=False,
    )
    prefix_hit_rate: float | None = _load(
        "share of the prompt tokens in the prefix cache, 0 to 1, with continuous batching", DECODERS
    )
    requests_per_s: float | None = _load(
        "requests that arrive at random each second, for waiting times and the replicas that they need",
        in_program=False,
    )
    num_clients: int | None = _load(
        "clients that each send a request when their last one is answered, for the times and tokens/s that they see",
        DECODERS,
        in_program=False,
    )
    num_requests: int | None = _load(
        "requests of all clients together, as --num-prompts of vllm bench (default: several rounds of each client)",
        DECODERS,
        in_program=False,
    )
    task: str | None = _load("task of the model (default: from the config)", CONFIGURED, compiled=())
    acceptance_rate: float | None = _speculation(
        "share of the candidates that are accepted, 0 to 1 (default: one token in each step)"
    )
    num_speculative_tokens: int | None = _speculation(
        "candidates of a check (default: as many as the program checks)",
        flags=("--num_speculative_tokens", "--speculation_length"),
    )
    draft_model: Any = _speculation(
        "model that proposes them (default: prompt lookup, which takes no time)", metavar="MODEL"
    )
    draft_parameters: int | None = _speculation(
        "weights that another draft reads for a check, such as Medusa heads or an EAGLE layer"
    )
    num_inference_steps: int | None = _picture("denoising steps (default: the pipeline's)")
    guidance_scale: float | None = _picture("weight of the prompt; 1 or less: steps run once (default: the pipeline's)")
    refiner_model: Any = _picture("pipeline that takes on the latents, such as the refiner of SDXL", metavar="MODEL")
    denoising_end: float | None = _picture("share of the steps before the refiner (default: 0.8)")
    data_parallel_mode: Literal["unet", "transformer", "none"] | None = _picture(
        "what runs the halves of guidance on two cores; none: in one batch (default: two where there are)",
        compiled=(),
    )
    instance: str | None = _machine(
        "instance or family, for example inf2.48xlarge (default: as elsewhere in this package)", metavar="NAME"
    )
    tensor_parallel_size: int | None = _machine(
        "cores of a replica (default: the fewest that hold it)", SHAPED, compiled=()
    )
    pipeline_parallel_size: int | None = _machine(
        "cores that share a single-pass model on Inf1, as NeuronCore Pipeline (default: 1)",
        RUNS,
        compiled=MODULES,
        flags=("--pipeline_parallel_size", "--neuroncore-pipeline-cores"),
    )
    data_parallel_size: int | None = _machine("replicas (default: as many as the instance holds)", in_program=False)
    dtype: str | None = _machine(
        "dtype of the weights, for example bf16 (default: the checkpoint's)", SHAPED, compiled=(), metavar="DTYPE"
    )
    auto_cast: AutoCast | None = _machine(
        "rounding of float32 (default: matmul, on Inf1 all, if weights are float32)", compiled=MODULES
    )
    sdk: str | None = _machine(
        "release of the Neuron SDK, which decides the serving stack (default: the current one)",
        CONFIGURED,
        compiled=(),
        metavar="X.Y",
        in_program=False,
    )
    stack: str | None = _machine(
        "serving stack: transformers-neuronx, tgi, vllm, nxd-inference (default: the usual one of the SDK)",
        DECODERS,
        compiled=(),
        metavar="NAME",
    )
    price: float | None = _machine(
        "price of one instance for an hour (default: on demand)", metavar="USD", in_program=False
    )
    constants: Any = _machine(
        "constants that neuron calibrate wrote (default: those of this version)", metavar="FILE", in_program=False
    )
    export: Mapping[str, Any] = dataclasses.field(default_factory=dict, metadata=_DERIVED)
    """Options of an export that decide the graphs, such as `quantization` or `height`."""
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict, metadata=_DERIVED)
    """Options that locate the model."""
    speculation: Speculation | None = dataclasses.field(default=None, metadata=_DERIVED)
    """Candidates that are checked together, with the time of their draft on the machine."""

    def __post_init__(self) -> None:
        rate = self.prefix_hit_rate
        if rate is not None and (isinstance(rate, bool) or not 0 <= rate <= 1):
            message = f"prefix_hit_rate={rate} is not a share from 0 to 1."
            raise ConfigError(message, hint="Pass one.", option="prefix_hit_rate", value=rate)
        positive("batch_size", self.batch_size)
        lengths = ("input_length", "output_length", "batches_in_flight", "concurrency", "num_clients", "num_requests")
        for name in (*lengths, "pipeline_parallel_size"):
            if (value := getattr(self, name)) is not None:
                positive(name, value)
        if self.num_clients is not None and self.requests_per_s is not None:
            message = "num_clients and requests_per_s are two loads: clients that wait, and arrivals at random."
            raise ConfigError(message, hint="Pass one of them.", options=["num_clients", "requests_per_s"])
        if self.num_requests is not None and self.num_clients is None:
            message = f"num_requests={self.num_requests} has no effect without num_clients."
            raise ConfigError(message, hint="Pass both.", option="num_requests", value=self.num_requests)

    @property
    def trusts_code(self) -> bool:
        """Whether code that comes with a checkpoint may run."""
        return bool(self.source.get("trust_remote_code", False))

    @property
    def of_graphs(self) -> dict[str, Any]:
        """Options that decide the graphs of a model, by name."""
        deciding = [name for name, one in options_of(type(self)).items() if one.is_keyword and one.in_program]
        return {**{name: getattr(self, name) for name in deciding}, "export": dict(self.export)}

    def require_effect(self, kind: Kind, what: str, *, compiled: bool = False, without: Collection[str] = ()) -> None:
        """Check that every option has an effect on a model.

        Args:
            kind: of the model.
            what: the model, for messages.
            compiled: whether it is compiled, or a torch module: options of an export are decided.
            without: more options that have none on this model.
        """
        effect = "compiled" if compiled else "on"
        values = {name: getattr(self, name) for name in KEYWORDS}
        given = {name: value for name, value in values.items() if value not in (None, _FIELDS[name].default)}
        ignored = {
            name: value
            for name, value in given.items()
            if (name in without or kind not in _FIELDS[name].metadata[effect])
            and not (name in ("tensor_parallel_size", "pipeline_parallel_size") and value == 1)
        }
        as_kind = "single-pass" if kind == "module" else kind
        decided = compiled and all(as_kind in _FIELDS[name].metadata["on"] for name in ignored)
        if compiled:
            ignored |= self.export
        require_no_options(ignored, what, decided=decided)


_FIELDS = {field.name: field for field in dataclasses.fields(EstimateRequest)}
KEYWORDS = tuple(name for name, one in options_of(EstimateRequest).items() if one.is_keyword)
"""Keywords of an estimate. It also takes options of an export, and options that locate the model."""


def keywords_of_compiled(*kinds: Kind) -> tuple[str, ...]:
    """Return the keywords that have an effect on compiled models of some kinds."""
    return tuple(name for name in KEYWORDS if not {*kinds}.isdisjoint(_FIELDS[name].metadata["compiled"]))


def request_of(options: Mapping[str, Any]) -> EstimateRequest:
    """Return the request of keywords: those of an estimate, of an export, and of a source."""
    own = {name: value for name, value in options.items() if name in KEYWORDS}
    source = source_options(options)
    export = {name: value for name, value in options.items() if name not in own and name not in source}
    if export:
        from ..exporters import translate
        from ..kinds import compile_options

        known = (*KEYWORDS, *compile_options(), *SOURCE_OPTIONS)
        if any(name not in known for name in export):
            check_known(translate(export), known, what="the estimate", listed="`optimum-cli neuron estimate --help`")
    return EstimateRequest(**own, export=_given(export), source=_given(source))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def require_no_options(options: Mapping[str, Any], what: str, *, decided: bool = False) -> None:
    """Check that no options are left that would be ignored.

    Args:
        options: options that have no effect, with their values.
        decided: whether they were decided when it was compiled.
    """
    if not options:
        return
    details: dict[str, Any] = {"options": list(options)}
    if len(options) == 1:
        details |= {"option": details["options"][0], "value": next(iter(options.values()))}
    if decided:
        message = f"{', '.join(options)} cannot be chosen for {what}: it was decided before."
        hint = "Remove it, or estimate the model's folder or configuration instead."
        raise ConfigError(message, hint=hint, **details)
    named = ", ".join(f"{name}={value!r}" for name, value in options.items())
    message = f"{named} {'has' if len(options) == 1 else 'have'} no effect on {what}."
    raise ConfigError(message, hint=f"Remove {', '.join(options)}.", **details)
