"""Cases for the processes of `test_processes.py`: `python -m tests.xla.ranks FOLDER CASE ...`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from optimum_neuron.errors import CollectiveError, ConfigError
from optimum_neuron.xla import collectives as xm, device, gradients as training, graphs, process_groups, rendezvous
from optimum_neuron.xla.nested import to_cpu
from optimum_neuron.xla.ordinals import global_ordinal, world_size
from optimum_neuron.xla.zero import ZeroRedundancyOptimizer

DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def values(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a rank has: whole numbers, so that every order of sums gives the same."""
    return torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(rank)).to("xla", dtype)


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.device.type == "xla"
    assert torch.equal(found.cpu(), expected.cpu())


def all_reduce(rank: int, everyone: range) -> None:
    for dtype in DTYPES:
        own, total = values(rank, 3, 2, dtype=dtype), sum(values(other, 3, 2, dtype=dtype).cpu() for other in everyone)
        result = xm.all_reduce(xm.REDUCE_SUM, own)
        same(result, total)
        assert result is not own and not torch.equal(own.cpu(), total)
        given = [own.clone(), values(rank, 5)]
        assert xm.all_reduce("sum", given) is given
        same(given[0], total)
        same(given[1], sum(values(other, 5).cpu() for other in everyone))
    stacked = torch.stack([values(other, 4).cpu() for other in everyone])
    for name, expected in (("min", stacked.amin(0)), ("max", stacked.amax(0)), ("mul", stacked.prod(0))):
        same(xm.all_reduce(name, values(rank, 4)), expected)
    flags = torch.tensor([True, rank == 0, False], device="xla")
    same(xm.all_reduce("and", flags), torch.tensor([True, False, False]))
    same(xm.all_reduce("or", flags), torch.tensor([True, True, False]))
    halved = [torch.ones((), device="xla") * (rank + 1)]
    xm.all_reduce("sum", halved, scale=0.5)
    same(halved[0], torch.tensor(1.5))
    with pytest.raises(ConfigError) as error:
        xm.all_reduce("average", halved)
    assert error.value.details["value"] == "average"


def gather(rank: int, everyone: range) -> None:
    parts = [values(other, 2, 3).cpu() for other in everyone]
    for dim in (0, 1, -1):
        same(xm.all_gather(values(rank, 2, 3), dim=dim), torch.cat(parts, dim))
    same(xm.all_gather(torch.tensor(float(rank), device="xla")), torch.arange(2.0))
    output = torch.zeros(4, 3, device="xla")
    assert xm.all_gather(values(rank, 2, 3), output=output) is output
    same(output, torch.cat(parts))
    listed = [values(rank, 2, 3), values(rank, 1)]
    for results in (
        xm.all_gather(listed, pin_layout=False),
        xm.all_gather_bucketized(listed),
        xm.all_gather_bucketized(listed, bucket_cap_mb=0),
    ):
        same(results[0], torch.cat(parts))
        same(results[1], torch.cat([values(other, 1).cpu() for other in everyone]))
    outputs = [torch.zeros(4, 3, device="xla"), torch.zeros(2, device="xla")]
    assert xm.all_gather_bucketized(listed, output=outputs) is outputs
    same(outputs[0], torch.cat(parts))
    with pytest.raises(ConfigError):
        xm.all_gather(listed)
    with pytest.raises(ConfigError):
        xm.all_gather(listed, output=outputs[:1], pin_layout=False)


def scatter(rank: int, everyone: range) -> None:
    total = sum(values(other, 4, 2).cpu() for other in everyone)
    own = values(rank, 4, 2)
    same(xm.reduce_scatter("sum", own, 1.0, 0, 2), total[2 * rank : 2 * rank + 2])
    same(xm.reduce_scatter("sum", own, 0.5, 1, 2), total[:, rank : rank + 1] / 2)
    output = torch.zeros(2, 2, device="xla")
    assert xm.reduce_scatter("sum", own, 1.0, 0, 2, output=output) is output
    same(output, total[2 * rank : 2 * rank + 2])
    for results in (
        xm.reduce_scatter("sum", [own, own], 1.0, 0, 2),
        xm.reduce_scatter_bucketized("sum", [own, own], 1.0, 0, 2),
    ):
        for result in results:
            same(result, total[2 * rank : 2 * rank + 2])
    with pytest.raises(ConfigError):
        xm.reduce_scatter("sum", values(rank, 3), 1.0, 0, 2)
    with pytest.raises(ConfigError):
        xm.reduce_scatter("sum", own, 1.0, 0, 4)


