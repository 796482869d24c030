"""How an encoder-decoder becomes the captures of one program."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ...compiler.capture import Captured, capture, capture_error, fake_parameters
from ...compiler.compile import Recapture
from ...compiler.ir import Program
from ...core import Choice, TensorSpec
from ...errors import ModelError, refusal
from ...models.registry import cast_weights, persistent_buffers
from ..kinds import Kind, Plan
from ..source import ModelSource
from ..tasks import TASKS, architectures_of, tasks_of
from .configuration import NeuronSeq2SeqConfig
from .entry import MODEL, STATES, EncodeEntry, TargetEntry
from .validate import validate_seq2seq


class Seq2SeqKind(Kind):
    """Models that read a source and write a target."""

    name = "seq2seq"
    config_class = NeuronSeq2SeqConfig
    options = ("batch_size", "sequence_length", "decoder_sequence_length")

    def resolve(
        self, source: ModelSource, config: NeuronSeq2SeqConfig, *, trust_remote_code: bool
    ) -> NeuronSeq2SeqConfig:
        """Fill in both lengths."""
        require_seq2seq(source.config, config.task)
        return config.resolve(num_positions=getattr(source.config, "max_position_embeddings", None))

    def plan(self, source: ModelSource, config: NeuronSeq2SeqConfig, *, trust_remote_code: bool) -> Plan:
        """Build the model without weights and return the captures of its entry points."""
        model = build_model(source, config, trust_remote_code=trust_remote_code)
        states = state_specs(model, config)
        names = [name for name, _ in model.named_parameters()] + [name for name, _ in persistent_buffers(model)]
        reason = f"{source.config.model_type} through transformers' own modules, with its caches as graph inputs"
        return Plan(
            choice=Choice(value=source.config.model_type, reason=reason),
            captures=_captures(model, config, states),
            weight_sources={f"{MODEL}.{name}": (name,) for name in names},
            facts={},
        )

    def validate(
        self, loaded: Any, reference: Any, metadata: Mapping[str, Any], config: Any, *, atol: float | None
    ) -> list[Any]:
        """Compare encoder, first token and later tokens with the original."""
        return validate_seq2seq(loaded, reference, config, atol=atol)

    def problems(self, program: Program, metadata: Mapping[str, Any], config: NeuronSeq2SeqConfig) -> list[str]:
        """What in a program does not belong to a configuration."""
        graphs = graph_names(config)
        if set(program.graphs) != graphs:
            return [f"its graphs are {', '.join(sorted(program.graphs))} instead of {', '.join(sorted(graphs))}"]
        shape = program.graphs["decode"].inputs["attention_mask"].shape
        problems = []
        if shape != (config.batch_size, config.num_source_slots):
            found = f"{shape[0]} rows and sources of {shape[1]}"
            problems.append(f"its graphs have {found} instead of {config.batch_size} and {config.num_source_slots}")
        slots = {spec.shape[3] for name, spec in program.states.items() if name.startswith("self_key")}
        if slots != {config.num_target_slots}:
            problems.append(f"its cache has not decoder_sequence_length={config.num_target_slots} slots")
        return problems


def graph_names(config: NeuronSeq2SeqConfig) -> set[str]:
    """Names of all entry points that a complete configuration is compiled into."""
    return {"decode", *(f"{kind}_{bucket}" for bucket in config.source_buckets for kind in ("encode", "prefill"))}


def require_seq2seq(config: Any, task: str) -> None:
    """Refuse an architecture that transformers has no encoder-decoder of.

    Raises:
        ModelError: the tasks that it has are named.
    """
    # A configuration that joins two others has no vocabulary of its own.
    if config.model_type in architectures_of(task) and config.is_encoder_decoder and hasattr(config, "vocab_size"):
        return
    served = tasks_of(config.model_type)
    raise ModelError(
        refusal(
            asked=f"{task} with a {config.model_type} model",
            found="transformers has no encoder-decoder of this architecture for it",
            why=f"{config.model_type} serves {', '.join(served) or 'no task that can be exported'}",
            do="pass one of these tasks, or another checkpoint",
        )
    )


def build_model(source: ModelSource, config: NeuronSeq2SeqConfig, *, trust_remote_code: bool) -> Any:
    """The model without weights.

    Raises:
        ModelError: transformers cannot build it, or not with the attention that the masks here are made for.
    """
    import transformers
    from accelerate import init_empty_weights

    auto_class = getattr(transformers, TASKS[config.task].auto_class)
    try:
        with init_empty_weights(include_buffers=False):
            model = auto_class.from_config(
                copy.deepcopy(source.config), attn_implementation="sdpa", trust_remote_code=trust_remote_code
            )
    except (ValueError, TypeError, ImportError, AttributeError) as error:
        raise ModelError(
            refusal(
                asked=f"building a {source.config.model_type} model for {config.task}",
                found=f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}",
                why="the graphs need transformers' attention over scaled_dot_product_attention",
                do="check config.json, or use an architecture such as t5 or bart",
            )
        ) from error
    model.tie_weights()
    cast_weights(model, getattr(torch, config.torch_dtype))
    return model.eval()


def state_specs(model: Any, config: NeuronSeq2SeqConfig) -> dict[str, TensorSpec]:
    """Caches of every decoder layer: `self_key` [B, K, H, T], `self_value` [B, K, T, H], both `cross` [B, K, S, H]."""
    rows, target, source = config.batch_size, config.num_target_slots, config.num_source_slots
    specs: dict[str, TensorSpec] = {}
    for layer, (heads, width) in enumerate(_head_shapes(model)):
        shapes = (
            (rows, heads, width, target),
            (rows, heads, target, width),
            *((rows, heads, source, width),) * 2,
        )
        for name, shape in zip(STATES, shapes, strict=True):
            specs[f"{name}.{layer}"] = TensorSpec(shape=shape, dtype=config.torch_dtype)
    return specs


def _head_shapes(model: Any) -> list[tuple[int, int]]:
    """Heads and head width of every decoder layer: what reaches the cache when one token is run on fakes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_parameters(model, mode), mode, torch.no_grad():
        token = torch.zeros(1, 1, dtype=torch.int64)
        try:
            cache = model(input_ids=token, decoder_input_ids=token, use_cache=True).past_key_values
        except RuntimeError as error:
            raise capture_error(model, "one token", error) from error
    return [(layer.keys.shape[1], layer.keys.shape[3]) for layer in cache.self_attention_cache.layers]


