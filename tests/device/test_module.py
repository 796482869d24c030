"""`torch.neuron` and `torch.accelerator`."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError
from tests.raising import raises
from tests.waiting import in_threads


def test_every_listed_name_exists():
    for name in torch.neuron.__all__:
        assert getattr(torch.neuron, name) is not None
    assert set(torch.neuron.__all__) <= set(dir(torch.neuron))
    with pytest.raises(AttributeError, match="no_such_name"):
        torch.neuron.no_such_name  # noqa: B018


@pytest.mark.parametrize(
    ("instance", "count", "name", "core"),
    [
        ("inf2.xlarge", 2, "inf2", "NeuronCore-v2"),
        ("trn1.32xlarge", 32, "trn1", "NeuronCore-v2"),
        ("trn1n.32xlarge", 32, "trn1n", "NeuronCore-v2"),
        ("trn2.48xlarge", 64, "trn2", "NeuronCore-v3"),
    ],
)
def test_properties_match_simulated_instance(monkeypatch, instance, count, name, core):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", instance)
    properties = torch.neuron.get_device_properties(0)
    assert (torch.neuron.device_count(), properties.name, properties.neuron_core) == (count, name, core)
    assert properties.instance == instance and properties.total_memory > 2**33
    assert torch.neuron.get_device_name(0) == f"neuron: {core} (simulated)"
    assert torch.neuron.get_device_capability() == (properties.major, 0)


def test_environment_sets_device_count(monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "1")
    assert torch.neuron.device_count() == 1
    monkeypatch.delenv("NEURON_RT_VISIBLE_CORES")
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    assert torch.neuron.device_count() == 2
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "9")
    with raises(ConfigError, count=9):
        torch.neuron.device_count()
    assert not torch.neuron.is_available()


def test_missing_device_is_error():
    for use in (
        lambda: torch.neuron.set_device(2),
        lambda: torch.neuron.get_device_properties(2),
        lambda: torch.neuron.memory_allocated(2),
        lambda: torch.neuron.get_rng_state(2),
    ):
        with raises(ConfigError, device=2, count=2):
            use()
    for use in (lambda: torch.zeros(1, device="neuron:2"), lambda: torch.accelerator.set_device_index(2)):
        with pytest.raises(RuntimeError, match="invalid device ordinal.*neuron:0 to neuron:1"):  # torch's C++ asks
            use()
    with pytest.raises(ValueError, match="Expected a neuron device"):
        torch.neuron.set_device("cpu")


def test_current_device():
    torch.accelerator.set_device_index(1)
    assert torch.neuron.current_device() == 1 and torch.empty(1, device="neuron").device.index == 1
    with torch.neuron.device(0), torch.neuron.device(None):
        assert torch.neuron.current_device() == torch.accelerator.current_device_index() == 0
    with torch.neuron.device_of(torch.ones(1, device="neuron:0")):
        assert torch.neuron.current_device() == 0
    with torch.neuron.device_of(torch.ones(1)):
        assert torch.neuron.current_device() == 1


FAKE_TENSORS = """
import os, torch
from torch._subclasses.fake_tensor import FakeTensorMode
assert torch.neuron.is_initialized() == ("LOCAL_RANK" in os.environ)
if "LOCAL_RANK" not in os.environ:
    torch.{select}(1)
assert torch.neuron.is_initialized()
with FakeTensorMode():
    assert torch.empty(1, device="neuron").device.index == 1