def exchange(rank: int, everyone: range) -> None:
    sent = torch.stack([torch.arange(3.0) + 10 * rank + 100 * other for other in everyone]).to("xla")
    expected = torch.stack([torch.arange(3.0) + 10 * other + 100 * rank for other in everyone])
    same(xm.all_to_all(sent, 0, 0, 2), expected)
    same(xm.all_to_all(sent, 0, 1, 2), expected.reshape(1, -1))
    own = values(rank, 2)
    same(xm.collective_permute(own, [[0, 1], [1, 0]]), values(1 - rank, 2))
    same(xm.collective_permute(own, [[0, 1]]), values(0, 2) if rank == 1 else torch.zeros(2))
    same(xm.collective_permute(own, [[0, 0], [1, 1]]), own)
    with pytest.raises(ConfigError):
        xm.collective_permute(own, [[0, 1], [0, 0]])
    tensors = [values(rank, 2, 2).t(), values(rank, 3)]
    xm.collective_broadcast(tensors, root_ordinal=1)
    same(tensors[0], values(1, 2, 2).t())
    same(tensors[1], values(1, 3))
    for _ in range(2):
        if rank == 0:
            xm.send(own, 7)
        else:
            same(xm.recv(torch.zeros(2, device="xla"), 7), values(0, 2))


def groups(rank: int, everyone: range) -> None:
    own = values(rank, 2)
    same(xm.all_reduce("sum", own, groups=[[0], [1]]), own)
    same(xm.all_gather(own, groups=[[1, 0]]), torch.cat([values(1, 2).cpu(), values(0, 2).cpu()]))
    same(xm.reduce_scatter("sum", own, 1.0, 0, 1, groups=[[0], [1]]), own)
    for bad in ([[0]], [[0, 1], [rank]], [[0, 1, 2]]):
        if rank == 1 or bad != [[0]]:
            with pytest.raises(ConfigError):
                xm.all_reduce("sum", own, groups=bad)


def host(rank: int, everyone: range) -> None:
    assert rendezvous.rendezvous("empty") == [b"", b""]
    assert rendezvous.rendezvous("named", f"rank {rank}".encode() * (rank + 1)) == [b"rank 0", b"rank 1rank 1"]
    assert rendezvous.rendezvous(f"alone {rank}", b"x", replicas=[rank]) == [b"x"]
    assert rendezvous.mesh_reduce("list", rank, list) == [0, 1]
    total = rendezvous.mesh_reduce("tensors", {"a": values(rank, 2)}, lambda found: found[0]["a"] + found[1]["a"])
    assert total.device.type == "cpu" and torch.equal(total, values(0, 2).cpu() + values(1, 2).cpu())
    assert rendezvous.do_on_ordinals(lambda x: x.device.type, (values(rank, 2),)) == (None if rank else "cpu")
    with pytest.raises(ConfigError):
        rendezvous.rendezvous("text", "text")  # type: ignore[arg-type]


def gradients(rank: int, everyone: range) -> None:
    whole = torch.cat([values(other, 4, 6).cpu() for other in everyone]) / 8
    reference, model = make_model("cpu"), make_model("xla")
    for trained, inputs in ((reference, whole), (model, values(rank, 4, 6) / 8)):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = trained(inputs).square().mean()
            loss.backward()
            if trained is reference:
                optimizer.step()
            else:
                assert training.optimizer_step(optimizer, barrier=True) is None
    torch.testing.assert_close([p.cpu() for p in model.parameters()], list(reference.parameters()))
    if rank:
        nn.init.zeros_(model[0].weight)
    training.broadcast_master_param(model)
    torch.testing.assert_close(model[0].weight.cpu(), reference[0].weight)


def make_model(where: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).to(where)


