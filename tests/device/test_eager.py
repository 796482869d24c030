"""Adaptive Eager Execution: the numbers and the order of plain eager, with operators waiting in a queue."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from optimum_neuron.base import env
from tests.device.conftest import host_threads
from tests.waiting import in_threads

CASES = {
    "pointwise": lambda x: ((x * 2 + 1).exp() / 3 - x).tanh().relu(),
    "in place": lambda x: x.clone().mul_(2).add_(x).clamp_(-1, 1).sigmoid_(),
    "broadcast": lambda x: x[:1] * x + x[:, :1],
    "views": lambda x: (x.t() + 1)[2:].reshape(-1).view(-1, 2).transpose(0, 1) * 2,
    "writes to views": lambda x: x.clone().index_fill_(0, torch.tensor([1], device=x.device), 3.0).t()[1].mul_(2),
    "products": lambda x: torch.addmm(x[0], x @ x.t(), x).softmax(-1),
    "reductions": lambda x: x.sum(0) + x.mean(1) + x.amax(),
    "dtypes": lambda x: (x.bfloat16() * 3).float() + x.int() + x.bool(),
    "lists": lambda x: torch.cat([x, x * 2]).topk(2).values,
    "scatter": lambda x: torch.zeros_like(x).scatter_add(0, (x > 0).long(), x),
    "out": lambda x: torch.add(x * 2, 1, out=torch.empty(0, device=x.device)) * 2,
    "normalized": lambda x: nn.functional.layer_norm(x * 2, (8,)) + nn.functional.gelu(x),
    "filled": lambda x: torch.full_like(x, 2.0).zero_() + torch.ones_like(x) * x,
    "empty": lambda x: (x[:0] * 2).sum(0) + 1,
    "numbers": lambda x: x * x.sum() + 2**0.5 - x.new_tensor(3),
    "slices": lambda x: x[::2].clone().fill_(3) + torch.zeros_like(x)[:, 1:3].copy_(x[:, 5:7]).sum() + x[1::2],
    "strides": lambda x: x.view(2, 4, 2, 4).contiguous(memory_format=torch.channels_last) * 2,
}
on = torch.neuron.adaptive_eager


@pytest.fixture(autouse=True)
def fresh():
    torch.neuron.reset_eager_statistics()
    yield
    torch.neuron.synchronize()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_results_match_plain_eager(name, threads):
    torch.manual_seed(0)
    x = torch.randn(8, 8).to("neuron")
    with host_threads(threads):
        expected = CASES[name](x)
        with on(True):
            actual = CASES[name](x)
    assert torch.equal(actual, expected) and actual.stride() == expected.stride() and actual.dtype is expected.dtype
    assert torch.neuron.eager_statistics().num_operators > 0


def test_large_tensors_use_callers_chunks():
    x = torch.randn(100_003, device="neuron")
    for threads in (2, 1):
        with host_threads(threads):
            expected = (x.exp() * 1.7).sigmoid()
            with on(True):
                assert torch.equal((x.exp() * 1.7).sigmoid(), expected)


def test_training_step_is_bitwise_plain_eager():
    def trained(enabled):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LayerNorm(16), nn.Dropout(0.5), nn.Linear(16, 4))
        model.to("neuron")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
        with on(enabled):
            results = []
            for _ in range(3):
                optimizer.zero_grad()
                with torch.autocast("neuron"):
                    loss = model(torch.randn(5, 8, device="neuron")).float().pow(2).mean()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                results.append(loss.item())
        return results, [parameter.detach().cpu() for parameter in model.parameters()]

    (actual, weights), (reference, expected) = trained(True), trained(False)
    assert actual == reference and all(torch.equal(a, b) for a, b in zip(weights, expected, strict=True))
    assert torch.neuron.eager_statistics().num_fused > 0


def test_batches_end_at_synchronizing_calls():
    x = torch.ones(4, 4, device="neuron")
    with on(True):
        y = (x * 2 + 1).t().sigmoid() @ x  # a view does not end a run, a product does
        (y - 1).neg_()
        statistics = torch.neuron.eager_statistics()
    assert statistics.runs == {("mul", "add", "sigmoid"): 1, ("mm",): 1, ("sub", "neg"): 1}
    assert (statistics.num_runs, statistics.num_operators, statistics.num_fused) == (3, 6, 5)
    assert str(statistics).splitlines()[:3] == ["6 operators in 3 runs, 5 of them fused", "runs", "      1  mm"]
    torch.neuron.reset_eager_statistics()
    with on(True):
        for _ in range(70):
            x.add_(1)
    assert sorted(len(run) for run in torch.neuron.eager_statistics().runs) == [6, 64]
    assert "      1  add x64" in str(torch.neuron.eager_statistics())
    assert x[0, 0].item() == 71


FLUSHES = {
    "item": lambda y: y[0].item(),
    "copy": lambda y: y.cpu(),
    "synchronize": lambda y: torch.neuron.synchronize(),
    "event": lambda y: torch.neuron.Event().record(),
    "storage": lambda y: y.untyped_storage().resize_(64),
    "compiled graph": lambda y: torch.ops.neuron_sim.alias_cpu(y),
    "aten::nonzero": lambda y: y.nonzero(),
    "aten::equal": lambda y: torch.equal(y, y),
    "aten::add": lambda y: torch.add(y, 1, out=torch.empty(4, device="neuron")),
    "aten::resize_": lambda y: y.resize_(2),
}


@pytest.mark.parametrize("reason", FLUSHES)
def test_synchronizing_reads_wait(reason):
    x = torch.arange(4.0, device="neuron")
    with on(True):
        y = x * 2
        FLUSHES[reason](y)
        assert torch.neuron.eager_statistics().flushes == {reason: 1}
    with on(True):
        FLUSHES["synchronize"](y)
    assert torch.neuron.eager_statistics().flushes == {reason: 1}  # nothing waited


def test_other_ways_to_wait():
    x = torch.arange(4.0, device="neuron")
    with on(True):
        (x * 2).tolist()
        stream = torch.neuron.current_stream()
        for wait in (torch.accelerator.synchronize, stream.synchronize, lambda: str(x + 1), lambda: bool(x[0] * 1)):
            x.mul_(1)
            wait()
            assert stream.query()
        host = torch.zeros(4)
        host.copy_(x * 3)
    assert host.tolist() == [0, 3, 6, 9]


def test_each_core_has_its_queue():
    with on(True):
        x = torch.ones(4, device="neuron:1") * 2
        torch.neuron.synchronize("neuron:0")
        assert x.to("neuron:0").tolist() == [2, 2, 2, 2]
        assert torch.neuron.eager_statistics(1).flushes == {"copy": 1}
    torch.neuron.reset_eager_statistics(1)


def test_shape_errors_are_immediate():
    x, y = torch.ones(2, 3, device="neuron"), torch.ones(4, device="neuron")
    with on(True):
        for wrong, match in (
            (lambda: x + y, "must match.*aten::add"),
            (lambda: x @ x, "cannot be multiplied.*aten::mm"),
            (lambda: y.mul_(x), "must match the size.*aten::mul_"),
            (lambda: y.copy_(x), "must match|expanded size"),
            (lambda: x + torch.ones(3), "same device"),
            (lambda: y[:1].expand(4).copy_(y), "more than one element"),
        ):
            with pytest.raises(RuntimeError, match=f"(?s){match}"):
                wrong()


@pytest.mark.parametrize("ask", [lambda y: y.item(), lambda y: torch.neuron.synchronize(), lambda y: y.nonzero()])
def test_kernel_errors_come_at_next_synchronization(ask):
    one = torch.tensor(1, device="neuron")
    with on(True):
        failed = one.remainder(one - 1)
        good = one + 41
        with pytest.raises(
            RuntimeError, match="(?s)ZeroDivisionError.*aten::remainder on neuron, which had been queued"
        ):
            ask(failed)
        torch.neuron.synchronize()  # an error is raised once
        assert good.item() == 42


def test_leaving_block_raises_pending_error():
    one = torch.tensor(1, device="neuron")
    with pytest.raises(RuntimeError, match="aten::remainder"), on(True):
        one.remainder(one - 1)
    assert (one + 1).item() == 2


@pytest.mark.parametrize("mode", ["deterministic", "warn", "debug", "emulated", "off"])
def test_disabled_mode_queues_nothing(mode):
    from optimum_neuron.device import numerics

    x = torch.ones(4, device="neuron")
    with on(True):
        x = x + 1  # waits, and is the only one that does
        try:
            if mode == "debug":
                torch.set_deterministic_debug_mode("warn")
            elif mode in ("deterministic", "warn"):
                torch.use_deterministic_algorithms(True, warn_only=mode == "warn")
            if mode == "emulated":
                with numerics.use("emulated"):
                    y = x * 2
            else:
                with on(mode != "off"):
                    y = x * 2
            assert torch.neuron.eager_statistics().runs == {("add",): 1}
        finally:
            torch.use_deterministic_algorithms(False)
    assert y.tolist() == [4, 4, 4, 4]


def test_threads_share_queue():
    results = {}

    def work(number):
        x = torch.full((50,), float(number), device="neuron")
        for _ in range(100):
            x = x * 1.5 - x * 0.5
        results[number] = x.sum().item()

    with on(True):
        in_threads(*(functools.partial(work, number) for number in range(4)))
    assert results == {number: 50.0 * number for number in range(4)}


def test_freed_and_resized_memory_lives_until_use():
    with on(True):
        total = torch.zeros(1000, device="neuron")
        for number in range(200):
            part = torch.full((1000,), float(number), device="neuron")
            total += part
            del part
        kept = total * 1
        total.untyped_storage().resize_(0)
    assert kept[0].item() == 199 * 100


def test_callers_settings_apply():
    tiny = torch.full((64,), 2.0**-140, device="neuron")
    flushes = torch.set_flush_denormal(True)
    try:
        with on(True):
            flushed = tiny * 1.0
            torch.neuron.synchronize()
    finally:
        torch.set_flush_denormal(False)
    with on(True):
        kept = tiny * 1.0
    assert kept[0].item() == 2.0**-140 and (flushed[0].item() == 0) == flushes


def test_compiled_function_sees_queued_results():
    torch._dynamo.reset()
    double = torch.compile(lambda x: x * 2, backend="neuron")
    x = torch.ones(4, device="neuron")
    with on(True):
        assert (double(x + 1) + 1).tolist() == [5, 5, 5, 5]
        assert double(x * 3).tolist() == [6, 6, 6, 6]
    torch._dynamo.reset()


def test_environment_enables_it_and_collective_waits(python):
    program = """
