"""The kind of diffusion pipelines: each component becomes a program with an entry point for each of its calls."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ...base.core import Choice
from ...base.foreign import module_facts
from ...base.model_facts import facts_of
from ...compiler import Captured, Program, capture
from ...engine import Call, Calls, Leaf, Signature, flatten, unflatten
from ...models import persistent_buffers
from ...runtime import Copies
from ...sources import DiffusersConfig, ModelSource
from ...sources.pipelines import empty_component
from ..base import MODEL, Kind, Plan, other_graphs, shard_facts
from ..scenario import Recorder, Results, Scenario
from .configuration import NeuronDiffusionConfig
from .dry_run import SEED, Entry
from .parts import calls_of, split_component
from .slicing import comparable, sliced


class DiffusionKind(Kind[NeuronDiffusionConfig]):
    """Pipelines of diffusers, and each of their components."""

    name = "diffusion"
    config_class = NeuronDiffusionConfig
    captures_module = True
    without_effect = {
        "dynamic_batch_size": "every batch is padded to the compiled one, or split over it",
        "inline_weights_to_neff": "weights stay beside the programs, so that adapters change without compiling",
    }

    def unserved(self, source: ModelSource, task: str) -> str:
        return "" if isinstance(source.config, DiffusersConfig) else "it is no diffusion pipeline"

    def resolve(
        self, source: ModelSource, config: NeuronDiffusionConfig, *, trust_remote_code: bool
    ) -> NeuronDiffusionConfig:
        return config

    def plan(self, source: ModelSource, config: NeuronDiffusionConfig, *, trust_remote_code: bool) -> Plan:
        model = sliced(empty_component(source, config.torch_dtype), config)
        shards = split_component(model, config.tensor_parallel_size)
        calls = calls_of({"calls": config.calls})
        names = [name for name, _ in model.named_parameters()] + [name for name, _ in persistent_buffers(model)]
        return Plan(
            choice=Choice(value="diffusers", reason=f"the code of {type(model).__name__}"),
            captures=[functools.partial(_capture, model, call) for call in calls],
            weight_sources={f"{MODEL}.{name}": (name,) for name in names},
            facts={"calls": [call.to_dict() for call in calls]} | shard_facts(shards),
        )

    def signature(self, program: Program, metadata: Mapping[str, Any], model_config: object) -> Signature:
        return Signature(roles={})

    def prepare_reference(self, reference: torch.nn.Module, config: NeuronDiffusionConfig) -> Any:
        return comparable(reference, config)

    def scenarios(
        self, recorder: Recorder, reference: torch.nn.Module, metadata: Mapping[str, Any], config: NeuronDiffusionConfig
    ) -> Iterable[Scenario]:
        run = Calls(Copies([recorder]), calls_of(metadata))  # type: ignore[list-item]  # it notes its calls
        return list(_scenarios(run, reference))

    def problems(self, program: Program, metadata: Mapping[str, Any], config: NeuronDiffusionConfig) -> list[str]:
        if "calls" not in metadata:
            return ["its metadata has no calls"]
        return other_graphs(program, [row["graph"] for row in metadata["calls"]])


def _capture(model: torch.nn.Module, call: Call, shorten: bool) -> Captured:
    entry = Entry(model, call.method, call.arguments)
    captured = capture(
        entry, name=call.graph, inputs={leaf.name: leaf.spec for leaf in call.inputs}, outputs=(), shorten=shorten
    )
    return dataclasses.replace(captured, outputs=tuple(leaf.name for leaf in call.outputs))


def _scenarios(calls: Calls, reference: torch.nn.Module) -> Iterator[Scenario]:
    for call in calls.calls:
        inputs = _random_inputs(call, module_facts(reference).config)

        def actual(call: Call = call, inputs: list[torch.Tensor] = inputs) -> Results:
            result = calls(call.method, unflatten(call.arguments, inputs))
            return flatten(result)[1]

        def expected(call: Call = call, inputs: list[torch.Tensor] = inputs) -> Results:
            wide = [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return flatten(getattr(reference, call.method)(**unflatten(call.arguments, wide)))[1]

        yield Scenario(name=call.graph, run=actual, reference=expected)


def _random_inputs(call: Call, config: object) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    return [_random(leaf, config, generator) for leaf in call.inputs]


def _random(leaf: Leaf, config: object, generator: torch.Generator) -> torch.Tensor:
    dtype, name = getattr(torch, leaf.dtype), leaf.name.rpartition(".")[2]
    if name in ("timestep", "timesteps"):
        return torch.full(leaf.shape, 500.0)
    if dtype.is_floating_point:
        return torch.randn(leaf.shape, generator=generator).to(dtype)
    if dtype == torch.bool or name.endswith("mask"):
        return torch.ones(leaf.shape, dtype=dtype)
    limit = (facts_of(config).vocab_size or 2) if name == "input_ids" else 2
    return torch.randint(limit, leaf.shape, generator=generator, dtype=dtype)


KIND = DiffusionKind()
