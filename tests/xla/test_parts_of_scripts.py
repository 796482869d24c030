"""What scripts use besides the device: closures, nested data, loaders, checkpoints, seeds, optimizers, and profiles."""

from __future__ import annotations

import copy
import json
import socket
import threading
from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.errors import ArtifactError, ConfigError
from optimum_neuron.xla import (
    closures,
    collective_functions,
    compiling,
    loops,
    metrics,
    mixed,
    nested,
    parallel_loader,
    profiler,
    random_state,
    selection,
    serialization,
    sync,
    syncfree,
    training_log,
    utilities,
)


def test_closures_run_after_the_step_in_order():
    seen: list[object] = []
    closures.add_step_closure(seen.append, (1,))
    closures.add_step_closure(lambda: seen.append(2))
    assert seen == []
    sync()
    sync()
    assert seen == [1, 2]


def test_closures_in_a_thread_do_not_hold_the_step_and_report_their_error_in_the_next():
    go_on, ended = threading.Event(), threading.Event()

    def fail() -> None:
        go_on.wait(10)
        ended.set()
        raise ValueError("of a closure")

    closures.add_step_closure(fail, run_async=True)
    sync()
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(10)
    closures._executor().submit(lambda: None).result(10)  # the failed one is finished now
    closures.add_step_closure(lambda: None, run_async=True)
    with pytest.raises(RuntimeError) as excinfo:
        sync()
    assert isinstance(excinfo.value.__cause__, ValueError)
    sync()


class Batch:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.kind = tensor, "batch"


def test_tensors_inside_data_move_and_shared_ones_stay_shared():
    tensor = torch.ones(2)
    data = {"a": [tensor, 1], "b": (tensor, "x"), "c": Batch(tensor), "d": None}
    moved = nested.send_cpu_data_to_device(data, "xla")
    assert moved["a"][0].is_xla and moved["a"][0] is moved["b"][0] is moved["c"].tensor
    assert (moved["a"][1], moved["b"][1], moved["c"].kind, moved["d"]) == (1, "x", "batch", None)
    assert data["c"].tensor is tensor
    assert nested.to_cpu(moved)["c"].tensor.device.type == "cpu" and nested.to_cpu(moved, convert=False)["a"][0].is_xla
    with pytest.raises(RuntimeError):
        nested.check_view_sharing([tensor, tensor[:1]])
    nested.check_view_sharing([tensor, tensor, tensor.clone()])


@pytest.mark.parametrize(("per_graph", "num_steps"), [(1, 5), (2, 3)])
def test_loader_ends_a_graph_before_batches_and_after_the_last(per_graph, num_steps):
    metrics.clear_all()
    loader = parallel_loader.MpDeviceLoader(
        [torch.full((2,), float(number)) for number in range(4)], "xla", batches_per_execution=per_graph
    )
    for _ in range(2):  # epochs
        assert [batch.tolist()[0] for batch in loader] == [0.0, 1.0, 2.0, 3.0]
    assert len(loader) == 4 and metrics.counter_value("MarkStep") == 2 * num_steps


def test_loader_raises_what_reading_raises_and_stops_when_it_is_left():
    num_read = 0

    def batches():
        nonlocal num_read
        for number in range(1000):
            num_read += 1
            if number == 2:
                raise OSError("unreadable")
            yield torch.tensor(number)

    seen = []
    with pytest.raises(OSError, match="unreadable"):
        for batch in parallel_loader.ParallelLoader(batches(), ["xla"]).per_device_loader("xla"):
            seen.append(int(batch))
    assert seen == [0, 1]
    endless = parallel_loader.MpDeviceLoader(utilities.SampleGenerator(torch.ones(1), 10**6), "xla")
    assert next(iter(endless)).is_xla
    before = threading.active_count()
    endless.close()
    assert threading.active_count() <= before
    with pytest.raises(ConfigError) as excinfo:
        parallel_loader.ParallelLoader([], ["xla"], loader_prefetch_size=0)
    assert excinfo.value.details == {"argument": "loader_prefetch_size", "value": 0}


def test_checkpoints_have_tensors_of_the_cpu(tmp_path):
    data = {"weights": [torch.ones(2, device="xla"), torch.zeros(1)], "epoch": 3}
    serialization.save(data, tmp_path / "whole.pt")
    loaded = torch.load(tmp_path / "whole.pt")
    assert loaded["epoch"] == 3 and [tensor.tolist() for tensor in loaded["weights"]] == [[1.0, 1.0], [0.0]]
    assert {tensor.device.type for tensor in loaded["weights"]} == {"cpu"}
    torch.save({"object": Batch(torch.ones(1))}, tmp_path / "object.pt")
    with pytest.raises(ArtifactError) as excinfo:
        serialization.load_tensors(tmp_path / "object.pt")
    assert excinfo.value.details == {"path": str(tmp_path / "object.pt")}