def zero(rank: int, everyone: range) -> None:
    whole = torch.cat([values(other, 4, 6).cpu() for other in everyone]) / 8
    reference = make_model("cpu")
    expected = torch.optim.AdamW(reference.parameters(), lr=0.1)
    norms = []
    for _ in range(3):
        expected.zero_grad()
        reference(whole).square().mean().backward()
        norms.append(nn.utils.clip_grad_norm_(reference.parameters(), 0.05))
        expected.step()
    for options in ({}, BUCKETS, {"use_grad_acc_hook": True, "higher_cc_precision": True}):
        model = make_model("xla")
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.AdamW, lr=0.1, max_norm=0.05, save_master_weights=True, **options
        )
        for norm in norms:
            optimizer.zero_grad()
            loss = model(values(rank, 4, 6) / 8).square().mean()
            assert optimizer.step(lambda loss=loss: loss.backward()) is None
            torch.testing.assert_close(optimizer.grad_norm.cpu(), norm)
        found = [parameter.cpu() for parameter in model.parameters()]
        torch.testing.assert_close(found, list(reference.parameters()), rtol=1e-5, atol=1e-6)
    state = optimizer.state_dict()
    rows = [state["base_state"][number]["exp_avg"] for number in range(4)]
    for part, (number, parameter) in zip(rows, enumerate(reference.parameters()), strict=True):
        momentum = expected.state[parameter]["exp_avg"].chunk(2)[rank]
        torch.testing.assert_close(part.cpu(), momentum, rtol=1e-4, atol=1e-6)
        assert state["shape_info"][number] == parameter.shape
    restored(rank, state, model)


def restored(rank: int, state: dict[str, Any], trained: nn.Module) -> None:
    """A checkpoint gives another model the trained weights, and the next step is the same."""
    other = make_model("xla")
    nn.init.zeros_(other[0].weight)
    loaded = ZeroRedundancyOptimizer(other.parameters(), torch.optim.AdamW, lr=0.5, max_norm=0.05)
    loaded.load_state_dict(to_cpu(state))
    for parameter, expected in zip(other.parameters(), trained.parameters(), strict=True):
        same(parameter, expected)
    assert loaded.param_groups[0]["lr"] == 0.1
    for wrong in ({"shape_info": {0: (1, 1)}}, {"base_state": {0: {"exp_avg": torch.zeros(8, 6)}}}):
        with pytest.raises(ConfigError):
            loaded.load_state_dict({**state, **wrong})
    with pytest.raises(ConfigError):
        ZeroRedundancyOptimizer(other.parameters(), torch.optim.SGD, sharding_groups=[[1 - rank]], lr=0.1)


def padded(rank: int, everyone: range) -> None:
    """Rows that ranks cannot divide, and 16 bits."""
    model, reference = (nn.Linear(3, 5).to(torch.bfloat16) for _ in range(2))
    reference.load_state_dict(model.state_dict())
    training.broadcast_master_param(model.to("xla"))
    reference.load_state_dict(to_cpu(dict(model.state_dict())))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.5, grad_clipping=False)
    masters = [parameter.detach().float() for parameter in reference.parameters()]
    for step in range(2):
        optimizer.zero_grad(set_to_none=True)
        for one, master in zip(model.parameters(), masters, strict=True):
            one.grad = values(rank + 2 * step, *one.shape, dtype=torch.bfloat16)
            average = sum(values(other + 2 * step, *one.shape).cpu() for other in everyone) / 2
            master -= 0.5 * average
        optimizer.step()
    for one, master in zip(model.parameters(), masters, strict=True):
        same(one, master.bfloat16())
    assert [len(rows) for rows in optimizer.base_optimizer.param_groups[0]["params"]] == [3, 3]


BUCKETS = {"bucket_cap_mb_all_gather": 1, "bucket_cap_mb_reduce_scatter": 1}


