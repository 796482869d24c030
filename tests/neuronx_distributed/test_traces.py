"""Models of one and two ranks, traced, compiled, saved, and loaded; torch's own layers are the reference."""

from __future__ import annotations

import copy
import errno
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from optimum_neuron.errors import (
    ArtifactError,
    ConfigError,
    NotSupportedError,
    ShapeError,
    UnknownNameError,
    WeightsError,
)
from optimum_neuron.neuronx_distributed import (
    checkpointing,
    embedding,
    layers,
    mappings,
    model_builder,
    model_builder_v1,
    nxd_model,
    parallel_state,
    parallel_trace,
    sharding,
    simulated,
    traces,
)

pytestmark = pytest.mark.filterwarnings("ignore:compiler flags without an effect")
SHORT, LONG = torch.tensor([[1, 2, 15]]), torch.arange(10).reshape(2, 5)
SCALE = torch.linspace(0, 1, 10).reshape(2, 5, 1)


def groups(size: int, rank: int = 0) -> simulated.NxDParallelState:
    return simulated.NxDParallelState(world_size=size, rank=rank, tensor_model_parallel_size=size)


class Model(nn.Module):
    """Every kind of exchange, a buffer that a call replaces, and one that it writes."""

    def __init__(self, *, is_divided: bool = True) -> None:
        super().__init__()
        column, row = layers.ColumnParallelLinear, layers.RowParallelLinear
        self.embed = embedding.ParallelEmbedding(16, 8) if is_divided else nn.Embedding(16, 8)
        self.up = column(8, 32, gather_output=False) if is_divided else nn.Linear(8, 32)
        self.down = row(32, 8, input_is_parallel=True) if is_divided else nn.Linear(32, 8)
        self.head = column(8, 16) if is_divided else nn.Linear(8, 16)
        self.back = row(16, 8) if is_divided else nn.Linear(16, 8)
        self.register_buffer("total", torch.zeros(1, 8), persistent=False)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, ids: torch.Tensor, scale: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        hidden = self.embed(ids)
        hidden = hidden + self.down(torch.relu(self.up(hidden)))
        logits = self.head(hidden)
        hidden = self.back(logits) if scale is None else self.back(logits) * scale
        self.total = self.total + hidden.sum(dim=(0, 1))[None]
        self.count += 1
        return {"logits": logits, "total": self.total, "count": self.count + 0}


@pytest.fixture
def eager() -> Model:
    torch.manual_seed(0)
    return Model(is_divided=False)


def build(size: int, checkpoint: dict[str, torch.Tensor], folder: Path) -> nxd_model.NxDModel:
    with groups(size):
        builder = model_builder.ModelBuilder(Model()).trace(SHORT, tag="short")
        builder.trace(LONG, {"scale": SCALE}, tag="long")
        model = builder.compile(compiler_workdir=folder, compiler_args={"short": "-O1", "long": "-O1 --verbose=35"})
        with sharding.init_on_device(torch.device("meta")):
            shards = sharding.shard_checkpoint(copy.deepcopy(checkpoint), Model(), serialize_path=folder / "weights")
    model.set_weights(shards)
    return model


@pytest.mark.parametrize("size", [1, 2])
def test_answers_and_states_equal_eager(size: int, eager: Model, tmp_path: Path) -> None:
    model = build(size, eager.state_dict(), tmp_path)
    with pytest.raises(ConfigError):
        model(SHORT)
    model.to_neuron()
    for _ in range(2):
        torch.testing.assert_close(model(SHORT), eager(SHORT))
        torch.testing.assert_close(model(LONG, scale=SCALE), eager(LONG, SCALE))
    torch.testing.assert_close(model.read_from_neuron_buffer("count", 0), eager.count)
    model.write_to_neuron_buffer(torch.full((1,), 7.0), "count", 0)
    assert model(SHORT)["count"] == 8
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == [
        f"tp{rank}_sharded_checkpoint.safetensors" for rank in range(size)
    ]
    assert model.get_neff("short") and model.get_available_keys() == {"short", "long"}

    model.save(tmp_path / "model.pt", save_weights=True)
    loaded = nxd_model.NxDModel.load(tmp_path / "model.pt")
    loaded.to_neuron()
    script = torch.jit.load(tmp_path / "model.pt")
    script.nxd_model.initialize_with_saved_weights(torch.zeros(1, dtype=torch.int32))
    fresh = Model(is_divided=False)
    fresh.load_state_dict(build_state(eager))
    expected = fresh(LONG, SCALE)
    torch.testing.assert_close(loaded(LONG, SCALE), expected)
    torch.testing.assert_close(script(LONG, SCALE), expected)