def test_random_state_is_one_integer():
    random_state.set_rng_state(7)
    assert random_state.get_rng_state() == 7
    first = torch.rand(3, device="xla")
    state = random_state.get_rng_state()
    assert state == random_state.get_rng_state() < 2**63
    second = torch.rand(3, device="xla")
    with random_state.fork_rng():
        torch.rand(1, device="xla")
    third = torch.rand(3, device="xla")
    random_state.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="xla"), second) and torch.equal(torch.rand(3, device="xla"), third)
    random_state.manual_seed(7)
    assert torch.equal(torch.rand(3, device="xla"), first) and not torch.equal(first, second)


@pytest.mark.parametrize("kind", [syncfree.SGD, syncfree.Adam, syncfree.AdamW])
def test_optimizer_skips_steps_by_a_flag_on_the_device(kind):
    options = {"momentum": 0.9} if kind is syncfree.SGD else {}
    parameter = torch.nn.Parameter(torch.ones(3, device="xla"))
    optimizer = kind([parameter], lr=0.1, **options)
    reference = torch.nn.Parameter(torch.ones(3))
    stepper = kind.__mro__[2]([reference], lr=0.1, **options)
    for found in (1.0, 0.0, 1.0, 0.0):
        gradient = torch.tensor([1.0, -2.0, float("nan") if found else 0.5])
        parameter.grad, reference.grad = gradient.to("xla"), gradient
        optimizer.step(found_inf=torch.tensor(found, device="xla"))
        if not found:
            stepper.step()
    torch.testing.assert_close(parameter.detach().cpu(), reference.detach())
    with pytest.raises(ValueError, match="scalar"):
        optimizer.step(found_inf=torch.zeros(1, device="xla"))


def test_autocast_is_in_bfloat16_and_warns_of_other_dtypes():
    x = torch.ones(2, 2, device="xla")
    with mixed.autocast(torch.device("xla")):
        assert (x @ x).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="float16"), mixed.autocast("xla:0", dtype=torch.float16):
        assert (x @ x).dtype == torch.float32
    with pytest.raises(ConfigError):
        mixed.autocast("cpu")


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_function_draws_the_same_numbers_again(use_reentrant):
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).to("xla")
    x = torch.ones(4, 8, device="xla", requires_grad=True)
    random_state.manual_seed(3)
    layer(x).sum().backward()
    expected, x.grad = x.grad, None
    random_state.manual_seed(3)
    mixed.checkpoint(layer, x, use_reentrant=use_reentrant).sum().backward()
    assert torch.equal(x.grad.cpu(), expected.cpu())


def test_compile_is_a_decorator_a_wrapper_and_a_context():
    @compiling.compile(name="named")
    def double(x: torch.Tensor) -> torch.Tensor:
        """Doubles."""
        return x * 2

    x = torch.ones(2, device="xla")
    metrics.clear_all()
    assert double(x).tolist() == [2.0, 2.0] and double.__doc__ == "Doubles."
    assert compiling.compile(torch.nn.ReLU())(x).tolist() == [1.0, 1.0]
    with compiling.step():
        x += 1
    assert metrics.counter_value("MarkStep") == 6
    with pytest.warns(UserWarning, match="xla_flag"):
        compiling.compile(custom_compile_options={"xla_flag": True})


def test_profile_of_another_thread_has_its_scopes(tmp_path):
    server = profiler.start_server(0)
    assert server is not None
    begun, stop = threading.Event(), threading.Event()

    def train() -> None:
        while not stop.is_set():
            with profiler.StepTrace("step_of_test", step_num=1), profiler.Trace("forward_of_test"):
                torch.ones(2, device="xla").sum()
            begun.set()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        assert begun.wait(60)
        profiler.trace(f"localhost:{server.port}", str(tmp_path), duration_ms=300)  # a busy machine takes its time
    finally:
        stop.set()
        thread.join()
    (path,) = tmp_path.glob("*.pt.trace.json")
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert {"step_of_test", "forward_of_test"} <= names
    with pytest.raises(RuntimeError):
        profiler.stop_trace()


def test_profiler_servers_may_share_a_port_which_another_program_may_not():
    server = profiler.start_server(0)
    again = profiler.start_server(server.port)  # as where a cell of a notebook runs twice
    assert again.port == server.port
    with socket.create_server(("", 0)) as other, pytest.raises(RuntimeError, match=str(other.getsockname()[1])):
        profiler.start_server(other.getsockname()[1])


def test_callback_for_snapshots_replaces_the_one_before():
    """As AWS's guide to debugging shows; its BERT script registers one in each run."""
    import libneuronxla

    before = libneuronxla.register_hlo_snapshot_callback(lambda name, addressable_device_index, execution_count: "")
    assert before("graph", 0, 1) == "inputs", "libneuronxla's own"
    assert libneuronxla.register_hlo_snapshot_callback(before)("graph", 0, 1) == ""


def test_step_trace_ends_the_step_for_its_loader():
    metrics.clear_all()
    profiler.set_marked_step(False)
    for batch in parallel_loader.MpDeviceLoader([torch.ones(1)] * 3, "xla"):
        with profiler.StepTrace("step"):
            batch + 1
    assert metrics.counter_value("MarkStep") == 1 + 3 + 1


