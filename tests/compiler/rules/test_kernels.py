"""NKI kernels are accepted where the target has their instructions and the memory for their tiles."""

import pytest

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler import capture
from optimum_neuron.compiler.rules import check_graph
from optimum_neuron.hardware import TARGETS, kernels_for
from optimum_neuron.nki import isa as nisa, jit, language as nl
from tests.programs import Calls, spec


@jit
def doubles(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


@jit
def exponential(x):
    tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.exponential(tile, tile)
    nl.store(out, tile)
    return out


@jit
def too_large(x):
    tiles = [nl.zeros((128, 16 * 1024), nl.float32) for _ in range(4)]
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for tile in tiles:
        nisa.dma_copy(tile[:, :16], x[:128])
    nl.store(out[:128], nl.add(tiles[0], tiles[3])[:, :16])
    return out


@pytest.mark.parametrize(
    ("kernel", "is_accepted", "reason", "remedy"),
    [
        (doubles, True, "the NKI kernel doubles, 3 instructions", None),
        (exponential, False, "NeuronCore-v4", ""),
        (too_large, False, "test_kernels.py", "use smaller tiles, or fewer at the same time"),
    ],
)
def test_kernels_are_judged_by_the_target(kernel, is_accepted, reason, remedy):
    # Traced for trn3, as by a script that names no target.
    with kernels_for(TARGETS["trn3"]):
        captured = capture(Calls(kernel), name="forward", inputs={"x": spec(128, 16)})
    (ruling,) = [one for one in check_graph(captured.exported, TARGETS["trn2"]).rulings if one.rule == "nki-kernel"]
    assert reason in ruling.reason and ruling.verdict is (Verdict.NATIVE if is_accepted else Verdict.UNSUPPORTED)
    assert ruling.remedy == remedy if is_accepted else ruling.remedy.endswith(remedy)
    assert kernel is too_large or not check_graph(captured.exported, TARGETS["trn3"]).refused