import torch
import torch.distributed as dist
x = torch.ones(3, device="neuron")
y = x * 2 + 1
print(torch.neuron.eager_statistics().num_fused, y.tolist())
torch.neuron.reset_eager_statistics()
dist.init_process_group("neuron", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3, device="neuron") * 2
dist.all_reduce(x)
print(dict(torch.neuron.eager_statistics().flushes), (x + 1).tolist())
dist.destroy_process_group()
"""
    result = python(program, OPTIMUM_NEURON_ADAPTIVE_EAGER="1").stdout.splitlines()
    assert result == ["3 [3.0, 3.0, 3.0]", "{'collective': 1} [3.0, 3.0, 3.0]"]
    assert python(program).stdout.splitlines() == ["0 [3.0, 3.0, 3.0]", "{} [3.0, 3.0, 3.0]"]
    assert "OPTIMUM_NEURON_ADAPTIVE_EAGER" in python(program, OPTIMUM_NEURON_ADAPTIVE_EAGER="maybe").stderr
    assert env.adaptive_eager({"OPTIMUM_NEURON_ADAPTIVE_EAGER": "on"}) and not env.adaptive_eager({})


def test_fork_with_work_queued(python):
    program = """
import os, torch
x = torch.ones(3, device="neuron")
for _ in range(20):
    for _ in range(50):
        x = x * 1.0 + 0.0
    child = os.fork()
    if child == 0:
        x.mul_(2)  # no queue: its thread is in the parent
        os._exit(7 if torch.ops.neuron_sim.alias_cpu(x).tolist() == [2, 2, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print((x + 1).tolist())
"""
    result = python(program, OPTIMUM_NEURON_ADAPTIVE_EAGER="1")
    assert result.stdout == "[2.0, 2.0, 2.0]\n", result


def test_end_of_interpreter_with_work_queued(python):
    program = """
import torch
x = torch.ones(1000, 1000, device="neuron")
for _ in range(200):
    x = x * 1.0 + 1.0
print("end")
"""
    result = python(program, OPTIMUM_NEURON_ADAPTIVE_EAGER="1")
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")
    program += "one = torch.tensor(1, device='neuron')\none.remainder(one - 1)\n"
    result = python(program, OPTIMUM_NEURON_ADAPTIVE_EAGER="1")
    assert result.stdout == "end\n" and "ZeroDivisionError" in result.stderr and "aten::remainder" in result.stderr


def test_python_kernels_run_while_main_thread_waits(python):
    program = """
import faulthandler, os, warnings
import torch
faulthandler.dump_traceback_later(60, exit=True)
warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
library.impl("silu.out", lambda x, *, out: out.fill_(42.0), "CPU")
x = torch.ones(4, device="neuron")

def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

for wait in (torch.neuron.synchronize, lambda: torch.neuron.Event().record(), lambda: y[0].item(),
             lambda: x.untyped_storage().resize_(16), torch.neuron.eager_statistics, fork):
    for _ in range(20):
        y = torch.nn.functional.silu(x)
    wait()
print(y.tolist())
"""
    result = python(program, OPTIMUM_NEURON_ADAPTIVE_EAGER="1")
    assert result.stdout == "[42.0, 42.0, 42.0, 42.0]\n", result
