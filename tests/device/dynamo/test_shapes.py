"""Sizes are static: another size compiles again, with a warning that names it, up to torch's limit."""

import logging

import pytest
import torch

from tests.device.dynamo.conftest import compiled


@pytest.fixture
def double():
    return compiled(lambda x, y: x * 2 + y)


def sized(number: int) -> torch.Tensor:
    return torch.ones(number, 4, device="neuron")


def test_new_size_recompiles_and_is_named(double, caplog):
    caplog.set_level(logging.WARNING)
    for number in (3, 5, 5, 7, 3):
        assert double(sized(number), sized(1)).shape == (number, 4)
    report = torch.neuron.compile_report()
    assert [graph.frame for graph in report.graphs] == ["0/0", "0/1", "0/2"] and report.num_recompiles == 2
    assert [graph.why for graph in report.graphs] == [
        "first call",
        "x was float32[3, 4], is float32[5, 4]",
        "x was float32[5, 4], is float32[7, 4]",
    ]
    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("optimum_neuron")]
    assert len(warnings) == 2 and "compile 2 of at most 8" in warnings[0] and "pad inputs" in warnings[0]


def test_new_dtype_is_named(double):
    double(sized(2), sized(1))
    double(sized(2).bfloat16(), sized(1))
    assert torch.neuron.compile_report().graphs[-1].why == "x was float32[2, 4], is bfloat16[2, 4]"


def test_over_recompile_limit_operators_run_eagerly(double):
    with torch._dynamo.config.patch(recompile_limit=2):
        for number in range(1, 5):
            assert double(sized(number), sized(1)).shape == (number, 4)
    assert len(torch.neuron.compile_report().graphs) == 2


def test_dynamic_sizes_are_fixed_with_warning(caplog):
    caplog.set_level(logging.WARNING)
    function = torch.compile(lambda x: x.relu(), backend="neuron", dynamic=True, options={"optlevel": "1"})
    for number in (3, 5):
        assert function(sized(number)).shape == (number, 4)
    assert "NCC_EMOD025" in caplog.text and len(torch.neuron.compile_report().graphs) == 2


@pytest.mark.parametrize("dynamic", [True, None])
def test_python_float_is_constant_of_its_graph(dynamic):
    function = torch.compile(lambda x, scale: x * scale, backend="neuron", dynamic=dynamic, options={"optlevel": "1"})
    for scale in (0.5, 0.75, 0.5):
        assert function(sized(1), scale).tolist() == [[scale] * 4]
    assert len(torch.neuron.compile_report().graphs) == 2


def test_dynamic_dimension_is_refused_by_torch():
    x = sized(3)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match="[Cc]onstraint"):
        compiled(lambda x: x.relu())(x)


def test_two_instances_of_one_class_do_not_recompile(caplog):
    caplog.set_level(logging.WARNING)
    for width in (4, 8):
        module = torch.nn.Linear(width, 2, bias=width == 4).to("neuron")
        compiled(module)(torch.ones(1, width, device="neuron"))
    assert torch.neuron.compile_report().graphs[-1].why == "another module, or other arguments"
    assert "pad inputs" not in caplog.text
