"""Cases for the processes of `test_ranks.py`: `python -m tests.neuronx_distributed.ranks FOLDER DEVICE CASE ...`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch.nn import functional as F

from optimum_neuron.errors import ArtifactError, ConfigError, ModelError, ShapeError
from optimum_neuron.neuronx_distributed import (
    adamw,
    along_dimensions,
    checkpoint,
    checkpointing,
    configuration,
    convolution,
    embedding,
    grads,
    layers,
    lora,
    lora_config as lora_options,
    loss_functions,
    mappings,
    moving,
    parallel_state,
    pipeline,
    qkv_linear,
    random_numbers,
    zero,
)
from optimum_neuron.xla import mixed

STATE = parallel_state
VOCABULARY, HIDDEN, BATCH, LENGTH = 12, 8, 4, 6
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@contextlib.contextmanager
def degrees(**sizes: int) -> Iterator[None]:
    STATE.initialize_model_parallel(**sizes)
    try:
        yield
    finally:
        STATE.destroy_model_parallel()


class Parallel(nn.Module):
    """Embedding, two linear layers, and a head whose vocabulary ranks divide."""

    def __init__(self, *, by_sequence: bool = False, by_feature: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        shared = {"sequence_parallel_enabled": by_sequence, "sequence_dimension": 1}
        self.embed = embedding.ParallelEmbedding(
            VOCABULARY, HIDDEN, shard_across_embedding=by_feature, **(shared if by_sequence else {})
        )
        self.up = layers.ColumnParallelLinear(HIDDEN, 16, gather_output=False, **shared)
        self.down = layers.RowParallelLinear(16, HIDDEN, input_is_parallel=True, **shared)
        self.head = layers.ColumnParallelLinear(HIDDEN, VOCABULARY, bias=False, gather_output=False, **shared)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        hidden = hidden + self.down(F.gelu(self.up(hidden)))
        return loss_functions.parallel_cross_entropy(self.head(hidden), labels).mean()


class Plain(nn.Module):
    """The same with layers of torch, drawn in the same order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed, self.up = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, 16)
        self.down, self.head = nn.Linear(16, HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        hidden = hidden + self.down(F.gelu(self.up(hidden)))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten())


def batch(count: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator) for _ in range(2))


def on(device: str, *values: Any) -> Any:
    moved = [
        moving.move_model_to_device(one, device) if isinstance(one, nn.Module) else one.to(device) for one in values
    ]
    return moved[0] if len(moved) == 1 else moved


