"""Collectives of compiled graphs: accepted by name, refused by dtype as everything else."""

import torch
import torch.distributed._functional_collectives  # registers the operators

from optimum_neuron.compiler.rules.base import find_rule
from optimum_neuron.core import Verdict

ops = torch.ops._c10d_functional


def all_reduce(x):
    return ops.wait_tensor(ops.all_reduce(x, "sum", "group"))


def test_a_reduction_over_cores_is_native_and_waiting_is_no_work(check_traced):
    reduce, wait = check_traced(all_reduce, torch.zeros(4, dtype=torch.bfloat16)).rulings
    assert (reduce.verdict, reduce.reason) == (Verdict.NATIVE, "maps to Allreduce")
    assert wait.reason == "does no work"


def test_a_reduction_of_float64_is_refused(check_traced):
    assert check_traced(all_reduce, torch.zeros(4, dtype=torch.float64)).rulings[0].code == "NCC_ESPP004"


def test_other_collectives_have_no_rule():
    assert find_rule("_c10d_functional.all_to_all_everywhere") is None