def build_state(eager: Model) -> dict[str, torch.Tensor]:
    return {**eager.state_dict(), "count": torch.zeros(1)}


def test_wrong_calls_and_weights(eager: Model, tmp_path: Path) -> None:
    model = build(2, eager.state_dict(), tmp_path)
    whole = model.weights
    for weights in (
        whole[:1],
        [whole[0], {}],
        [whole[0], {**whole[1], "down.bias": whole[1]["down.bias"] + 1}],
        [whole[0], {**whole[1], "up.weight": whole[1]["up.weight"][:3]}],
    ):
        model.set_weights(weights)
        with pytest.raises(WeightsError):
            model.to_neuron()
    model.set_weights(whole)
    model.to_neuron()
    for arguments, options, error in (
        ((torch.zeros(3, 3, dtype=torch.int64),), {}, ShapeError),
        ((), {}, ConfigError),
        ((SHORT,), {"ids": SHORT}, ConfigError),
        ((SHORT,), {"mask": SHORT}, ConfigError),
        ((SHORT,), {"forward_mode": "ranked"}, ConfigError),
        ((SHORT,), {"model_name": "long"}, ConfigError),
    ):
        with pytest.raises(error):
            model(*arguments, **options)
    for call in (
        lambda: model.read_from_neuron_buffer("nothing", 0),
        lambda: model.read_from_neuron_buffer("count", 2),
        lambda: model.write_to_neuron_buffer(torch.zeros(2), "count", 0),
        lambda: model.get_neff("other"),
    ):
        with pytest.raises(UnknownNameError):
            call()


