"""Subprograms that are compiled once, in one file, for all tests that only call them."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.lower import Job, probe_cpu
from optimum_neuron.compiler.lower.kernels import KERNELS
from optimum_neuron.compiler.lower.library import load_function
from optimum_neuron.compiler.lower.lower import locate, record_path
from optimum_neuron.compiler.lower.unit import compile_jobs
from optimum_neuron.compiler.passes import auto_cast
from optimum_neuron.compiler.serialize import body_to_dict
from tests.experts import experts_body
from tests.programs import body_of, spec

needs_bf16_library = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN has no bf16 products on this CPU"
)
"""For tests that run what is chosen for other CPUs: with AVX2 alone, oneDNN refuses to multiply bf16."""


def job_of(body, root, name="sub_0"):
    return Job(body=body_to_dict(body), level="inductor", record=record_path(name, "inductor", probe_cpu(), root))


def compiled(bodies, root):
    """Compile subprograms together, and load them."""
    jobs = [job_of(body, root, f"sub_{index}") for index, body in enumerate(bodies)]
    compile_jobs(jobs, num_compilers=2)
    for kernel in KERNELS:
        if any(kernel.is_in(body, probe_cpu()) for body in bodies):
            kernel.load(probe_cpu().isa)
    return [load_function(locate(job.record), len(job.body["outputs"])) for job in jobs]


def step_body():
    """A projection, a cache that is written in place, and attention to it."""

    def step(x, weight, cache, slot, mask):
        key = F.linear(x, weight).view(1, 1, 1, 16)
        cache.index_copy_(2, slot, key)
        return F.scaled_dot_product_attention(key, cache, cache, mask), key

    shapes = [spec(1, 64), spec(16, 64), spec(1, 1, 8, 16), spec(1, dtype="int64"), spec(1, 1, 1, 8, dtype="bool")]
    # TF32 rounds on the bits, so this also compiles integer views of floats.
    return auto_cast(body_of(step, *shapes, num_outputs=2), kind="matmul", dtype="tf32")


def views_body():
    return body_of(lambda x: [(y := x * 2), y[0], x[1], x.t()], spec(3, 4), num_outputs=4)


def operators_body():
    """Operators that Inductor calls through torch: one with a C function, one through the dispatcher, a sort."""
    return body_of(
        lambda x: [torch.cumsum(x.sin(), 0), x.sort(-1)[0].exp(), torch.special.bessel_j0(x)], spec(5, 6), num_outputs=3
    )


def rounded_body():
    """Activations and products that are rounded one after the other, inside one loop of host code."""

    def layers(x, weight):
        return F.gelu(F.linear(F.silu(x * 1.7), weight)) * 3 + x

    return auto_cast(body_of(layers, spec(64, 64), spec(64, 64)), kind="all", dtype="bf16")


def chain_body():
    """Thirty products of matrices, so that a call takes a while."""

    def chain(x, y, total):
        for _ in range(30):
            x = (x @ y).tanh()
        total.add_(x.sum())
        return x, x.sum(0)

    return body_of(chain, spec(384, 384), spec(384, 384), spec(), num_outputs=2)


@pytest.fixture(scope="session")
def functions(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    bodies = {"step": step_body(), "views": views_body(), "operators": operators_body(), "chain": chain_body()}
    bodies["product"] = body_of(F.linear, spec(40, 64), spec(16, 64))
    bodies["few rows"] = body_of(F.linear, spec(8, 64), spec(16, 64))
    bodies["experts"] = experts_body("float32", has_bias=True, is_transposed=True)
    bodies["rounded"] = rounded_body()
    return dict(zip(bodies, compiled(bodies.values(), root), strict=True)) | {"root": root}
