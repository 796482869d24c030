"""Which graphs are compiled, against the counts that torch_xla documents; what ends a graph, and how that is reported.

Counts: https://docs.pytorch.org/xla (API guide, "XLA tensors are lazy", and the troubleshooting guide's metrics).
"""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

from optimum_neuron import nki, xla
from optimum_neuron.errors import LoweringError, UnsupportedOperatorError
from optimum_neuron.nki import language as nl
from optimum_neuron.xla import graphs, metrics, report

pytestmark = pytest.mark.usefixtures("fresh")


def compiles() -> int:
    return metrics.counter_value("UncachedCompile") or 0


def steps_that_compile(batch_sizes, optimizer, *, schedule=False, read=lambda loss: None) -> list[int]:
    """Train a model with one batch a step; return the steps in which a graph was compiled."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).to("xla")
    stepper = optimizer(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(stepper, 1) if schedule else None
    compiled = []
    for number, size in enumerate(batch_sizes):
        before = compiles()
        data, target = torch.randn(size, 6).to("xla"), torch.randint(0, 3, (size,)).to("xla")
        stepper.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data), target)
        loss.backward()
        stepper.step()
        if scheduler is not None:
            scheduler.step()
        read(loss)
        xla.sync()
        compiled += [number] * (compiles() - before)
    return compiled


def test_static_loop_compiles_in_its_first_two_steps_at_most():
    assert set(steps_that_compile([4] * 5, torch.optim.SGD)) <= {0, 1}
    assert metrics.counter_value("MarkStep") == 5


def test_short_last_batch_compiles_once_more():
    assert set(steps_that_compile([4, 4, 4, 3, 4, 3], torch.optim.SGD)) - {0, 1} == {3}


def test_learning_rate_of_a_schedule_is_data():
    assert set(steps_that_compile([4] * 6, torch.optim.AdamW, schedule=True)) <= {0, 1}


def test_value_read_in_the_loop_cuts_the_graph_and_says_where():
    compiled = steps_that_compile([4] * 5, torch.optim.SGD, read=lambda loss: loss.item())
    assert set(compiled) <= {0, 1}
    assert metrics.counter_value("aten::_local_scalar_dense") == 5
    ((operator, place), count) = report.REPORT.reads.most_common(1)[0]
    assert operator.startswith("aten::_local_scalar_dense") and "test_graphs.py:" in place and count == 5


def test_values_of_an_ended_graph_are_read_without_another():
    total = torch.ones(3).to("xla").sum()
    xla.sync()
    assert total.item() == 3.0 and compiles() == 1


def test_documented_counters_of_one_product():
    a = torch.tensor(2077).to("xla")
    b = a * 2
    xla.sync()
    assert b.cpu() == 4154
    assert compiles() == 1 and metrics.counter_value("MarkStep") == 1 and metrics.counter_value("CreateXlaTensor") >= 2
    assert metrics.counter_value("DestroyXlaTensor") == 1, "the tensor of the number 2 has ended"
    del b
    again = a * 2
    xla.sync()
    assert compiles() == 1 and metrics.counter_value("CachedCompile") == 1
    del again


def test_operator_is_counted_before_its_graph_ends():
    value = torch.tensor(100).to("xla") + 2
    assert "xla::add" in metrics.metrics_report() and compiles() == 0
    del value


@pytest.mark.parametrize(
    ("change", "num_graphs"),
    [
        pytest.param(lambda x: x * 0.3, 1, id="number"),
        pytest.param(lambda x: x * 0.7, 1, id="other-number"),
        pytest.param(lambda x: x * 1.0, 2, id="special-number"),
        pytest.param(lambda x: x + 0.3, 2, id="operator"),
        pytest.param(lambda x: x[:2] * 0.3, 2, id="shape"),
        pytest.param(lambda x: x.bfloat16() * 0.3, 2, id="dtype"),
        pytest.param(lambda x: x.t() * 0.3, 2, id="layout"),
    ],
)
def test_graphs_differ_by_structure_and_not_by_data(change, num_graphs):
    data = torch.ones(4, 4).to("xla")
    for function in (lambda x: x * 0.3, change):
        result = function(data)
        xla.sync()
        del result
    assert len(report.REPORT.rows) == num_graphs


def test_float64_is_compiled_as_float32():
    """NxD's examples add losses, and take angles of positions, in float64."""
    total = torch.zeros(1, dtype=torch.double).to("xla")
    total += torch.ones(2, device="xla").double().sum(-1, dtype=torch.float64)
    angles = (torch.arange(4, device="xla").double()[:, None] @ total[None]).cos().to(torch.float32)
    xla.sync()
    assert total.item() == 2.0 and total.dtype == torch.float64
    torch.testing.assert_close(angles.cpu()[:, 0], torch.arange(4.0).mul(2).cos())