"""


@pytest.mark.parametrize("select", ["neuron.set_device", "accelerator.set_device_index"])
def test_fake_tensors_are_on_the_chosen_device(python, select):
    """They are made before any real tensor in FSDP2 and DTensor, and torch caches their device."""
    result = python(FAKE_TENSORS.format(select=select))
    assert result.returncode == 0, result.stderr


def test_fake_tensors_are_on_the_device_of_the_local_rank(python):
    result = python(FAKE_TENSORS.format(select="neuron.set_device"), LOCAL_RANK="1")
    assert result.returncode == 0, result.stderr


def test_streams_and_events():
    stream, other = torch.neuron.Stream(), torch.neuron.Stream(device="neuron:1")
    start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    with torch.neuron.stream(stream):
        assert torch.neuron.current_stream() == stream
        torch.ones(3, device="neuron").record_stream(stream)
    assert torch.neuron.current_stream() == torch.neuron.default_stream() != stream
    end.record(stream)
    stream.wait_event(start)
    stream.wait_stream(torch.neuron.current_stream())
    for part in (stream, end, torch.neuron, torch.accelerator):
        part.synchronize()
    assert stream.query() and end.query() and start.elapsed_time(end) > 0
    assert other.device.index == 1 and isinstance(stream, torch.Stream)
    stream.record_event().synchronize()
    with torch.neuron.stream(None):
        pass


def test_seeds_and_states():
    torch.manual_seed(3)
    actual = torch.randn(40, device="neuron")
    torch.manual_seed(3)
    assert torch.equal(actual.cpu(), torch.randn(40))
    assert torch.neuron.initial_seed() == 3
    state = torch.neuron.get_rng_state()
    first = torch.rand(3, device="neuron")
    assert state.numel() == 16 and not torch.equal(first, torch.rand(3, device="neuron"))
    torch.neuron.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, device="neuron"))
    states = torch.neuron.get_rng_state_all()
    assert len(states) == 2
    torch.neuron.set_rng_state_all(states)
    with pytest.raises(RuntimeError, match="16 elements"):
        torch.neuron.set_rng_state(torch.get_rng_state())
    assert torch.neuron.seed_all() == torch.neuron.initial_seed()


def test_generators_and_forks():
    generator = torch.Generator(device="neuron").manual_seed(1)
    first = torch.randn(3, generator=generator, device="neuron")
    assert torch.equal(first, torch.randn(3, generator=generator.manual_seed(1), device="neuron"))
    state = torch.neuron.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="neuron"):
        torch.rand(3, device="neuron")
    assert torch.equal(state, torch.neuron.get_rng_state())


def test_device_never_draws_from_cpu():
    before = torch.get_rng_state()
    x = torch.ones(100, device="neuron")
    torch.rand(3, device="neuron")
    dropped = torch.nn.functional.dropout(x)
    torch.native_dropout(x, 0.5, True)
    torch.nn.functional.alpha_dropout(x, training=True)
    torch.randperm(5, device="neuron")
    torch.multinomial(x, 3)
    assert torch.equal(before, torch.get_rng_state())
    assert 10 < (dropped == 2).sum() < 90


def test_autocast_is_bfloat16_in_every_thread():
    x = torch.randn(4, 4, device="neuron")
    results = []

    def work():
        with torch.autocast("neuron"):
            results.append((x @ x).dtype)

    in_threads(work)
    work()
    assert results == [torch.bfloat16, torch.bfloat16]
    assert torch.neuron.is_bf16_supported() and torch.bfloat16 in torch.neuron.get_amp_supported_dtype()


@pytest.mark.filterwarnings("ignore:`torch.cuda.amp.autocast:FutureWarning")
@pytest.mark.skipif(torch.cuda.is_available(), reason="with CUDA, its autocast is its own")
def test_autocast_of_cuda_scripts_is_the_devices():
    mixed = torch.randn(4, 4, device="neuron"), torch.randn(4, 4, dtype=torch.bfloat16, device="neuron")
    for context in (torch.autocast("cuda"), torch.cuda.amp.autocast()):
        with context:
            assert (mixed[0] @ mixed[1]).dtype is torch.bfloat16
            assert torch.cat(mixed).dtype is torch.float32
    with torch.autocast("cuda", dtype=torch.float16):
        assert (mixed[0] @ mixed[0]).dtype is torch.float16
    with torch.autocast("cuda", enabled=False):
        assert (mixed[0] @ mixed[0]).dtype is torch.float32


def test_autocast_policies():
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)).to("neuron")
    x = torch.randn(3, 4, device="neuron")
    with torch.autocast("neuron", dtype=torch.float16):
        y = module(x)
        assert y.dtype is torch.float16
        assert torch.softmax(y, -1).dtype is torch.float32
        assert torch.cat([y, torch.softmax(y, -1)]).dtype is torch.float32
        loss = torch.nn.functional.cross_entropy(y, torch.zeros(3, dtype=torch.long, device="neuron"))
    loss.backward()
    assert module[0].weight.grad.dtype is torch.float32


def test_gradient_scaling():
    module = torch.nn.Linear(4, 2).to("neuron")
    optimizer, scaler = torch.optim.SGD(module.parameters(), 0.1), torch.amp.GradScaler("neuron", init_scale=8.0)
    for loss_scale in (1.0, float("inf")):
        optimizer.zero_grad()
        before = module.weight.detach().clone()
        with torch.autocast("neuron", torch.float16):
            loss = module(torch.randn(3, 4, device="neuron")).float().sum() * loss_scale
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, module.weight) == (loss_scale != 1.0)
