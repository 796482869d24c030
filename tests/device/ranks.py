"""Cases for the processes of `test_distributed.py`: `python -m tests.device.ranks FOLDER CASE ...`."""

from __future__ import annotations

import copy
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce, reduce_scatter_tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, randn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.device import rotary

TOLERANCE = 1e-5


class Layers(nn.Sequential):
    """Has a forward outside of torch's own modules, which Dynamo does not compile on their own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            x = layer(x)
        return x


class Block(nn.Module):
    """Sharded on its own, and not one of torch's modules, so that Dynamo finds code between FSDP's hooks."""

    def __init__(self, first: nn.Module, *others: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(first, *others)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Rank:
    """One process: its device, and a small model with the results of a single process."""

    optlevel = "1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if "LOCAL_RANK" not in os.environ:
            torch.neuron.set_device(int(os.environ["RANK"]))
        self.device = torch.device("neuron", torch.neuron.current_device())
        dist.init_process_group("neuron", device_id=self.device)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = Layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.inputs, self.targets = torch.randn(4, 8), torch.randn(4, 4)
        self.expected = [
            p.detach() for p in self.trained(copy.deepcopy(self.model), self.inputs, self.targets).parameters()
        ]

    def mesh(self) -> DeviceMesh:
        return init_device_mesh("neuron", (self.size,))

    def copied(self) -> nn.Module:
        return copy.deepcopy(self.model).to(self.device)

    def full(self, *values: float) -> torch.Tensor:
        return torch.tensor(values, device=self.device)

    def trained(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> nn.Module:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            (model(inputs) - targets).pow(2).mean().backward()
            optimizer.step()
        return model

    def trained_on_its_share(self, model: nn.Module) -> nn.Module:
        inputs, targets = (t.chunk(self.size)[self.rank].to(self.device) for t in (self.inputs, self.targets))
        return self.trained(model, inputs, targets)

    def compare(self, parameters: Sequence[torch.Tensor], tolerance: float = TOLERANCE) -> None:
        for actual, expected in zip(parameters, self.expected, strict=True):
            actual = actual.full_tensor() if hasattr(actual, "full_tensor") else actual
            assert actual.device == self.device
            torch.testing.assert_close(actual.detach().cpu(), expected, atol=tolerance, rtol=0)

    def backend(self) -> None:
        assert dist.get_backend() == "neuron" and self.device.index == self.rank

    def all_reduce(self) -> None:
        x = self.full(self.rank + 1.0)
        dist.all_reduce(x)
        work = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
        work.wait()
        assert x.is_neuron and x.tolist() == [3.0]

    def reduced_in_bfloat16_and_averaged(self) -> None:
        x, y = self.full(self.rank + 1.0).bfloat16(), self.full(self.rank + 1.0)
        dist.all_reduce(x)
        dist.all_reduce(y, op=dist.ReduceOp.AVG)
        assert (x.item(), y.item()) == (3.0, 1.5)

    def gathers(self) -> None:
        parts = [torch.empty(1, device=self.device) for _ in range(self.size)]
        dist.all_gather(parts, self.full(float(self.rank)))
        whole = torch.empty(self.size, device=self.device)
        dist.all_gather_into_tensor(whole, self.full(float(self.rank)))
        assert [part.item() for part in parts] == whole.tolist() == [0.0, 1.0]
        flat = torch.empty(self.size * 2, device=self.device)
        dist.all_gather_into_tensor(flat, self.full(float(self.rank)).expand(1, 2).contiguous())
        assert flat.tolist() == [0.0, 0.0, 1.0, 1.0]

    def reduce_scatters(self) -> None:
        scaled = dist.ReduceOp.PREMUL_SUM(0.25)
        for op, value in ((dist.ReduceOp.SUM, 2.0), (dist.ReduceOp.AVG, 1.0), (scaled, 0.5)):
            part = torch.empty(1, device=self.device)
            dist.reduce_scatter_tensor(part, self.full(1.0, 1.0), op=op)
            assert part.item() == value
        dist.reduce_scatter(part, [self.full(1.0), self.full(1.0)])
        assert part.item() == 2.0

    def all_to_all(self) -> None:
        out, expected = torch.empty(2, device=self.device), [float(self.rank), 10.0 + self.rank]
        dist.all_to_all_single(out, torch.arange(2.0, device=self.device) + 10 * self.rank)
        assert out.tolist() == expected
        parts = [torch.empty(1, device=self.device) for _ in range(2)]
        dist.all_to_all(parts, list((torch.arange(2.0, device=self.device) + 10 * self.rank).chunk(2)))
        assert [part.item() for part in parts] == expected

    def rooted(self) -> None:
        x = self.full(float(self.rank))
        dist.broadcast(x, 1)
        assert x.item() == 1
        parts = [torch.empty(1, device=self.device) for _ in range(2)] if self.rank == 0 else None
        dist.gather(x, parts, 0)
        dist.scatter(x, [self.full(5.0), self.full(6.0)] if self.rank == 0 else None, 0)
        assert x.item() == 5 + self.rank
        dist.reduce(x, 0)
        dist.barrier()

    def point_to_point(self) -> None:
        actual, other = self.full(float(self.rank)), torch.empty(1, device=self.device)
        if self.rank == 0:
            dist.send(actual, 1)
        else:
            dist.recv(other, 0)
            assert other.item() == 0
        both = [dist.P2POp(dist.isend, actual, 1 - self.rank), dist.P2POp(dist.irecv, other, 1 - self.rank)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        assert other.item() == 1 - self.rank

    def objects(self) -> None:
        result: list[object] = [None] * self.size
        dist.all_gather_object(result, {"rank": self.rank})
        objects = [self.rank]
        dist.broadcast_object_list(objects, 0, device=self.device)
        assert result[1] == {"rank": 1} and objects == [0]

    def coalesced(self) -> None:
        parts = [self.full(1.0), self.full(1.0, 2.0)]
        dist.all_reduce_coalesced(parts)
        with dist._coalescing_manager(device=self.device, async_ops=True) as together:
            for part in parts:
                dist.all_reduce(part)
        together.wait()
        assert parts[1].tolist() == [4.0, 8.0]
        self.all_reduce()

    def groups_and_host_tensors(self) -> None:
        group = dist.new_group([0, 1])
        for x in (self.full(1.0), torch.ones(1)):
            dist.all_reduce(x, group=group)
            assert x.item() == 2

    def functional(self) -> None:
        world = dist.group.WORLD
        assert (all_reduce(self.full(1.0), "sum", world) + 0).item() == 2
        assert all_gather_tensor(self.full(1.0), 0, world).shape == (2,)
        assert (reduce_scatter_tensor(self.full(1.0, 1.0), "sum", 0, world) + 0).tolist() == [2.0]

    def ddp(self) -> None:
        model = DistributedDataParallel(self.copied(), device_ids=[self.device.index])
        self.compare(list(self.trained_on_its_share(model).parameters()))
        view = DistributedDataParallel(self.copied(), gradient_as_bucket_view=True, find_unused_parameters=True)
        self.compare(list(self.trained_on_its_share(view).parameters()))

    def fsdp1(self) -> None:
        model = FullyShardedDataParallel(self.copied(), device_id=self.device, use_orig_params=True)
        self.trained_on_its_share(model)
        with FullyShardedDataParallel.summon_full_params(model):
            self.compare(list(model.parameters()))

    def fsdp2(self) -> None:
        half = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for policy, tolerance in ((MixedPrecisionPolicy(), TOLERANCE), (half, 5e-2)):
            model = self.copied()
            for layer in (model[0], model[2], model):
                fully_shard(layer, mesh=self.mesh(), mp_policy=policy)
            self.compare(list(self.trained_on_its_share(model).parameters()), tolerance)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def fsdp2_without_division(self) -> None:
        model = self.copied()
        fully_shard(model, mesh=self.mesh())
        model.set_gradient_divide_factor(1.0)
        inputs = self.inputs.chunk(self.size)[self.rank].to(self.device)
        model(inputs).sum().backward()
        alone = copy.deepcopy(self.model)
        alone(self.inputs).sum().backward()
        for actual, expected in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(actual.grad.full_tensor().cpu(), expected.grad, atol=TOLERANCE, rtol=0)

    def fsdp2_on_meta(self) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        with torch.device("meta"):
            model = nn.Linear(8, 8)
        fully_shard(model, mesh=self.mesh())
        model.to_empty(device="neuron")
        model.reset_parameters()
        model(self.inputs.to(self.device)).sum().backward()
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        assert self.rank > 0 or state["weight"].is_cpu

    def hsdp(self) -> None:
        model = self.copied()
        fully_shard(model, mesh=init_device_mesh("neuron", (1, self.size), mesh_dim_names=("replicate", "shard")))
        self.compare(list(self.trained_on_its_share(model).parameters()))

    def tensor_parallel(self) -> None:
        model = self.copied()
        parallelize_module(model, self.mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        self.trained(model, self.inputs.to(self.device), self.targets.to(self.device))
        self.compare(list(model.parameters()))

    def dtensor(self) -> None:
        mesh = self.mesh()
        x = distribute_tensor(torch.arange(8.0).view(4, 2).to(self.device), mesh, [Shard(0)])
        assert x.redistribute(placements=[Replicate()]).to_local().sum().item() == 28
        assert x.redistribute(placements=[Shard(1)]).to_local().shape == (4, 1)
        assert (x @ x.t()).full_tensor().shape == (4, 4)
        partial = torch.distributed.tensor.DTensor.from_local(self.full(1.0), mesh, [Partial()])
        assert partial.full_tensor().item() == 2

    def dtensor_random(self) -> None:
        torch.manual_seed(0)
        whole = randn(8, 4, device_mesh=self.mesh(), placements=[Shard(0)]).full_tensor()
        assert not torch.equal(whole[:4], whole[4:])

    def checkpoint(self) -> None:
        model = self.copied()
        fully_shard(model)
        state = model.state_dict()
        kept = state["0.weight"].full_tensor().clone()
        dcp.save(state, checkpoint_id=str(self.folder / "dcp"))
        state["0.weight"].zero_()
        dcp.load(state, checkpoint_id=str(self.folder / "dcp"))
        assert torch.equal(state["0.weight"].full_tensor(), kept)

    def compiled_ddp(self) -> None:
        torch._dynamo.reset()  # forgets the graphs of other cases
        model = self.compiled(DistributedDataParallel(self.copied()))
        self.compare(list(self.trained_on_its_share(model).parameters()))
        self.require_graphs(1)

    def compiled_fsdp2(self) -> None:
        torch._dynamo.reset()
        model = Layers(Block(self.copied()[0], nn.ReLU()), Block(self.copied()[2]))
        for layer in (*model, model):
            fully_shard(layer, mesh=self.mesh())
        self.compare(list(self.trained_on_its_share(self.compiled(model)).parameters()))
        self.require_graphs(2)

    def rotary_fsdp2(self) -> None:
        self.require_losses_of_cpu(rotary.shard)

    def rotary_tensor_parallel(self) -> None:
        self.require_losses_of_cpu(rotary.split, is_split=True)

    def compiled_rotary_fsdp2(self) -> None:
        torch._dynamo.reset()
        self.require_losses_of_cpu(rotary.shard, is_compiled=True)
        self.require_graphs(1)  # the layers share it

    def compiled_rotary_tensor_parallel(self) -> None:
        torch._dynamo.reset()
        self.require_losses_of_cpu(rotary.split, is_split=True, is_compiled=True)
        self.require_graphs(1)

    def require_losses_of_cpu(
        self, distribute: Callable[[rotary.Model, str], None], *, is_split: bool = False, is_compiled: bool = False
    ) -> None:
        """Require the losses that two processes with tensors of the CPU have, over gloo."""

        def prepare(model: rotary.Model) -> None:
            if is_split:
                distribute(model, "neuron")
            if is_compiled:
                rotary.compile_layers(model, lambda layer: self.compiled(layer, fullgraph=True), repeats=not is_split)
            if not is_split:
                distribute(model, "neuron")

        expected = rotary.losses("cpu", self.rank, lambda model: distribute(model, "cpu"), is_split=is_split)
        actual = rotary.losses("neuron", self.rank, prepare, is_split=is_split)
        assert expected[0] > expected[-1] and actual == pytest.approx(expected, abs=TOLERANCE), (actual, expected)

    @staticmethod
    def require_graphs(count: int) -> None:
        """Require `count` forward graphs since the last reset of Dynamo, each with its backward."""
        kinds = [graph.kind for graph in torch.neuron.compile_report().graphs]
        assert sorted(kinds) == ["backward"] * count + ["forward"] * count, kinds

    def compiled_collective(self) -> None:
        total = self.compiled(lambda x: all_reduce(x * 2, "sum", dist.group.WORLD) + 1)
        assert total(self.full(1.0)).tolist() == [5.0]
        assert "_c10d_functional" not in str(torch.neuron.compile_report().breaks)

    def compiled(self, function: Callable[..., Any], *, fullgraph: bool = False) -> Any:
        return torch.compile(function, backend="neuron", fullgraph=fullgraph, options={"optlevel": self.optlevel})

    def require_warm(self, case: Callable[[], None]) -> None:
        """Require that the graphs of a case, now host code, come from torch's caches the second time."""
        self.optlevel, result = "2", []
        for _ in range(2):
            torch._dynamo.reset()
            counters.clear()
            case()
            result.append(dict(counters["aot_autograd"]))
            graphs = torch.neuron.compile_report().graphs
        cold, warm = result
        assert cold["autograd_cache_miss"] == cold["autograd_cache_saved"] == warm["autograd_cache_hit"] == 1, result
        assert {graph.loaded_from for graph in graphs} == {"AOTAutograd's cache"}

    def warm_ddp(self) -> None:
        self.require_warm(self.compiled_ddp)

    def warm_collective(self) -> None:
        self.require_warm(self.compiled_collective)

    def failing(self) -> None:
        x = self.full(1.0)
        dist.all_reduce(x)
        assert x.item() == 1


def outcome(case: Callable[[], None]) -> str:
    try:
        case()
    except Exception:
        return traceback.format_exc(limit=-3)
    return "ok"


def main() -> None:
    warnings.simplefilter("ignore")
    rank = Rank(Path(sys.argv[1]))
    results = {}
    for name in (*sys.argv[2:], "failing"):
        results[name] = outcome(getattr(rank, name))
        dist.barrier()
    results["failing"] = results["failing"].splitlines()[-1]
    if rank.rank == 0:
        (rank.folder / "results.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