def test_random_numbers_between_two_bounds_are_compiled():
    """The overload of this operator is `from`, a word of Python."""
    numbers = torch.empty(64).to("xla").random_(2, 5)
    xla.sync()
    assert compiles() == 1 and set(numbers.tolist()) == {2.0, 3.0, 4.0}


def test_data_flow_decides():
    data, other = torch.ones(4).to("xla"), torch.ones(4).to("xla")
    for left, right in ((data, data), (data, other)):
        result = left + right
        xla.sync()
        del result
    assert compiles() == 2


def test_second_process_finds_graphs_in_the_compile_cache():
    data = torch.ones(4).to("xla")
    for hits in (None, 1):
        result = data.exp()
        xla.sync()
        graphs.forget()
        assert metrics.counter_value("PersistentCacheHit") == hits
        del result
    assert metrics.counter_value("PersistentCacheMiss") == 1


def test_refused_operator_is_named_with_its_code_and_line_at_the_sync():
    class Sorts(torch.nn.Module):
        def forward(self, x):
            return torch.sort(x).values

    model = torch.nn.Sequential(torch.nn.Identity(), Sorts())
    result = model(torch.randn(5).to("xla"))
    with pytest.raises(UnsupportedOperatorError) as caught:
        xla.sync()
    text = str(caught.value)
    assert "NCC_" in text and "test_graphs.py:" in text and "1 (" in text  # the module is "1"
    assert ".cpu()" in text and "allow_host_ops" not in text, "an option that scripts do not have"
    assert torch.equal(result.cpu(), result.cpu().sort().values)


HOST_OPERATORS = {
    "aten::_embedding_bag": lambda x: torch.nn.functional.embedding_bag(torch.ones(2, 2).long().to(x.device), x),
    "aten::_unique2": torch.unique,
    "aten::grid_sampler_2d": lambda x: torch.nn.functional.grid_sample(
        x[None, None], x.reshape(1, 2, 4, 2), align_corners=False
    ),
    "aten::linalg_qr": lambda x: torch.linalg.qr(x).R,
    "aten::median": torch.median,
    "aten::nonzero": lambda x: x[x > 0],
    "aten::repeat_interleave.Tensor": lambda x: x.repeat_interleave(x[0].long(), 0),
}
"""Of tests of PyTorch/XLA (test/test_ops.py, test/test_metrics.py), and one that its table of lowerings lacks."""


@pytest.mark.parametrize("name", sorted(HOST_OPERATORS))
def test_operator_without_a_lowering_runs_on_the_host(name):
    data, function = torch.arange(16.0).reshape(4, 4).sin(), HOST_OPERATORS[name]
    result = function(data.to("xla").exp().requires_grad_())
    assert compiles() == 1, "the graph of its argument has ended"
    result = result * 3
    xla.sync()
    assert compiles() == 2 and metrics.executed_fallback_ops() == [name] and metrics.counter_value(name) == 1
    assert torch.equal(result.cpu(), function(data.exp()) * 3)
    ((_, place), count) = report.REPORT.reads.most_common(1)[0]
    assert "test_graphs.py:" in place and count == 1