def differing(rank: int, everyone: range) -> None:
    with pytest.raises(CollectiveError) as error:
        xm.all_reduce("sum", torch.ones(2 + rank, device="xla"))
    assert error.value.details["calls"] == {r: f"all_reduce(sum) of float32[{2 + r}]" for r in everyone}
    with pytest.raises(CollectiveError) as error:
        xm.all_gather(values(rank, 2)) if rank else xm.all_reduce("sum", values(rank, 2))
    assert error.value.details["calls"] == {0: "all_reduce(sum) of float32[2]", 1: "all_gather(dim=0) of float32[2]"}
    graphs.sync()
    with pytest.raises(CollectiveError) as error:
        x = torch.ones(3, device="xla") + 2
        xm.all_reduce("sum", x.tanh() if rank == 0 else x.sigmoid()[:2])
    (differing,) = error.value.details["differing"]
    assert differing.endswith("aten::tanh [3] on rank 0, aten::sigmoid [3] on rank 1")
    with pytest.raises(CollectiveError):
        rendezvous.rendezvous(f"meeting {rank}")
    same(xm.all_reduce("max", torch.tensor(rank, device="xla")), torch.tensor(1))


def torch_groups(rank: int, everyone: range) -> None:
    dist.init_process_group("xla", init_method="xla://")
    assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("xla", rank, 2)
    mesh = [[0], [1]]
    # Only members call it, in torch_xla's way and with one name for each group.
    mine = dist.new_group([rank], pg_options={"xla_pg_options": {"mesh": mesh}})
    both = dist.new_group(range(2), pg_options={"xla_pg_options": {"mesh": [[0, 1]]}})
    assert isinstance(dist.group.WORLD, process_groups.ProcessGroupXla) and isinstance(mine, dist.ProcessGroup)
    assert (mine._mesh, both._mesh) == (mesh, [[0, 1]])
    assert (dist.new_group([1 - rank]), mine.size()) == (None, 1)
    with pytest.raises(ConfigError):
        process_groups._mesh_for([0, 1], [0, 1, 2, 3], {"mesh": [[0, 2], [1, 3]]})
    total = values(0, 3).cpu() + values(1, 3).cpu()
    for group in (None, both):
        own = values(rank, 3)
        dist.all_reduce(own, group=group)
        same(own, total)
    alone = values(rank, 3)
    dist.all_reduce(alone, group=mine)
    same(alone, values(rank, 3))
    whole, part = torch.zeros(6, device="xla"), torch.zeros(1, device="xla")
    dist.all_gather_single(whole, values(rank, 3))
    same(whole, torch.cat([values(0, 3).cpu(), values(1, 3).cpu()]))
    dist.reduce_scatter_single(part, torch.ones(2, device="xla"))
    same(part, torch.tensor([2.0]))
    dist.broadcast(own := values(rank, 3), src=1)
    same(own, values(1, 3))
    dist.barrier()
    with pytest.raises(RuntimeError, match="mismatch"):
        dist.all_reduce(torch.ones(2 + rank, device="xla"))
    same(xm.all_reduce("sum", values(rank, 3), groups=both._mesh), total)


def data_parallel(rank: int, everyone: range) -> None:
    whole = torch.cat([values(other, 4, 6).cpu() for other in everyone]) / 8
    reference, model = make_model("cpu"), DistributedDataParallel(make_model("xla"), gradient_as_bucket_view=True)
    reference(whole).square().mean().backward()
    model(values(rank, 4, 6) / 8).square().mean().backward()
    found = [parameter.grad.cpu() for parameter in model.parameters()]
    torch.testing.assert_close(found, [parameter.grad for parameter in reference.parameters()])


def ending(rank: int, everyone: range) -> None:
    """The last case: rank 1 ends, and rank 0 does not wait for it, in a group that exists and in a new one."""
    if rank == 0:
        for groups in (None, [[1, 0]]):
            with pytest.raises(CollectiveError) as error:
                xm.all_reduce("sum", torch.ones(2, device="xla"), groups=groups)
            assert error.value.details["ranks"] == [1]


def run(case: Callable[[int, range], Any]) -> str:
    try:
        case(global_ordinal(), range(world_size()))
    except Exception:  # the other rank may wait in a collective, so this one goes on
        return traceback.format_exc()
    return "ok"


def main(folder: str, *cases: str) -> None:
    device.enable()
    process_groups.register()
    torch.set_num_threads(1)
    results = {name: run(globals()[name]) for name in cases}
    Path(folder, f"{global_ordinal()}.json").write_text(json.dumps(results))


def arguments() -> Sequence[str]:
    return sys.argv[1:]


if __name__ == "__main__":
    main(*arguments())