def whole(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The gradient of a whole parameter, from the parts of all ranks."""
    if not getattr(like, "tensor_model_parallel", False):
        return part.cpu()
    return mappings.gather(part, like.partition_dim, STATE.TENSOR.group()).cpu()


def groups(device: str, rank: int) -> None:
    with degrees(tensor_model_parallel_size=2):
        assert (STATE.TENSOR.size(), STATE.TENSOR.rank(), STATE.DATA.size(), STATE.DATA.rank()) == (2, rank, 1, 0)
        assert STATE.TENSOR.group(as_list=True) == STATE.TENSOR.replica_groups() == [[0, 1]]
        assert STATE.DATA.replica_groups() == [[0], [1]] and STATE.TENSOR.src_rank() == 0
        assert STATE.rmsg("x") == f"[rank_{rank}_pp0_tp{rank}_dp0_cp0] x"
        with pytest.raises(ConfigError):
            STATE.initialize_model_parallel(tensor_model_parallel_size=2)
    with degrees(pipeline_model_parallel_size=2):
        assert STATE.PIPELINE.rank() == rank and STATE.PIPELINE.next_rank() == 1 - rank == STATE.PIPELINE.prev_rank()
    with degrees(context_parallel_size=2):
        assert STATE.get_context_model_parallel_src_tgt_pairs() == [[0, 1], [1, 0]]
        assert STATE.get_zero1_sharding_groups() == [[0, 1]]
    with pytest.raises(ConfigError) as error:
        STATE.TENSOR.size()
    assert error.value.details["parallelism"] == "tensor"


def bad_degrees(device: str, rank: int) -> None:
    with pytest.raises(ConfigError) as error:
        STATE.initialize_model_parallel(tensor_model_parallel_size=3)
    assert error.value.details["world_size"] == 2
    with pytest.raises(ConfigError) as error:  # on both ranks, and none waits
        STATE.initialize_model_parallel(tensor_model_parallel_size=1 + rank)
    assert error.value.details["values"] == [1, 2]
    with degrees(tensor_model_parallel_size=2):
        with pytest.raises(ConfigError):
            layers.ColumnParallelLinear(4, 7)
        with pytest.raises(ShapeError):
            mappings.scatter_to_tensor_model_parallel_region(torch.ones(2, 3, device=device))


def layers_equal_one_process(device: str, rank: int) -> None:
    ids, labels = batch()
    reference = Plain()
    expected = reference(ids, labels)
    expected.backward()
    grads_of = {name: one.grad for name, one in reference.named_parameters()}
    with degrees(tensor_model_parallel_size=2):
        for options in ({}, {"by_sequence": True}, {"by_feature": True}):
            model = on(device, Parallel(**options))
            for name, one in model.named_parameters():
                torch.testing.assert_close(whole(one.detach(), one), reference.get_parameter(name).detach(), **CLOSE)
            loss = model(*on(device, ids, labels))
            loss.backward()
            torch.testing.assert_close(loss.detach().cpu(), expected.detach(), **CLOSE)
            grads.allreduce_sequence_parallel_gradients(torch.optim.SGD(model.parameters()))
            for name, one in model.named_parameters():
                torch.testing.assert_close(whole(one.grad, one), grads_of[name], **CLOSE)
            norm = grads.get_grad_norm(model.parameters())
            expected_norm = nn.utils.get_total_norm(list(grads_of.values()))
            torch.testing.assert_close(norm.cpu()[0], expected_norm, **CLOSE)
            largest = grads.get_grad_norm(model.parameters(), float("inf"))
            torch.testing.assert_close(largest.cpu().max(), max(one.abs().max() for one in grads_of.values()), **CLOSE)


def losses(device: str, rank: int) -> None:
    generator = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(3, 5, 8, generator=generator), torch.randint(0, 8, (3, 5), generator=generator)
    reference = logits.clone().requires_grad_()
    with degrees(tensor_model_parallel_size=2):
        for smoothing in (0.0, 0.1):
            part = on(device, logits.chunk(2, -1)[rank].clone()).requires_grad_()
            loss = loss_functions.parallel_cross_entropy(part, on(device, labels), smoothing)
            # torch gives the true id a part of the smoothing too
            own = F.cross_entropy(
                reference.flatten(0, 1), labels.flatten(), reduction="none", label_smoothing=smoothing * 8 / 7
            )
            torch.testing.assert_close(loss.detach().cpu().flatten(), own.detach(), **CLOSE)
            (expected,) = torch.autograd.grad(own.sum(), reference)
            (found,) = torch.autograd.grad(loss.sum(), part)
            torch.testing.assert_close(found.cpu(), expected.chunk(2, -1)[rank], **CLOSE)
        part = on(device, logits.chunk(2, -1)[rank].clone())
        found = loss_functions.from_parallel_logits_to_logprobs(part, on(device, labels))
        expected = logits.log_softmax(-1)[:, :-1].gather(-1, labels[:, 1:, None]).squeeze(-1)
        torch.testing.assert_close(found.cpu(), expected, **CLOSE)


def shared_heads(device: str, rank: int) -> None:
    """One head of keys and values on two ranks, against layers of torch."""
    x = torch.randn(2, 3, HIDDEN, generator=torch.Generator().manual_seed(1))
    for fused in (False, True):
        with degrees(tensor_model_parallel_size=2):
            torch.manual_seed(7)
            layer = qkv_linear.GQAQKVColumnParallelLinear(
                HIDDEN, [8, 4], gather_output=False, kv_size_multiplier=2, fuse_qkv=fused
            )
            torch.manual_seed(7)
            reference = [nn.Linear(HIDDEN, size) for size in (8, 4, 4)]
            for kind in ("weight", "bias"):
                torch.manual_seed(7 if kind == "weight" else 8)
            held = {kind: layer._held(kind) for kind in ("weight", "bias")}
            with torch.no_grad():
                for place, name in enumerate(("q", "k", "v")):
                    for kind in ("weight", "bias"):
                        value = held[kind][name].detach()
                        parts = mappings.gather(value, 0, STATE.TENSOR.group()) if name == "q" else value
                        getattr(reference[place], kind).copy_(parts)
            layer = on(device, layer)
            given, plain = on(device, x.clone()).requires_grad_(), x.clone().requires_grad_()
            queries, keys, values = layer(given)
            expected = [one(plain) for one in reference]
            torch.testing.assert_close(queries.detach().cpu(), expected[0].chunk(2, -1)[rank].detach(), **CLOSE)
            torch.testing.assert_close(keys.detach().cpu(), expected[1].detach(), **CLOSE)
            # Each rank's heads of queries use the shared heads: the whole is the sum over ranks.
            (queries.sum() + 2 * keys.sum() + 3 * values.sum()).backward()
            (expected[0].sum() + 2 * (2 * expected[1].sum() + 3 * expected[2].sum())).backward()
            torch.testing.assert_close(given.grad.cpu(), plain.grad, **CLOSE)
            if not fused:
                torch.testing.assert_close(layer.weight_k.grad.cpu(), reference[1].weight.grad, **CLOSE)


def convolutions(device: str, rank: int) -> None:
    """Two convolutions, by output and by input channels, against those of torch; with channels that are padded too."""
    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    for middle, options in ((8, {}), (5, {"partition_pad": True})):
        torch.manual_seed(3)
        first, second = (3, middle, (3, 3), 1, 1), (middle, 4, 3, 2)
        with degrees(tensor_model_parallel_size=2):
            one = convolution.OutputChannelParallelConv2d(
                *first, gather_output=bool(options), keep_master_weight=True, **options
            )
            two = convolution.InputChannelParallelConv2d(
                *second, input_is_parallel=not options, keep_master_weight=True, **options
            )
            plain = nn.Sequential(nn.Conv2d(*first), nn.ReLU(), nn.Conv2d(*second))
            with torch.no_grad():
                plain[0].weight.copy_(one.master_weight[:middle])
                plain[0].bias.copy_(one.master_bias[:middle])
                plain[2].weight.copy_(two.master_weight[:, :middle])
                plain[2].bias.copy_(two.master_bias)
            model = on(device, nn.Sequential(one, nn.ReLU(), two))
            given, same = on(device, x.clone()).requires_grad_(), x.clone().requires_grad_()
            found, expected = model(given), plain(same)
            torch.testing.assert_close(found.detach().cpu(), expected.detach(), **CLOSE)
            found.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(given.grad.cpu(), same.grad, **CLOSE)
            torch.testing.assert_close(whole(one.weight.grad, one.weight)[:middle], plain[0].weight.grad, **CLOSE)
            torch.testing.assert_close(whole(one.bias.grad, one.bias)[:middle], plain[0].bias.grad, **CLOSE)
            torch.testing.assert_close(whole(two.weight.grad, two.weight)[:, :middle], plain[2].weight.grad, **CLOSE)
            torch.testing.assert_close(two.bias.grad.cpu(), plain[2].bias.grad, **CLOSE)
            states = {"0.weight": plain[0].weight.detach(), "0.bias": plain[0].bias.detach()}
            states = checkpointing.get_sharded_model_dict(model, states)
            assert states["0.weight"].shape == one.weight.shape and states["0.bias"].shape == one.bias.shape
            with pytest.raises(ConfigError) as error:
                convolution.InputChannelParallelConv2d(4, 4, 3, dilation=2)
            assert error.value.details["option"] == "dilation"


def train(device: str, rank: int, config: dict[str, Any], steps: int = 3) -> tuple[list[float], list[float], Any]:
    """Losses, norms, and the model, of steps on this rank's part of the batch."""
    ids, labels = (one.chunk(STATE.ZERO1.size())[STATE.ZERO1.rank()] for one in batch())
    model = configuration.initialize_parallel_model(config, Parallel)
    optimizer = configuration.initialize_parallel_optimizer(config, torch.optim.AdamW, model.parameters(), lr=1e-2)
    found, norms = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.run_train(*on(device, ids, labels))
        optimizer.step()
        total = mappings.reduce(loss.detach(), STATE.ZERO1.group()) / STATE.ZERO1.size()
        found.append(total.item())
        norms.append(optimizer.grad_norm.item())
    return found, norms, (model, optimizer)


def of_one_process(steps: int = 3) -> tuple[list[float], list[float]]:
    model = Plain()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found, norms = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(*batch())
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        found.append(loss.item())
    return found, norms


def training_equals_one_process(device: str, rank: int) -> None:
    expected = of_one_process()
    for sizes in ({"tensor_parallel_size": 2}, {"context_parallel_size": 2}, {}):
        for has_zero in (False, True) if device == "xla" else (False,):
            options = {"zero_one_enabled": has_zero, "grad_clipping": True, "max_grad_norm": 1.0}
            config = configuration.neuronx_distributed_config(**sizes, optimizer_config=options)
            try:
                found = train(device, rank, config)[:2]
            finally:
                STATE.destroy_model_parallel()
            for values, wanted in zip(found, expected, strict=True):
                assert values == pytest.approx(wanted, rel=1e-5), (sizes, has_zero)


class Layer(nn.Module):
    """A layer with a mask, which stages of a pipeline compute again, and which passes through none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = layers.ColumnParallelLinear(HIDDEN, 16, gather_output=False)
        self.down = layers.RowParallelLinear(16, HIDDEN, input_is_parallel=True)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(F.gelu(self.up(hidden))) * mask + 0.1 * first


class Waves(nn.Module):
    """A pair that all layers need, as of rotary embeddings; a leaf of the graph where its class is named."""

    def forward(self, hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = ids.unsqueeze(-1).to(hidden.dtype)
        return angles.cos(), angles.sin()


class WavedLayer(Layer):
    """A layer of a pair, whose activations are computed again in the backward pass."""

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor, first: torch.Tensor, waves: Any) -> torch.Tensor:
        cos, sin = waves
        return mixed.checkpoint(super().forward, hidden * cos + sin, mask, first)


class Staged(nn.Module):
    """Embeddings that are the head too, a value that all layers need, and a choice of outputs."""

    def __init__(self, kind: type[Layer] = Layer) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.waves = Waves() if kind is WavedLayer else None
        self.layers = nn.ModuleList(kind() for _ in range(4))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        batch_size, length = ids.shape
        hidden = first = self.embed(ids)
        mask = (ids > 1).unsqueeze(-1).float()
        waves = () if self.waves is None else (self.waves(hidden, ids),)
        for layer in self.layers:
            hidden = layer(hidden, mask, first, *waves)
        logits = self.head(hidden.view(batch_size * length, -1))
        if labels is None:
            return logits.view(batch_size, length, -1)
        return F.cross_entropy(logits, labels.view(-1)), logits


def pipelines(device: str, rank: int) -> None:
    """Losses, norms, and outputs of stages, against the model in one process."""
    ids, labels = batch()
    expected = None
    for sizes, cuts in (
        ({"tensor_model_parallel_size": 1}, None),
        ({"pipeline_model_parallel_size": 2}, ["layers.0"]),
        ({"pipeline_model_parallel_size": 2}, ["layers.0", "layers.1", "layers.2"]),
    ):
        with degrees(**sizes):
            model = Staged()
            if cuts is None:
                found = losses_of_stages(device, on(device, model), lambda m: m(on(device, ids), on(device, labels))[0])
                with torch.no_grad():
                    logits = model(on(device, ids)).cpu()
                expected = found
                continue
            shared = {"num_microbatches": 4, "virtual_pipeline_size": (len(cuts) + 1) // 2, "pipeline_cuts": cuts}
            staged = pipeline.NxDPPModel(
                model,
                Layer,
                output_loss_value_spec=(True, False),
                broadcast_and_average_loss=True,
                input_names=["ids", "labels"],
                trace_file_path=(file := Path(tempfile.mkdtemp()) / "timeline.json"),
                **shared,
            )
            assert set(staged.local_state_dict()) < set(model.state_dict())
            found = losses_of_stages(device, staged, None)
            for values, wanted in zip(found, expected, strict=True):
                assert values == pytest.approx(wanted, rel=1e-5), (device, cuts)
            if rank == 0:
                require_causes(json.loads(file.read_text()), len(found[0]), len(cuts) + 1)
            plain = pipeline.NxDPPModel(model, Layer, input_names=["ids"], **shared)
            outputs = plain.run_eval(ids=ids)
            if plain._has_last:
                torch.testing.assert_close(outputs.cpu(), logits, **CLOSE)
            with pytest.raises(ShapeError):
                staged.run_train(ids=ids[:3], labels=labels[:3])
            with pytest.raises(ConfigError):
                pipeline.NxDPPModel(Staged(), Layer, input_names=["ids"], **{**shared, "pipeline_cuts": ["layers.9"]})
            with pytest.raises(ConfigError) as error:  # both ranks, as where they differ below
                pipeline.NxDPPModel(model, Layer, input_names=["ids"], **{**shared, "num_microbatches": 2 + 2 * rank})
            assert error.value.details["values"] == [2, 4]
            with pytest.raises(ConfigError) as error:
                pipeline.NxDPPModel(model, Layer, input_names=["ids"], output_loss_value_spec=bool(rank), **shared)
            assert error.value.details["name"] == "output_loss_value_spec"
            other = Staged()
            if rank:
                other.layers.append(Layer())
            with pytest.raises(ConfigError) as error:
                pipeline.NxDPPModel(other, Layer, input_names=["ids"], **shared)
            assert error.value.details["values"] == [4, 5]
            with pytest.raises(ConfigError):
                pipeline.NxDPPModel(model, Layer, input_names=["ids"], **{**shared, "auto_partition": True})
            fresh = pipeline.NxDPPModel(model, Layer, input_names=["ids"], **shared)
            with pytest.raises(ConfigError) as error:
                fresh.run_eval(ids=ids if rank else torch.cat([ids, ids]))
            assert error.value.details["values"] == [[2 * BATCH, LENGTH], [BATCH, LENGTH]]
            with pytest.raises(ConfigError) as error:  # a later batch
                plain.run_eval(ids=ids if rank else ids[:0])
            assert error.value.details["values"] == [[0, LENGTH], [BATCH, LENGTH]]
            spare = Staged()
            spare.spare = nn.Linear(2, 2)
            with pytest.raises(ModelError) as error:
                pipeline.NxDPPModel(spare, Layer, input_names=["ids"], **shared)
            assert error.value.details["names"] == ["spare.weight", "spare.bias"]
            with pytest.raises(ModelError):
                staged.load_state_dict({**model.state_dict(), "spare.weight": torch.ones(2)})


def require_causes(events: list[dict[str, Any]], num_steps: int, num_stages: int) -> None:
    """A rank computes one thing at a time, and a stage after it has received: forwards downwards, backwards upwards."""
    for step in range(num_steps):
        of_step = [one for one in events if one["args"]["step"] == step]
        times = {(one["pid"], one["name"]): (one["ts"], one["ts"] + one["dur"]) for one in of_step}
        assert len(times) == len(of_step) == 4 * 2 * num_stages
        for pid in (0, 1):
            own = sorted(span for (rank, _), span in times.items() if rank == pid)
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(own))
        for number in range(4):
            chunks = [f"_chunk_{one}" for one in range(num_stages // 2)] if num_stages > 2 else [""]
            path = [(pid, f"mb_{number}{chunk}_ForwardStep") for chunk in chunks for pid in (0, 1)]
            path += [(pid, name.replace("Forward", "Backward")) for pid, name in reversed(path)]
            assert all(times[one][1] <= times[other][0] for one, other in itertools.pairwise(path))
    assert len(events) == num_steps * 4 * 2 * num_stages


def pipelines_of_configurations(device: str, rank: int) -> None:
    """`initialize_parallel_model` divides the layers equally, and states have the names of the model."""
    options = {
        "transformer_layer_cls": WavedLayer, "num_microbatches": 1, "output_loss_value_spec": (True, False),
        "input_names": ["ids", "labels"], "auto_partition": True, "trace_file_path": None,
        "leaf_module_cls": [Waves.__name__],
    }  # fmt: skip
    make = functools.partial(Staged, WavedLayer)

    def draw(module: nn.Module, device: torch.device) -> None:
        for parameter in module.parameters(recurse=False):
            nn.init.zeros_(parameter)

    STATE.initialize_model_parallel(pipeline_model_parallel_size=2)  # as scripts that set seeds before
    with pytest.raises(ConfigError):
        configuration.neuronx_distributed_config(tensor_parallel_size=2)
    config = configuration.neuronx_distributed_config(
        pipeline_parallel_size=2,
        pipeline_config=options,
        optimizer_config={"zero_one_enabled": device == "xla"},
        model_init_config={"meta_device_init": True, "param_init_fn": draw},
    )
    model = configuration.initialize_parallel_model(config, make)
    model.load_state_dict(make().state_dict())
    optimizer = configuration.initialize_parallel_optimizer(config, torch.optim.AdamW, model.parameters(), lr=1e-2)
    ids, labels = batch()
    loss = model.run_train(ids=ids, labels=labels)
    optimizer.step()
    reference = make()
    reference(ids, labels)[0].backward()
    norm = nn.utils.get_total_norm([one.grad for one in reference.parameters()])
    assert optimizer.grad_norm.item() == pytest.approx(norm.item(), rel=1e-5)
    assert (loss is None) == (rank == 0)
    names = {"embed.weight"} if rank == 0 else {"head.weight"}
    names |= {name for name in reference.state_dict() if name.startswith(f"layers.{2 * rank}.")}
    names |= {name for name in reference.state_dict() if name.startswith(f"layers.{2 * rank + 1}.")}
    assert set(model.state_dict()) == names == set(dict(model.named_parameters()))
    model.load_state_dict(reference.state_dict())
    for wrong in ({**options, "num_microbatch": 2}, {"num_microbatches": 2}):
        with pytest.raises(ConfigError):
            configuration.initialize_parallel_model({**config, "pipeline_config": wrong}, make)
    STATE.destroy_model_parallel()


def pipelines_of_transformers(device: str, rank: int) -> None:
    """Models of transformers, with padding and tied heads: losses, norms, and weights of its own training."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "vocab_size": 32}
    for kind, layer, implementation in (
        (transformers.LlamaForCausalLM, "LlamaDecoderLayer", "sdpa"),
        (transformers.GPTNeoXForCausalLM, "GPTNeoXLayer", "eager"),
    ):
        options = {"num_attention_heads": 2, "tie_word_embeddings": True, "attn_implementation": implementation}
        config = kind.config_class(**sizes, **options)
        generator = torch.Generator().manual_seed(3)
        ids = torch.randint(0, 32, (4, 10), generator=generator)
        mask = torch.ones_like(ids).index_fill(1, torch.tensor([8, 9]), 0)
        inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids.where(mask.bool(), -100)}
        torch.manual_seed(0)
        reference = kind(config)
        with degrees():
            given = {name: on(device, value) for name, value in inputs.items()}
            expected = losses_of_stages(device, on(device, reference), lambda m, given=given: m(**given).loss)
        with degrees(pipeline_model_parallel_size=2):
            torch.manual_seed(0)
            staged = pipeline.NxDPPModel(
                model := kind(config),
                next(type(one) for one in model.modules() if type(one).__name__ == layer),
                output_loss_value_spec=(True, False),
                broadcast_and_average_loss=True,
                input_names=list(inputs),
                num_microbatches=2,
                tracer_cls="hf",
                auto_partition=True,
            )
            found = losses_of_stages(device, staged, None, inputs)
        for values, wanted in zip(found, expected, strict=True):
            assert values == pytest.approx(wanted, rel=1e-5), (device, kind)
        for name, parameter in staged.local_named_parameters():
            torch.testing.assert_close(parameter.detach().cpu(), reference.get_parameter(name).detach().cpu(), **CLOSE)