def test_float64_is_compiled_in_the_precision_of_float32():
    """https://github.com/pytorch/xla/blob/v2.9.0/torch_xla/csrc/dtype.cpp: F64 is F32 for the device type NEURON."""
    data = torch.arange(1.0, 5.0, dtype=torch.float64)
    scale = torch.full((1,), 3.0).to("xla")
    scaler = scale.double().reciprocal().float()  # as torch's GradScaler
    result = (data.to("xla") * scaler + torch.ones(4, dtype=torch.float64, device="xla")).to(torch.float64)
    xla.sync()
    assert compiles() == 1 and result.dtype == torch.float64
    assert torch.allclose(result.cpu(), data / 3.0 + 1.0, atol=1e-6)


def test_reading_is_refused_in_a_full_graph():
    value = torch.ones(2).to("xla")
    with pytest.raises(RuntimeError, match=graphs.UNEXPECTED), xla.Region("step", full_graph=True):
        (value * 3).sum().item()
    assert value.sum().item() == 2.0


def test_region_has_a_limit_of_graphs():
    region = xla.Region("step", max_different_graphs=1)
    for size in (2, 2):
        with region:
            kept = torch.ones(size).to("xla") * 2
    with pytest.raises(LoweringError) as caught, region:
        kept = torch.ones(3).to("xla") * 2
    assert caught.value.details["limit"] == 1
    del kept


def test_recompile_storm_names_input_shapes_and_padding():
    table = torch.randn(50, 4).to("xla")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for length in (5, 6, 9, 17):
            tokens = torch.zeros(2, length, dtype=torch.int64).to("xla")
            result = torch.nn.functional.embedding(tokens, table).sum()
            xla.sync()
            del result
    (warning,) = (one for one in caught if one.category is report.RecompileWarning)
    text = str(warning.message)
    assert "[2, 5], [2, 6], [2, 9], [2, 17]" in text and "test_graphs.py:" in text
    assert "[2, 17]" in text.partition("Pad it to")[2] and "8, 16, 32 in dimension 1" in text


def test_recorded_graph_computes_what_was_computed():
    """The rebuilt graph on the CPU, whose inputs are those of the step, gives the step's results."""
    import ctypes

    from optimum_neuron.xla import library
    from optimum_neuron.xla.recording import rebuild
    from optimum_neuron.xla.tape import Closed, read_slots, read_tape

    torch.manual_seed(0)
    functions, closed = library.functions(), Closed()
    x, w, y = torch.randn(2, 3, 8), torch.randn(8, 8), torch.randn(2, 3, 8)

    def step(x, w, y):
        heads = (x @ w).view(2, 3, 2, 4).transpose(1, 2)
        half = torch.cat((-heads[..., 2:], heads[..., :2]), -1)
        scores = (half @ heads.transpose(-1, -2)).softmax(-1)
        y.mul_(2.0).add_(1.0)
        y[:, 0] += 5.0
        total = torch.empty_like(y)
        torch.mul(y, 3.0, out=total)
        w.lerp_(w.t().contiguous(), 0.25)
        return scores.sum(-1), total

    tensors = [tensor.to("xla") for tensor in (x, w, y)]
    results = step(*tensors)
    functions.xla_close(ctypes.byref(closed), 0)
    module = rebuild(read_tape(functions, closed.num_words), read_slots(functions, closed.num_slots))
    inputs = [x.clone(), w.clone(), y.clone()]
    outputs = module(*(tensor for tensor in _as_used(module, inputs)))
    expected = step(x.clone(), w.clone(), y.clone())
    found = {tuple(one.shape): one for one in outputs}
    for reference, ours in zip(expected, results, strict=True):
        assert torch.equal(ours.cpu(), reference)
        assert torch.allclose(found[tuple(reference.shape)].view(reference.shape), reference)
    for given, ours in zip(inputs, tensors, strict=True):
        assert torch.allclose(given, ours.cpu())