def test_devices_have_names_kinds_and_memory():
    assert selection.device() == torch.device("xla:0") == selection.devices()[0]
    assert selection.real_devices(["xla:0"]) == ["NEURON:0"] and selection.device_hardware("xla:0") == "NEURON"
    assert selection.device_kind().startswith("NC_v")
    x = torch.ones(1024, device="xla")
    assert selection.memory_info()["bytes_used"] >= x.nbytes
    with pytest.raises(IndexError):
        selection.device(99)
    with pytest.raises(RuntimeError, match="cpu"):
        selection.device_hardware("cpu")


def test_collectives_with_gradients_and_batch_norm_of_one_process_are_those_of_torch():
    x = torch.randn(4, 3, 5)
    on_device = x.to("xla").requires_grad_()
    ours, theirs = collective_functions.SyncBatchNorm(3).to("xla"), torch.nn.BatchNorm1d(3)
    torch.testing.assert_close(ours(on_device).cpu(), theirs(x))
    torch.testing.assert_close(ours.running_mean.cpu(), theirs.running_mean)
    collective_functions.all_gather(collective_functions.all_reduce("sum", on_device)).sum().backward()
    assert torch.equal(on_device.grad.cpu(), torch.ones_like(x))


def test_layers_and_parts_of_a_batch_in_loops_are_those_of_the_cpu():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    data, reference = torch.randn(2, 5, 4), copy.deepcopy(layers)
    layers.to("xla")

    def step(part: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return loops.scan_layers(layers, part).square().mean(), count + 1

    count = torch.zeros((), device="xla")
    loss, count = loops.gradient_accumulation(step, (data.to("xla"),), layers, count)
    expected = torch.nn.Sequential(*reference)(data).square().mean()  # parts of one size: the mean of all
    expected.backward()
    assert count.item() == 2
    torch.testing.assert_close(loss.cpu(), expected.detach())
    for ours, theirs in zip(layers.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
    carry, sums = loops.scan(
        lambda total, x: (total + x["a"],) * 2, torch.zeros(4, device="xla"), {"a": data[0].to("xla")}
    )
    torch.testing.assert_close(sums.cpu(), data[0].cumsum(0))
    assert torch.equal(carry.cpu(), sums[-1].cpu())
    with pytest.raises(ConfigError) as excinfo:
        loops.gradient_accumulation(step, (data, data[:1]), layers)
    assert excinfo.value.details == {"lengths": [1, 2]}


def test_fused_optimizer_has_the_bits_of_the_cpu():
    found = []
    for device in ("xla", "cpu"):
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 8).to(device))
        optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            parameter.pow(3).sum().backward()
            optimizer.step()
        found.append(parameter.detach().cpu())
    assert torch.equal(*found)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2)])
def test_losses_of_classes_take_their_numbers_in_any_dtype(shape):
    torch.manual_seed(0)
    scores, classes = torch.randn(shape), torch.randint(0, 4, (shape[0], *shape[2:]))
    ours, theirs = scores.to("xla").requires_grad_(), scores.clone().requires_grad_()
    loss = torch.nn.functional.nll_loss(ours, classes.to("xla", torch.float32))
    expected = torch.nn.functional.nll_loss(theirs, classes)
    loss.backward()
    expected.backward()
    assert torch.equal(loss.detach().cpu(), expected.detach()) and torch.equal(ours.grad.cpu(), theirs.grad)


def test_progress_goes_to_tensorboard_with_counters_and_metrics(capsys):
    metrics.clear_all()
    metrics.increment_counter("aten::nonzero", 3)
    metrics.add_sample("Waited", 1.5e9, "time")
    written: dict[str, float] = {}
    writer = SimpleNamespace(add_scalar=lambda name, value, step: written.update({name: value}))
    training_log.print_training_update("xla:0", 7, 0.25, 10.0, 9.0, epoch=1, summary_writer=writer)
    training_log.write_to_summary(writer, 7, {"loss": 0.25}, write_xla_metrics=True)
    assert written["examples/sec"] == 10.0 and written["loss"] == 0.25
    assert written["aten_ops_sum"] == written["aten::nonzero"] == 3
    assert written["Waited__TotalSamples"] == 1 and written["Waited__Accumulator"] == 1.5e9
    assert "Device=xla:0/0 Epoch=1 Step=7 Loss=0.25000" in capsys.readouterr().out


def test_rates_and_environment_of_scripts(monkeypatch):
    tracker = utilities.RateTracker(smooth_factor=0.0)
    tracker.add(10)
    assert tracker.rate() > 0 and tracker.global_rate() > 0
    monkeypatch.setenv("A_SCRIPTS_VARIABLE", "2")
    assert utilities.getenv_as("A_SCRIPTS_VARIABLE", int) == 2 and utilities.getenv_as("A_SCRIPTS_VARIABLE", bool)
    assert utilities.check_env_flag("A_SCRIPTS_VARIABLE") and not utilities.check_env_flag("NO_SUCH_VARIABLE")
    assert len(set(utilities.get_free_tcp_ports(3))) == 3
    assert utilities.parallel_work(2, pow, [2, 3], [3, 2]) == [8, 9]