def four_ranks(device: str, rank: int) -> None:
    """Four stages, and two stages of two parts of tensors, with ZeRO-1: losses and norms of one process."""
    with degrees():
        model = on(device, Staged())
        expected = losses_of_stages(device, model, lambda m: m(*on(device, *batch()))[0])
    options = {
        "transformer_layer_cls": Layer, "num_microbatches": 4, "output_loss_value_spec": (True, False),
        "input_names": ["ids", "labels"], "auto_partition": True, "broadcast_and_average_loss": True,
    }  # fmt: skip
    for sizes in ({"pipeline_parallel_size": 4}, {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}):
        config = configuration.neuronx_distributed_config(
            **sizes, pipeline_config=options, optimizer_config={"zero_one_enabled": True}
        )
        model = configuration.initialize_parallel_model(config, Staged)
        optimizer = configuration.initialize_parallel_optimizer(
            config, torch.optim.AdamW, model.parameters(), lr=1e-2, eps=1e-4
        )
        for loss, norm in zip(*expected, strict=True):
            optimizer.zero_grad()
            found = model.run_train(**dict(zip(("ids", "labels"), batch(), strict=True)))
            assert found.item() == pytest.approx(loss, rel=1e-5)
            optimizer.step()
            assert optimizer.grad_norm.item() == pytest.approx(norm, rel=1e-5)
        STATE.destroy_model_parallel()