def _as_used(module, inputs):
    """The inputs in the order and the shape in which the graph takes them."""
    by_size = {tensor.numel(): tensor for tensor in inputs}
    same = itertools.cycle([tensor for tensor in inputs if tensor.numel() == inputs[0].numel()])
    for node in module.graph.find_nodes(op="placeholder"):
        size = node.meta["val"].shape
        tensor = next(same) if size.numel() == inputs[0].numel() else by_size[size.numel()]
        yield tensor.view(size)


def test_report_of_compiles_is_in_that_of_torch():
    result = torch.ones(3).to("xla") * 4.0
    xla.sync()
    text = str(torch.neuron.compile_report())
    assert "1 graph compiled" in text and "test_graphs.py:" in text
    assert torch.neuron.compile_report().to_dict()["xla"]["graphs"][0]["num_runs"] == 1
    del result


def test_forgotten_graphs_come_from_the_compile_cache_again(monkeypatch):
    monkeypatch.setenv("NEURON_NUM_RECENT_MODELS_TO_KEEP", "1")
    data = torch.ones(4).to("xla")
    for function in (torch.exp, torch.sin, torch.exp):
        result = function(data)
        xla.sync()
        del result
    assert metrics.counter_value("PersistentCacheMiss") == 2 and metrics.counter_value("PersistentCacheHit") == 1


def test_debug_output_names_cause_hash_and_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PT_XLA_DEBUG_LEVEL", "1")
    monkeypatch.setenv("PT_XLA_DEBUG_FILE", str(tmp_path / "debug.txt"))
    kept = torch.ones(4).to("xla") * 2.0
    xla.sync()
    text = (tmp_path / "debug.txt").read_text()
    assert "Compilation Analysis: Compilation Cause" in text and "Graph Hash: " in text and "test_graphs.py:" in text
    del kept


@pytest.mark.full(days=3)
@pytest.mark.parametrize("variable", ["XLA_USE_BF16", "XLA_DOWNCAST_BF16"])
def test_floats_have_the_precision_of_bfloat16(new_python, variable):
    program = (
        "import torch; from optimum_neuron import xla; xla.enable(); torch.manual_seed(0)\n"
        "x = torch.randn(5, 7); y = x.to('xla'); z = y.exp(); y.mul_(3.0)\n"
        "b = x.bfloat16().float()\n"
        "print(z.dtype, torch.equal(z.cpu(), b.exp().bfloat16().float()))\n"
        "print(torch.equal(y.cpu(), (b * 3).bfloat16().float()))"
    )
    done = new_python(program, **{variable: "1"})
    assert done.stdout == "torch.float32 True\nTrue\n", done.stderr


@pytest.mark.full(days=6)
def test_parallel_compile_counts_graphs_and_a_second_run_finds_them(tmp_path, new_python):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch; from optimum_neuron import xla\n"
        "xla.enable(); x = torch.ones(4).to('xla')\n"
        "for _ in range(3):\n    y = x * 2.0 + 0.5; xla.sync(); del y\n"
    )
    program = (
        "import sys; from optimum_neuron.tools.parallel_compile import main\n"
        f"sys.exit(main([sys.executable, {str(script)!r}]))"
    )
    for expected in ("1 compiled, 0 found", "0 compiled, 1 found"):
        done = new_python(program)
        assert done.returncode == 0 and f"NEFFs (compile cache): {expected}" in done.stderr, done.stderr


@nki.jit
def scaled_in_place(x, table):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2))
    nl.store(table, nl.add(nl.load(table), 1))
    return out


def test_nki_kernel_is_an_operator_of_the_graph():
    x, table = torch.arange(256.0).reshape(128, 2), torch.zeros(128, 2).to("xla")
    for _ in range(3):
        y = scaled_in_place(x.to("xla"), table) + 1
        assert y.device.type == "xla"
        xla.sync()
    assert torch.equal(y.cpu(), 2 * x + 1) and torch.equal(table.cpu(), torch.full((128, 2), 3.0))
    assert compiles() == 1