def _captures(model: nn.Module, config: NeuronSeq2SeqConfig, states: dict[str, TensorSpec]) -> list[Recapture]:
    rows = config.batch_size
    width = int(model.get_input_embeddings().embedding_dim)
    token = TensorSpec(shape=(rows, 1), dtype="int64")

    def tokens(length: int) -> TensorSpec:
        return TensorSpec(shape=(rows, length), dtype="int64")

    encode, first, later = EncodeEntry(model), TargetEntry(model, is_first=True), TargetEntry(model, is_first=False)
    captures: list[Recapture] = []
    for length in config.source_buckets:
        source = {"input_ids": tokens(length), "attention_mask": tokens(length)}
        captures.append(functools.partial(_capture, encode, f"encode_{length}", source, None, "last_hidden_state"))
        hidden = TensorSpec(shape=(rows, length, width), dtype="float32")
        start = {"decoder_input_ids": token, "attention_mask": tokens(length), "encoder_hidden_states": hidden}
        captures.append(functools.partial(_capture, first, f"prefill_{length}", start, states, "logits"))
    step = {
        "decoder_input_ids": token,
        "attention_mask": tokens(config.num_source_slots),
        "position": TensorSpec(shape=(1,), dtype="int64"),
    }
    return [*captures, functools.partial(_capture, later, "decode", step, states, "logits")]


def _capture(
    entry: nn.Module,
    name: str,
    inputs: Mapping[str, TensorSpec],
    states: Mapping[str, TensorSpec] | None,
    output: str,
    shorten: bool,
) -> Captured:
    return capture(entry, name=name, inputs=inputs, states=states, outputs=(output,), shorten=shorten)


KIND = Seq2SeqKind()
