"""Subprograms compiled by Inductor and g++ (real compiles, a few seconds each)."""

import pytest
import torch
import torch._inductor.config
from torch.nn import functional as F

from optimum_neuron.compiler.lower import aten_function, attention, probe_compiler, probe_cpu
from optimum_neuron.compiler.lower.lower import locate, record_path
from optimum_neuron.compiler.lower.unit import compile_jobs, compiler_command
from optimum_neuron.errors import LoweringError
from optimum_neuron.files.shared_objects import find
from tests.compiler.lower.conftest import job_of, operators_body, rounded_body, step_body, views_body
from tests.programs import body_of, spec
from tests.raising import raises

pytestmark = [
    pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine"),
    pytest.mark.full(days=2, by="file"),
]


def test_functions_share_one_library_and_no_leftovers(functions):
    assert functions["step"].library is functions["views"].library
    (folder,) = functions["root"].iterdir()
    assert sorted(path.suffix for path in folder.iterdir()) == [".json"] * 8 + [".so"]


def test_aliased_results_are_separate_tensors(functions):
    x = torch.randn(3, 4)
    results = functions["views"]([x])
    for result, expected in zip(results, [x * 2, x[0] * 2, x[1], x.t()], strict=True):
        assert torch.equal(result, expected) and result.is_contiguous()
    assert len({result.untyped_storage().data_ptr() for result in [x, *results]}) == 5


def test_compiled_function_matches_aten_and_writes_in_place(functions):
    x, weight = torch.randn(1, 64), torch.randn(16, 64)
    mask = (torch.arange(8) < 5).view(1, 1, 1, 8)
    actual, expected_output = torch.zeros(1, 1, 8, 16), torch.zeros(1, 1, 8, 16)
    reference = aten_function(step_body())
    for position in (3, 0):
        slot = torch.tensor([position])
        results = functions["step"]([x * (position + 1), weight, actual, slot, mask])
        expected = reference([x * (position + 1), weight, expected_output, slot, mask])
        for a, b in zip(results, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(actual, expected_output, rtol=1e-5, atol=1e-5)
    assert actual[0, 0].any(-1).tolist() == [True, False, False, True] + [False] * 4


def test_compiled_function_rounds_where_the_program_does(functions):
    x, weight = torch.rand(64, 64), torch.rand(64, 64) / 64
    (expected,), (result,) = aten_function(rounded_body())([x, weight]), functions["rounded"]([x, weight])
    exact = F.gelu(F.linear(F.silu(x * 1.7), weight)) * 3 + x
    assert torch.equal(result, result.bfloat16().float())
    error, rounding = (result - expected).abs(), (expected - exact).abs()
    assert error.mean() < rounding.mean() / 20  # one digit, where sums of products differ in order


def test_operators_of_torch_are_called(functions):
    x = torch.randn(5, 6)
    for result, expected in zip(functions["operators"]([x]), aten_function(operators_body())([x]), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_failing_operator_reports_reason(functions):
    with raises(LoweringError, function="sub_4") as error:
        functions["product"]([torch.randn(40, 64), torch.randn(16, 32)])
    assert "linear" in error.value.details["error"]


def test_failing_compiler_is_reported_and_cleaned_up(tmp_path):
    compiler = tmp_path / "bad++"
    compiler.write_text("#!/bin/sh\ncase $* in *--version*) exec g++ --version;; esac\necho out of luck >&2; exit 1\n")
    compiler.chmod(0o755)
    body = body_of(lambda x, w: F.linear(x, w).tanh() * 1.5, spec(1, 24), spec(24, 24))
    job = job_of(body, tmp_path / "store")
    with torch._inductor.config.patch({"cpp.cxx": (str(compiler),)}), pytest.raises(LoweringError) as excinfo:
        compile_jobs([job], num_compilers=1)
    message = str(excinfo.value)
    assert "sub_0" in message and "out of luck" in message and "-O1" in message
    assert excinfo.value.details["failures"] == [message]
    assert not job.record.parent.exists() or list(job.record.parent.iterdir()) == []


@pytest.mark.full(days=4)
def test_failing_job_is_named_and_others_finish(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    monkeypatch.setattr("optimum_neuron.compiler.lower.unit.UNIT_NODES", 5)
    broken, one, two = (job_of(views_body(), None, name) for name in ("sub_broken", "sub_1", "sub_2"))
    broken.body["nodes"][0]["op"] = "aten.no_such.default"
    calls = []
    with raises(LoweringError) as excinfo:
        compile_jobs([broken, one, two], num_compilers=2, on_done=calls.append)
    (failure,) = excinfo.value.details["failures"]
    assert "aten.no_such.default" in failure and "sub_1" not in failure
    assert sorted(job.name for job in calls) == ["sub_1", "sub_2"] and locate(broken.record) is None
    assert locate(one.record).library != locate(two.record).library
    assert not attention.KERNEL.library(probe_cpu().isa).record().exists(), "nothing here calls the kernel of attention"


def test_code_is_compiled_for_named_level_of_cpus():
    words = compiler_command(record_path("a", "inductor", probe_cpu()), record_path("b", "inductor", probe_cpu()))
    march = [word for word in words if word.startswith("-march=")]
    assert march == [f"-march={probe_cpu().march or 'native'}"]
    assert "-g1" not in words and "-ltorch_python" not in words


@pytest.mark.skipif(not attention.is_supported(probe_cpu()), reason="no attention kernel for this CPU")
def test_attention_kernel_is_built_with_its_caller(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    record, result = attention.KERNEL.library(probe_cpu().isa).record(), []
    shape = spec(1, 2, 8, 16)
    body = body_of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), shape, shape, shape)
    job = job_of(body, None, "sub_attention")
    compile_jobs([job], num_compilers=2, on_done=result.append)
    assert find(record) is not None and result == [job] and locate(job.record) is not None