def losses_of_stages(
    device: str, model: nn.Module, loss_of: Callable[..., Any] | None, inputs: dict[str, torch.Tensor] | None = None
) -> Any:
    inputs = inputs or dict(zip(("ids", "labels"), batch(), strict=True))
    found, norms = [], []
    # Softmax cancels biases of keys: their gradients are rounding alone, which AdamW would divide by their own size.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
    for _ in range(3):
        optimizer.zero_grad()
        if loss_of is None:
            loss = model.run_train(**inputs)
        else:
            loss = loss_of(model)
            loss.backward()
        norms.append(grads.clip_grad_norm(list(model.parameters()), 1.0).item())
        optimizer.step()
        found.append(loss.item())
    return found, norms


def configurations(device: str, rank: int) -> None:
    for options in (
        {"optimizer_config": {"zero_one_enabld": True}},
        {"mixed_precision_config": {"use_master_weights": True}},
        {"model_init_config": {"meta_device_init": True}},
        {"sequence_parallel": bool(rank)},  # ranks disagree
        {"activation_checkpoint_config": Layer if rank else None},
        {"lora_config": lora_options.LoraConfig(lora_rank=2 + rank, target_modules=["up"])},
    ):
        with pytest.raises(RuntimeError if "mixed_precision_config" in options else ConfigError):
            configuration.neuronx_distributed_config(**options)
        STATE.destroy_model_parallel()
    config = configuration.neuronx_distributed_config(tensor_parallel_size=2)
    with pytest.raises(ConfigError) as error:
        configuration.initialize_parallel_model(config, lambda: nn.Linear(2, 2 + rank))
    assert error.value.details["values"] == [6, 9]
    STATE.destroy_model_parallel()
    config, said = configuration.neuronx_distributed_config(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configuration._logger, "warning", lambda _, ranks: said.append(ranks))
        for seed in (0, rank):
            torch.manual_seed(seed)
            configuration.initialize_parallel_model(config, lambda: nn.Linear(2, 2))
    assert said == ([[0, 1]] if rank == 0 else [])
    STATE.destroy_model_parallel()