class Own(nn.Module):
    """Collectives of torch.distributed, and the number of the rank as a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = layers.ColumnParallelLinear(4, 8, bias=False, gather_output=False)
        self.rank = sharding.SPMDRank(2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = self.linear(x)
        total = part.sum(-1, keepdim=True)
        dist.all_reduce(total)
        gathered = part.new_empty(2 * part.shape[0], part.shape[1])
        dist.all_gather_single(gathered, part)
        own = mappings.scatter_to_process_group_spmd(x, 1, self.rank.get_rank())
        return total, gathered, mappings.gather_from_tensor_model_parallel_region(own + self.rank.get_rank())


def test_collectives_of_the_model_and_ranks_as_weights(tmp_path: Path) -> None:
    x, weight = torch.rand(2, 4), torch.rand(8, 4)
    with groups(2):
        module = Own()
        model = model_builder.ModelBuilder(module).trace(x, tag="x").compile(compiler_workdir=tmp_path)
        model.set_weights(sharding.shard_checkpoint({"linear.weight": weight}, module))
    model.to_neuron()
    y = x @ weight.T
    expected = (y.sum(-1, keepdim=True), torch.cat(y.chunk(2, 1)), x + torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(model(x), expected)


class Pair(nn.Module):
    def __init__(self, *, is_divided: bool = True) -> None:
        super().__init__()
        self.up = layers.ColumnParallelLinear(4, 8, gather_output=False) if is_divided else nn.Linear(4, 8)
        self.down = layers.RowParallelLinear(8, 4, input_is_parallel=True) if is_divided else nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        y = self.down(torch.relu(self.up(x)))
        return y, (x, y + 1)


def test_parallel_model_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, x = Pair(is_divided=False), torch.rand(3, 4)
    torch.save({"model": reference.state_dict()}, tmp_path / "whole.pt")

    def make() -> tuple[nn.Module, dict[torch.Tensor, int]]:
        module = Pair()
        checkpointing.load(tmp_path / "whole.pt", model_or_optimizer=module, sharded=False)
        return module, {}

    model = parallel_trace.parallel_model_trace(make, x, tp_degree=2, compiler_workdir=tmp_path)
    torch.testing.assert_close(model(x), reference(x))
    parallel_trace.parallel_model_save(model, tmp_path / "saved")
    torch.testing.assert_close(parallel_trace.parallel_model_load(tmp_path / "saved")(x), reference(x))
    before = {file.name: file.read_bytes() for file in (tmp_path / "saved").iterdir()}

    def full(script: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(ArtifactError):
        patch.setattr(torch.jit, "save", full)
        parallel_trace.parallel_model_save(model, tmp_path / "saved")
    assert {file.name: file.read_bytes() for file in (tmp_path / "saved").iterdir()} == before
    torch.testing.assert_close(model(x), reference(x))
    (tmp_path / "saved" / "tp_1.pt").unlink()
    with pytest.raises(WeightsError) as missing:
        parallel_trace.parallel_model_load(tmp_path / "saved")
    assert missing.value.details["missing"] == ["tp_1.pt"]

    class ByRank(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (parallel_state.TENSOR.rank() + 2)

    with pytest.raises(NotSupportedError):
        parallel_trace.parallel_model_trace(lambda: (ByRank(), {}), x, tp_degree=2, compiler_workdir=tmp_path)


class Counting(Pair):
    def __init__(self, *, is_divided: bool = True) -> None:
        super().__init__(is_divided=is_divided)
        self.state = nn.Parameter(torch.zeros(3, 4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = super().forward(x)[0]
        return y + self.state, y


class Instance(model_builder_v1.BaseModelInstance):
    def __init__(self) -> None:
        super().__init__(Counting, None)

    def load_module(self) -> None:
        super().load_module()
        self.input_output_aliases = [{self.module.state: 1}]


def test_builder_of_several_models(tmp_path: Path) -> None:
    reference = Counting(is_divided=False)
    builder = model_builder_v1.ModelBuilder(None, 2, reference.state_dict, compiler_workdir=tmp_path)
    builder.add("main", Instance(), [(torch.rand(3, 4),)]).add(
        "pair", model_builder_v1.BaseModelInstance(Pair, {}), [(torch.rand(2, 4),), (torch.rand(5, 4),)]
    )
    model = builder.trace()
    assert model is not None
    torch.jit.save(model, tmp_path / "model.pt")
    loaded = torch.jit.load(tmp_path / "model.pt")
    with pytest.raises(torch.jit.Error, match="not initialized"):
        loaded(torch.rand(2, 4))
    loaded.nxd_model.initialize(builder.shard_checkpoint(), torch.zeros(1, dtype=torch.int32))
    for rows in (2, 5):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(loaded(x), Pair.forward(reference, x))
    for _ in range(2):
        x = torch.rand(3, 4)
        result, state = reference(x)
        reference.state.data = state
        torch.testing.assert_close(model(x), result)
    with pytest.raises(torch.jit.Error, match="not found in input_shape_map"):
        model(torch.rand(7, 4))


def unequal(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: traces.trace(None, x), ConfigError),
        (lambda x: traces.trace(nn.Linear(4, 2)), ConfigError),
        (lambda x: traces.trace(nn.Linear(4, 2), "text"), ConfigError),
        (lambda x: traces.trace(nn.Linear(4, 2), (x, x)), ConfigError),
        (lambda x: traces.trace(nn.Linear(4, 2), x, {"input": x}), ConfigError),
        (lambda x: traces.trace(nn.Linear(4, 2), kwargs={"other": x}), ConfigError),
        (lambda x: traces.trace(unequal, x), ConfigError),
        (lambda x: traces.trace(nn.Linear(4, 2), x, spmd=False), NotSupportedError),
        (lambda x: model_builder.ModelBuilder(nn.Linear(4, 2)).compile(), ConfigError),
        (lambda x: model_builder.ModelBuilder(nn.Linear(4, 2)).trace(x, tag="a").compile("b"), ConfigError),
        (lambda x: sharding.shard_checkpoint({}, nn.Linear(4, 2)), ConfigError),
        (lambda x: model_builder_v1.ModelBuilder(None, 2, None, start_rank_id=1), ConfigError),
    ],
)
def test_wrong_arguments(call: Callable[[torch.Tensor], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        call(torch.rand(3, 4))


def test_groups_of_some_ranks_cannot_exchange_in_a_program() -> None:
    state = functools.partial(simulated.NxDParallelState, world_size=4)
    with state(tensor_model_parallel_size=2), pytest.raises(ConfigError):
        traces.trace(Pair(), torch.rand(3, 4))
    with pytest.raises(ConfigError), state(tensor_model_parallel_size=3):
        pass
    assert not dist.is_initialized()
