"""Ahead-of-time compiled bodies (real compiles, a few seconds each)."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.config
from torch.nn import functional as F

from optimum_neuron.compiler.lower.aten import aten_function
from optimum_neuron.compiler.lower.choose import probe_compiler
from optimum_neuron.compiler.lower.inductor import compile_body, load_package
from optimum_neuron.compiler.passes.autocast import auto_cast
from optimum_neuron.compiler.serial import body_to_dict
from optimum_neuron.errors import LoweringError
from tests.programs import body_of, spec

needs_compiler = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")


def decode_step(cache, slot, x, weight, mask):
    """A projection, a cache that is written in place, and attention to it."""
    key = F.linear(x, weight).view(1, 1, 1, 16)
    cache.index_copy_(2, slot, key)
    return F.scaled_dot_product_attention(key, cache, cache, mask), key


SHAPES = {
    "x": spec(1, 64),
    "weight": spec(16, 64),
    "cache": spec(1, 1, 8, 16),
    "slot": spec(1, dtype="int64"),
    "mask": spec(1, 1, 1, 8, dtype="bool"),
}
"""In the order in which the body uses them."""


@needs_compiler
def test_results_that_are_views_of_each_other_or_of_arguments_are_tensors_of_their_own(tmp_path):
    body = body_of(lambda x: [(y := x * 2), y[0], x[1], x.t()], spec(3, 4), num_outputs=4)
    compile_body(body_to_dict(body), "inductor", tmp_path / "sub_0.pt2")
    x = torch.randn(3, 4)
    found = load_package(tmp_path / "sub_0.pt2")([x])
    for a, b in zip(found, [x * 2, x[0] * 2, x[1], x.t()], strict=True):
        assert torch.equal(a, b) and a.is_contiguous()


@needs_compiler
def test_a_compiled_body_gives_what_aten_gives_and_writes_in_place(tmp_path):
    body = body_of(
        lambda x, w, cache, slot, mask: decode_step(cache, slot, x, w, mask), *SHAPES.values(), num_outputs=2
    )
    # TF32 rounds on the bits, so this also compiles integer views of floats.
    body = auto_cast(body, kind="matmul", dtype="tf32")
    output = tmp_path / "sub_0.pt2"
    compile_body(body_to_dict(body), "inductor", output)
    assert [path.name for path in tmp_path.iterdir()] == ["sub_0.pt2"]
    x, weight = torch.randn(1, 64), torch.randn(16, 64)
    mask = (torch.arange(8) < 5).view(1, 1, 1, 8)
    mine, theirs = torch.zeros(1, 1, 8, 16), torch.zeros(1, 1, 8, 16)
    compiled, reference = load_package(output), aten_function(body)
    for position in (3, 0):
        slot = torch.tensor([position])
        found = compiled([x * (position + 1), weight, mine, slot, mask])
        wanted = reference([x * (position + 1), weight, theirs, slot, mask])
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert mine[0, 0].any(-1).tolist() == [True, False, False, True] + [False] * 4


@needs_compiler
def test_a_compiler_that_fails_is_reported_and_leaves_nothing(tmp_path):
    compiler = tmp_path / "bad++"
    compiler.write_text("#!/bin/sh\ncase $* in *--version*) exec g++ --version;; esac\necho out of luck >&2; exit 1\n")
    compiler.chmod(0o755)
    folder = tmp_path / "store"
    folder.mkdir()
    body = body_of(lambda x, w: F.linear(x, w).tanh() * 1.5, spec(1, 24), spec(24, 24))
    patch = {"cpp.cxx": (str(compiler),), "force_disable_caches": True}
    with torch._inductor.config.patch(patch), pytest.raises(LoweringError) as refused:
        compile_body(body_to_dict(body), "inductor", folder / "sub_1.pt2")
    message = str(refused.value)
    assert "host code for sub_1" in message and "out of luck" in message and "export with -O1" in message
    assert list(folder.iterdir()) == []


def test_no_compiler_at_all_is_reported(tmp_path):
    body = body_of(lambda x, w: F.linear(x, w).tanh() * 2.5, spec(1, 24), spec(24, 24))
    patch = {"cpp.cxx": (str(tmp_path / "none"),), "force_disable_caches": True}
    with torch._inductor.config.patch(patch), pytest.raises(LoweringError, match="InvalidCxxCompiler"):
        compile_body(body_to_dict(body), "inductor", tmp_path / "sub_1.pt2")
    assert list(tmp_path.iterdir()) == []