class Tied(nn.Module):
    """A head that is the embedding, and a buffer in a module without parameters, which its parent makes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = embedding.ParallelEmbedding(VOCABULARY, HIDDEN)
        self.qkv = qkv_linear.GQAQKVColumnParallelLinear(HIDDEN, [8, 4], gather_output=False, fuse_qkv=False)
        self.head = layers.ColumnParallelLinear(HIDDEN, VOCABULARY, bias=False, gather_output=False)
        self.head.weight = self.embed.weight
        self.scale = nn.BatchNorm1d(2, affine=False)


def meta_initialization(device: str, rank: int) -> None:
    """`init_weight_cpu` draws what the constructor draws; weights stay one; modules without parameters are made too."""

    def draw(module: nn.Module, device: torch.device) -> None:
        if isinstance(module, (layers.BaseParallelLinear, embedding.ParallelEmbedding)):
            module.init_weight_cpu()
        elif isinstance(module, qkv_linear.GQAQKVColumnParallelLinear):
            module.initialize_weight_biases()
        elif isinstance(module, nn.BatchNorm1d):
            module.running_mean.fill_(0.5)

    init = {"meta_device_init": True, "param_init_fn": draw}
    config = configuration.neuronx_distributed_config(tensor_parallel_size=2, model_init_config=init)
    model = configuration.initialize_parallel_model(config, Tied, include_buffers=True).module
    with torch.no_grad():
        torch.manual_seed(3)
        model.embed.init_weight_cpu()
        model.qkv.initialize_weight_biases()
    torch.manual_seed(3)
    reference = embedding.ParallelEmbedding(VOCABULARY, HIDDEN)
    other = qkv_linear.GQAQKVColumnParallelLinear(HIDDEN, [8, 4], gather_output=False, fuse_qkv=False)
    assert torch.equal(model.embed.weight.cpu(), reference.weight)
    for name, one in other.named_parameters():
        assert torch.equal(model.qkv.get_parameter(name).cpu(), one), name
    assert model.head.weight is model.embed.weight and model.head.weight.tensor_model_parallel
    assert (model.scale.running_mean == 0.5).all()
    assert {parameter.device.type for parameter in model.parameters()} == {device}
    STATE.destroy_model_parallel()


def low_rank(device: str, rank: int, folder: Path) -> None:
    """LoRA beside layers that ranks divide, against peft: losses of three steps, merged weights, and its files."""
    ids, labels = batch()
    targets = ["up", "down", "head"]
    for options in ({}, {"by_sequence": True}):
        lora_config = lora_options.LoraConfig(lora_rank=2, lora_alpha=6, target_modules=targets)
        config = configuration.neuronx_distributed_config(
            tensor_parallel_size=2, lora_config=lora_config, sequence_parallel=bool(options)
        )
        model = configuration.initialize_parallel_model(config, lambda options=options: Parallel(**options))
        generator = torch.Generator().manual_seed(1)
        adapter = {
            name: torch.randn(value.shape, generator=generator).to(value) for name, value in model.state_dict().items()
        }
        assert all("lora_" in name for name in adapter) and len(adapter) == 6
        model.load_state_dict(adapter)  # whole, of which each rank takes its part
        reference = peft.get_peft_model(Plain(), peft.LoraConfig(r=2, lora_alpha=6, target_modules=targets))
        for name, one in reference.named_parameters():
            key = name.removeprefix("base_model.model.").replace(".default", "")
            if key in adapter:
                one.data.copy_(adapter[key])
        found, expected = [], []
        optimizer = configuration.initialize_parallel_optimizer(config, torch.optim.AdamW, model.parameters(), lr=1e-2)
        other = torch.optim.AdamW(reference.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            other.zero_grad()
            found.append(model.run_train(*on(device, ids, labels)).item())
            optimizer.step()
            loss = reference(ids, labels)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(reference.parameters(), 1.0).item()
            assert optimizer.grad_norm.item() == pytest.approx(norm, rel=1e-5)
            other.step()
            expected.append(loss.item())
        assert found == pytest.approx(expected, rel=1e-5), options
        with torch.no_grad():
            expected_loss = reference(ids, labels).item()
            model.module.merge_lora()
            assert model(*on(device, ids, labels)).item() == pytest.approx(expected_loss, rel=1e-5)
            model.module.unmerge_lora()
        checkpoint.save_checkpoint(folder / "adapter", "lora", model=model)
        STATE.destroy_model_parallel()
        place = {"lora_save_dir": str(folder / "adapter"), "lora_load_tag": "lora" if options else "lora/model"}
        again = lora_options.LoraConfig(load_lora_from_ckpt=True, **place)  # the other options are the adapter's
        with degrees(tensor_model_parallel_size=2):
            loaded = on(device, lora.LoraModel(Parallel(**options), again))
            with torch.no_grad():
                assert loaded(*on(device, ids, labels)).item() == pytest.approx(expected_loss, rel=1e-5)
            with pytest.raises(ConfigError):
                lora.LoraModel(Parallel(), lora_options.LoraConfig(target_modules=["absent"]))
            with pytest.raises(ModelError) as error:
                lora.LoraModel(Parallel(), lora_options.LoraConfig(target_modules=["embed"]))
            assert error.value.details["module"] == "embed"


class PlainStaged(Staged):
    """The same model with layers of torch, which peft knows."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.up, layer.down = nn.Linear(HIDDEN, 16), nn.Linear(16, HIDDEN)


