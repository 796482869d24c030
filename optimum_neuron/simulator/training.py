"""`estimate_training`: sequences and tokens per second, dollars, and the memory of a core while training.

The time is one constant share of the peak, the median of published results: operator-level models of a step were worse
on other families. Pipeline stages wait for each other as GPipe's do (Huang et al. 2019). Memory is arithmetic.

    estimate_training(config, instance="trn1.32xlarge").layout.reason
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..base.core import Choice
from ..compiler import MICROCODE_BYTES
from ..hardware import require_compilable
from .fitted import Band
from .machine import Machine, choose_machine, positive, require_one_instance
from .result import WIDE, Quantity
from .training_layout import TrainingLayout, TrainingRequest, choose_layout, training_memory
from .work import RECOMPUTE, TrainedSizes, step_flops, trained_sizes

BANDS = {
    "decoder": Band(low=0.82, high=1.22, num_rows=9, basis="published pre-training runs on 16 and 32 nodes, Trainium"),
    "encoder": Band(low=0.41, high=1.1, num_rows=4, basis="published runs of BERT-large, releases 2.22 and 2.28"),
    "vision": WIDE,
}
"""Published share of the peak over the median of other families, since SDK 2.18, by kind of model: of decoders a
conformal quantile (`tools/fidelity/report.py`), of the one encoder its range."""
DEFAULT_BATCH_SIZE = 256
"""Sequences of a step, of all replicas together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingEstimate:
    """Speed, cost and memory of training. Every number is simulated."""

    model: str
    instance: Choice[str]
    num_instances: int
    layout: Choice[str]
    """Tensor, pipeline and data parallelism."""
    quantities: Mapping[str, Quantity] = dataclasses.field(hash=False)
    """step_ms, sequences_per_s, tokens_per_s, usd_per_1m_tokens, mfu."""
    memory: Mapping[str, int] = dataclasses.field(hash=False)
    """HBM of one core by category."""
    available_bytes: int
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Reasons why it is less certain."""
    simulated: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "simulated": True,
            "model": self.model,
            "instance": self.instance.to_dict(),
            "num_instances": self.num_instances,
            "layout": self.layout.to_dict(),
            **{name: dataclasses.asdict(quantity) for name, quantity in self.quantities.items()},
            "hbm_bytes": {**self.memory, "total": sum(self.memory.values()), "available": self.available_bytes},
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        from ..pages import embedded, training_page

        return embedded(training_page(self.to_dict()))


def estimate_training(
    model: Any,
    *,
    instance: str | None = "trn1.32xlarge",
    num_instances: int = 1,
    sequence_length: int | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    micro_batch_size: int = 1,
    tensor_parallel_size: int | None = None,
    pipeline_parallel_size: int | None = None,
    zero_1: bool = True,
    gradient_checkpointing: bool = True,
    optimizer_use_master_weights: bool = True,
    price: float | None = None,
    trust_remote_code: bool = False,
) -> TrainingEstimate:
    """Estimate training a decoder or an encoder in bfloat16 with Adam. Every number is simulated.

    Args:
        model: folder or id of a model, or transformers configuration.
        instance: of Trainium.
        num_instances: how many take part.
        sequence_length: tokens of a sequence; None for the model's own, at most 4096, and for pictures.
        batch_size: sequences of a step, of all replicas together.
        micro_batch_size: sequences of one forward and backward.
        tensor_parallel_size: cores that share a layer; None for the smallest layout that fits.
        pipeline_parallel_size: stages; None as above.
        zero_1: optimizer states are split over the copies.
        gradient_checkpointing: activations of a layer are computed again in the backward.
        optimizer_use_master_weights: Keep float32 weights next to the 16-bit ones.
        price: US dollars for an hour of one instance.
        trust_remote_code: run the model's own code.

    Raises:
        ConfigError: a size or core count is not possible.
        DeviceMemoryError: no legal layout fits; the message has the table of the largest.
        ModelError: the model cannot be found or built, or is neither a decoder nor an encoder of equal layers.

    Example:
        ```python
        from transformers import LlamaConfig
        from optimum_neuron.simulator import estimate_training

        config = LlamaConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=1408)
        result = estimate_training(config, sequence_length=1024)
        assert result.layout.value == "TP=1 PP=1 DP=32"
        ```
    """
    from .configured import decodes
    from .entry import source_of

    machine = choose_machine(instance, price=price)
    require_compilable(machine.target)
    require_one_instance(machine, "an estimate of training, which takes num_instances,")
    source = source_of(model, {"trust_remote_code": trust_remote_code})
    sizes = trained_sizes(
        source.config,
        decodes=decodes(source.config),
        sequence_length=None if sequence_length is None else positive("sequence_length", sequence_length),
        trust_remote_code=trust_remote_code,
    )
    request = TrainingRequest(
        sequence_length=sizes.sequence_length,
        batch_size=positive("batch_size", batch_size),
        micro_batch_size=positive("micro_batch_size", micro_batch_size),
        zero_1=zero_1,
        checkpointing=gradient_checkpointing,
        master_weights=optimizer_use_master_weights,
        num_instances=positive("num_instances", num_instances),
    )
    layout = choose_layout(sizes, request, machine, tensor_parallel_size, pipeline_parallel_size)
    result = _estimate(sizes, request, machine, layout, source.name)
    if sizes.kind == "decoder" and source.config.get_text_config(decoder=True) is not source.config:
        notes = (*result.notes, "the text model alone: what reads images is not counted")
        return dataclasses.replace(result, notes=notes)
    return result


def _estimate(
    sizes: TrainedSizes, request: TrainingRequest, machine: Machine, layout: Choice[TrainingLayout], name: str
) -> TrainingEstimate:
    chosen, spec = layout.value, machine.instance.value
    tokens = request.batch_size * request.sequence_length
    flops = step_flops(
        num_parameters=sizes.num_multiplied,
        num_layers=sizes.num_layers,
        hidden=sizes.hidden,
        tokens=tokens,
        sequence_length=request.sequence_length,
    )
    peak = request.num_instances * spec.num_chips * spec.chip.tflops["bfloat16"] * 1e12
    microbatches = max(request.batch_size // (chosen.data_parallel * request.micro_batch_size), 1)
    bubble = (chosen.pipeline_parallel - 1) / microbatches
    usual = (8 - 1) / 64  # pipelines of the published runs: 8 stages, tens of microbatches
    slower = (1 + bubble) / (1 + usual) if chosen.pipeline_parallel > 1 else 1.0
    mfu = machine.constants.training_mfu / slower * (1.0 if request.checkpointing else RECOMPUTE)
    step_s = flops / (peak * min(mfu, 1.0))
    limited, band = "link" if bubble > 1 else "tensor", BANDS[sizes.kind]
    quantities = {
        "step_ms": Quantity.inverse(step_s * 1e3, band, limited),
        "sequences_per_s": Quantity.of(request.batch_size / step_s, band, limited),
        "tokens_per_s": Quantity.of(tokens / step_s, band, limited),
        "mfu": Quantity.of(mfu, band, limited),
    }
    notes = [f"{sizes.kind}: {band.basis}"] if sizes.kind != "decoder" else []
    if (usd := machine.usd_per_1m(tokens / step_s)) is not None:
        quantities["usd_per_1m_tokens"] = Quantity.inverse(request.num_instances * usd, band, limited)
    else:
        notes.append(machine.price_source)
    if request.num_instances > 1:
        exchange = (
            "the exchange of gradients between instances is not counted: a published step of 2 microbatches on 16 "
        )
        notes.append(f"{exchange}instances took 2.2 times its estimate; this one has {microbatches}")
    if spec.family not in ("trn1", "trn1n"):
        notes.append("published training runs are on Trainium; other chips are an extrapolation by their peak")
    if sizes.is_mixture:
        notes.append("all experts are counted as if every token took them: an upper bound of the time")
    return TrainingEstimate(
        model=name,
        instance=Choice(value=spec.name, reason=machine.instance.reason),
        num_instances=request.num_instances,
        layout=Choice(value=str(chosen), reason=layout.reason),
        quantities=quantities,
        memory=training_memory(sizes, request, chosen, MICROCODE_BYTES * machine.rates.num_physical),
        available_bytes=machine.hbm_bytes_per_core,
        assumptions=(
            "bfloat16 weights, float32 gradients, Adam, "
            f"master weights {_on(request.master_weights)}, ZeRO-1 {_on(request.zero_1)}, "
            f"activation checkpointing {_on(request.checkpointing)}",
            f"{request.batch_size} sequences of {request.sequence_length} tokens a step, {microbatches} microbatches",
            f"{machine.constants.training_mfu:.1%} of the 16-bit peak, the median of published runs since SDK 2.18",
            machine.price_source,
        ),
        notes=tuple(notes),
    )


def _on(switch: bool) -> str:
    return "on" if switch else "off"
