"""Eager mode, extracted graphs, flags and the cache of compiles, time of collectives, and tensors that are held."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from optimum_neuron import xla
from optimum_neuron.errors import ConfigError, UnsupportedOperatorError
from optimum_neuron.profiling import page, record, trace_events
from optimum_neuron.tools import top
from optimum_neuron.xla import collectives, compiled, compiling, graphs, metrics, process_groups, report
from tests.waiting import soon

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def eager_mode() -> Iterator[None]:
    with compiling.eager_mode_context(True):
        metrics.clear_all()
        yield


def test_operators_of_eager_mode_are_programs_of_their_own(eager_mode):
    data = torch.ones(4, 4).to("xla")
    for factor in (0.3, 0.7):  # numbers are data
        data.logsumexp(0) * factor
    assert metrics.metric_data("EagerOpCompileTime")[0] == 2 and metrics.metric_data("EagerOpExecuteTime")[0] == 4
    torch.tensor(1.0, device="xla")
    data[:2].logsumexp(0)
    assert metrics.metric_data("EagerOpCompileTime")[0] == 4 and metrics.metric_data("EagerOpExecuteTime")[0] == 6
    xla.sync()
    assert not {"CompileTime", "ExecuteTime"} & set(metrics.metric_names())


def test_compiled_functions_are_graphs_in_eager_mode(eager_mode):
    data = torch.ones(4).to("xla")
    compiling.compile(lambda x: x.cos().sin())(data)
    assert metrics.counter_value("UncachedCompile") == 1 and "EagerOpExecuteTime" not in metrics.metric_names()
    torch.sort(torch.ones(4).to("xla"))
    with pytest.raises(UnsupportedOperatorError) as caught:
        xla.sync()
    assert "test_modes.py:" in str(caught.value)


def test_results_of_extracted_graphs_are_zeros(monkeypatch):
    monkeypatch.setenv("NEURON_EXTRACT_GRAPHS_ONLY", "1")
    data = torch.ones(4).to("xla")
    result = data.exp()
    data.add_(result)
    view = data[1:]
    xla.sync()
    assert result.tolist() == data.tolist() == [0.0] * 4 and view.tolist() == [0.0] * 3
    assert (data + 1).tolist() == [0.0] * 4  # a value that is read is a result too
    assert metrics.counter_value("UncachedCompile") == 2 and metrics.counter_value("ExecuteComputation") is None
    assert "ExecuteTime" not in metrics.metric_names()
    monkeypatch.delenv("NEURON_EXTRACT_GRAPHS_ONLY")
    graphs.forget()
    again = torch.ones(4).to("xla").exp()
    xla.sync()
    assert again.tolist() == torch.ones(4).exp().tolist()


def test_steps_that_each_hold_more_tensors_are_told_once():
    data, kept = torch.ones(4).to("xla"), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(3 * report.HELD_STEPS):
            result = data * 2.0
            if number >= report.HELD_STEPS:
                kept.append(result)
            xla.sync()
    (warning,) = (one for one in caught if one.category is report.HeldTensorsWarning)
    assert f"{report.HELD_STEPS} in all" in str(warning.message)


@pytest.mark.parametrize("by_torch", [False, True])
def test_collectives_of_a_step_take_time_on_the_links(monkeypatch, by_torch):
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")
    process_groups.register()
    tensors = [torch.ones(1 << 18).to("xla"), torch.ones(1 << 18).to("xla")]
    if by_torch:
        dist.init_process_group("xla", store=dist.HashStore(), rank=0, world_size=1)
        try:
            dist.all_reduce(tensors[0])
        finally:
            dist.destroy_process_group()
    else:
        collectives.all_reduce("sum", tensors)
    xla.sync()
    (compiled,) = graphs._loaded.values()
    total = compiled.work.total
    assert (total.num_collectives, total.collective_bytes) == (1, tensors[0].nbytes * (1 if by_torch else 2))


@pytest.mark.parametrize(
    ("flags", "num_modules"), [("", 1), ("--auto-cast all", 2), ("-O1", 2), ("--target trn2", 2), ("--no_cache", 1)]
)
def test_compiler_flags_decide_the_entry_of_the_cache(monkeypatch, tmp_path, flags, num_modules):
    data = torch.ones(4).to("xla")
    for words in ("", flags):
        monkeypatch.setenv("NEURON_CC_FLAGS", words)
        result = data.exp()
        xla.sync()
        graphs.forget()
        del result
    assert len(list((tmp_path / "cache").rglob("model.neff"))) == num_modules


def test_cache_of_flags_and_of_the_runtime(monkeypatch, tmp_path):
    data = torch.ones(4).to("xla")
    monkeypatch.setenv("NEURON_CC_FLAGS", f"--cache_dir={tmp_path / 'of_flags'}")
    result = data.exp()
    xla.sync()
    assert list((tmp_path / "of_flags").rglob("model.neff")) and not (tmp_path / "cache").exists()
    with pytest.raises(ConfigError) as caught:
        compiled.initialize_cache(str(tmp_path / "late"))
    assert caught.value.details == {"path": str(tmp_path / "late")}
    monkeypatch.setattr(compiled, "_num_compiled", 0)
    monkeypatch.setattr(compiled, "_cache", None)
    compiled.initialize_cache(str(tmp_path / "read_only"), readonly=True)
    graphs.forget()
    del result
    result = data.sin()
    xla.sync()
    assert metrics.counter_value("UncachedCompile") == 2 and not list((tmp_path / "read_only").rglob("model.neff"))
    del result


def test_steps_are_in_profiles_traces_and_neuron_top_with_simulated_times(capsys):
    data = torch.ones(64, 64).to("xla")
    with record() as recorder:
        for _ in range(3):
            result = data @ data
            xla.sync()
            del result
    profile = recorder.profile()
    (graph,) = (one for one in profile.graphs if one.model == graphs.MODEL)
    assert graph.num_calls == 3 and graph.device_us > 0
    assert any(operator.operator == "aten.mm" for operator in graph.operators)
    events = trace_events(profile)["traceEvents"]
    assert sum("mm" in event["name"] for event in events) >= 3
    assert graphs.MODEL in page(profile)

    def is_shown() -> bool:
        assert top.main(["--once"]) == 0
        return graphs.MODEL in capsys.readouterr().out

    assert soon(is_shown)


@pytest.mark.full(days=2)
def test_stochastic_rounding_of_downcast_floats(new_python):
    program = (
        "import torch; from optimum_neuron import xla; xla.enable()\n"
        "x = torch.full((65536,), 1.0 + 2.0**-9)\n"  # a quarter of the way between two numbers of bfloat16
        "y = (x.to('xla') * 1.0).cpu()\n"
        "print(sorted(set(y.tolist())), abs(y.mean() - x.mean()).item() < 1e-4)"
    )
    done = new_python(program, XLA_USE_BF16="1", NEURON_RT_STOCHASTIC_ROUNDING_EN="1")
    assert done.stdout.strip() == "[1.0, 1.0078125] True", done.stdout + done.stderr


def test_graph_without_an_end_is_told_with_its_size():
    total = torch.zeros(1).to("xla")
    with pytest.warns(report.LongGraphWarning, match="65,536"):
        for _ in range(1 << 16):
            total.add_(1)
    assert len(graphs.discard()) == 1 << 16 and total.item() == 1 << 16