def low_rank_of_stages(device: str, rank: int, folder: Path) -> None:
    """LoRA in stages of a pipeline, against peft in one process, and the files of both stages."""
    targets, (ids, labels) = ["up", "down"], batch()
    lora_config = lora_options.LoraConfig(lora_rank=2, lora_alpha=6, target_modules=targets)
    options = {
        "transformer_layer_cls": Layer, "num_microbatches": 4, "output_loss_value_spec": (True, False),
        "input_names": ["ids", "labels"], "auto_partition": True, "broadcast_and_average_loss": True,
    }  # fmt: skip
    with degrees():
        plain = PlainStaged()
        plain.load_state_dict(Staged().state_dict())
    reference = peft.get_peft_model(plain, peft.LoraConfig(r=2, lora_alpha=6, target_modules=targets))
    generator = torch.Generator().manual_seed(1)
    adapter = {}
    for name, one in reference.named_parameters():
        if "lora_" in name:
            one.data.copy_(torch.randn(one.shape, generator=generator))
            adapter[name.removeprefix("base_model.model.").replace(".default", "")] = one.data.clone()
    config = configuration.neuronx_distributed_config(
        pipeline_parallel_size=2, lora_config=lora_config, pipeline_config=options
    )
    model = configuration.initialize_parallel_model(config, Staged)
    own = {name: value for name, value in adapter.items() if int(name.split(".")[1]) // 2 == rank}
    assert set(model.state_dict()) == set(own) and len(own) == 8
    with pytest.raises(ModelError) as error:
        model.load_state_dict({**own, "layers.9.up.lora_A.weight": torch.zeros(2, HIDDEN)})
    assert error.value.details["names"] == ["layers.9.up.lora_A.weight"]
    model.load_state_dict(own)
    optimizer = configuration.initialize_parallel_optimizer(config, torch.optim.AdamW, model.parameters(), lr=1e-2)
    other = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        found = model.run_train(ids=ids, labels=labels)
        loss = reference(ids, labels)[0]
        loss.backward()
        assert found.item() == pytest.approx(loss.item(), rel=1e-5)
        optimizer.step()
        norm = nn.utils.clip_grad_norm_(reference.parameters(), 1.0).item()
        assert optimizer.grad_norm.item() == pytest.approx(norm, rel=1e-5)
        other.step()
    expected = reference(ids, labels)[0].item()
    checkpoint.save_checkpoint(folder / "stages", "lora", model=model)
    saved = {"load_lora_from_ckpt": True, "lora_save_dir": str(folder / "stages"), "lora_load_tag": "lora"}
    loading = dataclasses.replace(lora_config, **saved)
    again = configuration.initialize_parallel_model({**config, "lora_config": loading}, Staged)
    assert again.run_eval(ids=ids, labels=labels).item() == pytest.approx(expected, rel=1e-5)
    dist.barrier()
    if rank == 1:
        (folder / "stages/lora/model/dp_rank_00_tp_rank_00_pp_rank_01.pt").unlink()
    dist.barrier()
    with pytest.raises(ConfigError):  # on both ranks
        again.module.load_lora()
    STATE.destroy_model_parallel()


def lightning_begins(device: str, rank: int) -> None:
    """Lightning begins torch.distributed; its own way asks torch whether "xla" is the accelerator."""
    from optimum_neuron.neuronx_distributed import lightning

    lightning.NeuronXLAStrategy(tensor_parallel_size=2).setup_environment()
    assert (STATE.TENSOR.size(), STATE.TENSOR.rank(), dist.get_rank()) == (2, rank, rank)
    STATE.destroy_model_parallel()


def lightning_trainer(device: str, rank: int, folder: Path) -> None:
    """Lightning's trainer, with manual and automatic optimization, against a loop in one process; and its files."""
    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from optimum_neuron.neuronx_distributed import lightning, lightning_logs

    class Tuned(lightning.NeuronLTModule):
        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = self.model(*batch)
            found.append(loss.item())
            if not self.automatic_optimization:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

    reference, expected = Plain(), []
    free = [one for name, one in reference.named_parameters() if "bias" in name]
    decayed = [one for name, one in reference.named_parameters() if "bias" not in name]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": free, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = reference(*batch())
        loss.backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        optimizer.step()
        expected.append(loss.item())
    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False, "max_epochs": 3}
    for degree, manual, has_zero in ((2, True, False), (2, False, False), (1, True, device == "xla")):
        found: list[float] = []
        config = configuration.neuronx_distributed_config(
            tensor_parallel_size=degree, optimizer_config={"zero_one_enabled": has_zero}
        )
        module = Tuned(
            config, torch.optim.AdamW, torch.optim.lr_scheduler.ConstantLR, model_fn=Parallel, manual_opt=manual,
            opt_kwargs={"lr": 1e-2}, scheduler_kwargs={"factor": 1.0},
        )  # fmt: skip
        bar = lightning_logs.NeuronTQDMProgressBar()
        options = {"callbacks": [bar], "plugins": [lightning.NeuronXLAPrecisionPlugin()]}
        trainer = Trainer(
            strategy=lightning.NeuronXLAStrategy(config, save_load_xser=device == "cpu"), **options, **quiet
        )
        data = DataLoader(TensorDataset(*batch()), batch_size=BATCH // STATE.DATA.size())
        trainer.fit(module, data)
        if degree == 2:
            assert found == pytest.approx(expected, rel=1e-5), (manual, has_zero)
        for name, one in module.named_parameters():
            torch.testing.assert_close(whole(one.detach(), one), reference.get_parameter(name).detach(), **CLOSE)
        path = folder / f"lightning_{degree}_{manual}"
        trainer.save_checkpoint(path)
        states = {name: value.cpu().clone() for name, value in module.state_dict().items()}
        read = trainer.strategy.load_checkpoint(path)["state_dict"]
        assert all(torch.equal(read[name].cpu(), states[name]) for name in states)
        STATE.destroy_model_parallel()


def checkpoints(device: str, rank: int, folder: Path) -> None:
    for context in (2, 1):  # ranks of context parallelism divide the states of ZeRO-1 too
        _checkpoints(device, rank, folder / str(context), context)


def _checkpoints(device: str, rank: int, folder: Path, context: int) -> None:
    options = {"zero_one_enabled": device == "xla", "grad_clipping": True, "max_grad_norm": 1.0}
    config = configuration.neuronx_distributed_config(context_parallel_size=context, optimizer_config=options)
    expected = train(device, rank, config, steps=4)[0]
    _, _, (model, optimizer) = train(device, rank, config, steps=2)
    for tag, is_async in (("a", False), ("b", True), ("c", True)):
        checkpoint.save_checkpoint(
            folder, tag, model, optimizer, user_content={"step": 2}, num_kept_ckpts=2, async_save=is_async
        )
    checkpoint.finalize_checkpoint()
    assert checkpoint.has_checkpoint(folder) and sorted(one.name for one in folder.iterdir()) == ["b", "c"]
    names = sorted(str(one.relative_to(folder / "c")) for one in (folder / "c").rglob("*") if one.is_file())
    optim = [f"optim/dp_rank_{other:02d}_tp_rank_00_pp_rank_00.pt" for other in range(2 if device == "xla" else 1)]
    assert names == ["checkpoint", "done", "model/dp_rank_00_tp_rank_00_pp_rank_00.pt", *optim, "user_content.pt"]
    fresh = configuration.initialize_parallel_model(config, Parallel)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    again = configuration.initialize_parallel_optimizer(config, torch.optim.AdamW, fresh.parameters(), lr=1e-2)
    assert checkpoint.load_checkpoint(folder, model=fresh, optimizer=again) == {"step": 2}
    ids, labels = (one.chunk(2)[rank] for one in batch())
    found = []
    for _ in range(2):
        again.zero_grad()
        loss = fresh.run_train(*on(device, ids, labels))
        again.step()
        found.append((mappings.reduce(loss.detach(), STATE.ZERO1.group()) / 2).item())
    assert found == pytest.approx(expected[2:], rel=1e-5)
    STATE.destroy_model_parallel()
    with degrees(tensor_model_parallel_size=2):
        with pytest.raises(ConfigError) as error:
            checkpoint.load_checkpoint(folder, model=fresh)
        assert error.value.details["saved"]["tensor"] == 1
        checkpointing.save({"model": on(device, Parallel()).state_dict()}, folder / "parts")
        if rank == 0:
            (folder / "parts" / "tp_rank_01_pp_rank_00" / "checkpoint.pt").unlink()
        dist.barrier()
        with pytest.raises(ConfigError) as error:  # rank 0 has its file, and ends with the rank that has not
            checkpointing.load(folder / "parts", model_or_optimizer=on(device, Parallel()))
        assert error.value.details["ranks"] == [1]
        damaged = folder / "parts" / "tp_rank_00_pp_rank_00" / "checkpoint.pt"
        checkpointing.save({"model": on(device, Parallel()).state_dict()}, folder / "parts")
        if rank == 0:
            damaged.write_bytes(damaged.read_bytes()[:-100])
        dist.barrier()
        with pytest.raises(ArtifactError if rank == 0 else ConfigError) as error:  # and the other one ends with it
            checkpointing.load(folder / "parts", model_or_optimizer=on(device, Parallel()))
        assert rank == 0 or error.value.details["ranks"] == [0]
        with pytest.raises(RuntimeError if rank == 0 else ConfigError):  # rank 0 has another model
            states = {"model": {} if rank == 0 else on(device, Parallel()).state_dict()}
            checkpointing.save(states, folder / "other")
            checkpointing.load(folder / "other", model_or_optimizer=on(device, Parallel()))
        unwritable = {"step": lambda: None}  # cannot be pickled, which only the rank that writes it finds
        with pytest.raises(ConfigError) as error:
            checkpoint.save_checkpoint(folder, "d", user_content=unwritable)
        assert error.value.details["ranks"] == [0] and not (folder / "d" / "done").exists()
        if rank == 0:
            torch.save({"model": Plain().state_dict()}, folder / "whole.pt")
        dist.barrier()
        model = Parallel()
        checkpointing.load(folder / "whole.pt", model_or_optimizer=model, sharded=False)
        assert torch.equal(model.up.weight, Plain().up.weight.chunk(2)[rank])


def random_states(device: str, rank: int) -> None:
    with degrees(tensor_model_parallel_size=2):
        random_numbers.model_parallel_xla_manual_seed(1234)
        tracker = random_numbers.get_xla_rng_tracker()
        alike = torch.rand(4, device=device)
        with tracker.fork():
            different = torch.rand(4, device=device)
        after = torch.rand(4, device=device)
        for value, count in ((alike, 1), (different, 2), (after, 1)):
            everyone = mappings.gather(value.unsqueeze(0), 0, STATE.TENSOR.group()).cpu()
            assert len(everyone.unique(dim=0)) == count
        with pytest.raises(ConfigError):
            tracker.add(random_numbers.MODEL_PARALLEL, 1)


def optimizer_of_low_precision(device: str, rank: int) -> None:
    torch.manual_seed(0)
    one = nn.Parameter(torch.randn(4).bfloat16().to(device))
    optimizer = adamw.AdamW_FP32OptimParams([one], lr=1e-2, weight_decay=0.1)
    other = nn.Parameter(one.detach().cpu().float())
    reference = torch.optim.AdamW([other], lr=1e-2, weight_decay=0.0, eps=0.0)
    one.grad, other.grad = torch.ones_like(one), torch.ones_like(other)
    optimizer.step()
    reference.step()
    expected = (other.detach() * (1 - 1e-3)).bfloat16()
    torch.testing.assert_close(one.detach().cpu(), expected)
    assert optimizer.state[one]["exp_avg"].dtype == torch.float32


def exchanges_without_gradients(device: str, rank: int) -> None:
    with degrees(tensor_model_parallel_size=2):
        whole = on(device, torch.arange(8.0).reshape(4, 2))
        own = along_dimensions.split_along_first_dim(whole)
        assert torch.equal(own.cpu(), whole.cpu().chunk(2)[rank])
        assert torch.equal(along_dimensions.gather_along_first_dim(own).cpu(), whole.cpu())
        assert torch.equal(along_dimensions.reduce_scatter_along_last_dim(whole).cpu(), 2 * whole.cpu()[:, [rank]])


def sharded_states(device: str, rank: int, folder: Path) -> None:
    with degrees():
        made = []
        for _ in range(2):
            layer = on(device, Plain())
            made.append((layer, zero.NeuronZero1Optimizer(layer.parameters(), torch.optim.AdamW, lr=1e-2)))
        layer, optimizer = made[0]
        layer(*on(device, *batch())).backward()
        optimizer.step()
        optimizer.save_sharded_state_dict(folder / "sharded")
        assert (folder / "sharded" / f"optim.dp_rank_{rank:02d}.tp_rank_00").is_file()
        made[1][1].load_sharded_state_dict(folder / "sharded")
        before, after = (one.state_dict()["base_state"] for _, one in made)
        for number, states in before.items():
            torch.testing.assert_close(after[number]["exp_avg"].cpu(), states["exp_avg"].cpu())
        with pytest.raises(ConfigError):
            optimizer.load_sharded_state_dict(folder / "other")


def run(case: Callable[..., Any], *arguments: Any) -> str:
    try:
        case(*arguments)
    except Exception:  # the other rank may wait in a collective, so this one goes on
        STATE.destroy_model_parallel()
        return traceback.format_exc()
    return "ok"


WITH_FILES = {"checkpoints", "lightning_trainer", "low_rank", "low_rank_of_stages", "sharded_states", "trained_experts"}


def main(folder: str, device: str, *cases: str) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if device == "xla":
        from optimum_neuron.xla import enable, process_groups

        enable()
        process_groups.register()
    if "lightning_begins" not in cases:
        dist.init_process_group("xla" if device == "xla" else "gloo")
    from . import expert_cases  # it has helpers of this module

    cases_of = {**vars(expert_cases), **globals()}
    rank = int(os.environ["RANK"])
    results = {}
    for name in cases:
        rest = (Path(folder, "files"),) if name in WITH_FILES else ()
        results[name] = run(cases_of[name], device, rank, *rest)
    Path(folder, f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
