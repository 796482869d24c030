"""Streams run as their kernels do, bit by bit, also after they were stored, and loops stay folded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from optimum_neuron.errors import KernelError
from optimum_neuron.hardware import resolve_target
from optimum_neuron.nki import NkiTensor, analyze, analyze_stream, isa as nisa, jit, language as nl, streams
from optimum_neuron.nki.kernels import flash_attention
from tests.nki import rows

TRN3 = resolve_target("trn3").value


@jit
def scaled(x, factor):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for block in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[block * 128 : block * 128 + 128])
        nisa.tensor_scalar(tile, tile, nl.multiply, factor)
        nl.store(out[block * 128 : block * 128 + 128], tile)
    return out


@jit
def in_place(cache, rows, position):
    at = nl.load(position)
    for row in nl.sequential_range(rows.shape[0]):
        first = row * (cache.shape[0] // 2) * cache.shape[1]
        place = cache.ap([[cache.shape[1], 1], [1, cache.shape[1]]], offset=first, scalar_offset=at)
        nisa.dma_copy(place, rows[row : row + 1])


@jit
def gathered(x, index):
    out = nl.ndarray((index.shape[0], x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    rows, tile = nl.load(index), nl.ndarray(out.shape, x.dtype)
    picked = x.ap([[x.shape[1], index.shape[0]], [1, x.shape[1]]], vector_offset=rows)
    nisa.dma_copy(tile, picked)
    nl.store(out, tile)
    return out


@jit
def summed(x):
    """Sums blocks in PSUM, whose first write replaces what is there, and reads what nothing wrote."""
    total, unwritten = nl.ndarray((128, x.shape[1]), nl.float32, buffer=nl.psum), nl.ndarray((128, 4), nl.float32)
    ones = nl.ones((128, 128), x.dtype)
    for block in nl.sequential_range(x.shape[0] // 128):
        nisa.nc_matmul(total, ones, nl.load(x[nl.ds(block * 128, 128)]))
    out, rest = nl.ndarray(total.shape, nl.float32, buffer=nl.shared_hbm), nl.ndarray((128, 4), nl.float32, nl.hbm)
    nl.store(out, nl.copy(total))
    nisa.dma_copy(rest, unwritten)
    return {"sum": out, "rest": rest, "name": "sums"}


@jit
def constants(x):
    tile, eye = nl.load(x), nl.load(nl.shared_identity_matrix(128, nl.float32))
    random, out = nl.rand(tile.shape, nl.float32), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_tensor(tile, tile, random, nl.add)
    nl.store(out, nl.copy(nl.matmul(eye, tile, transpose_x=True)))
    return out


def exchanged(x):
    rank = nl.program_id(0)
    out, rows = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.ds(rank * 128, 128)
    mine, theirs = nl.load(x[rows]), nl.ndarray((128, x.shape[1]), x.dtype)
    nisa.sendrecv(mine, theirs, send_to_rank=1 - rank, recv_from_rank=1 - rank, pipe_id=0)
    nisa.dma_copy(out[rows], theirs)
    return out


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


CALLS = {
    "scaled": (scaled, (normal(384, 8, dtype=torch.bfloat16), 0.3)),
    "in_place": (in_place, (normal(32, 8), 2 * normal(2, 8), torch.tensor([[5]], dtype=torch.int32))),
    "gathered": (gathered, (normal(200, 8), torch.tensor([[3], [199], [0]], dtype=torch.int32))),
    "summed": (summed, (normal(384, 16),)),
    "constants": (constants, (normal(128, 64),)),
    "exchanged": (jit(exchanged)[2], (normal(256, 8),)),
    "flash_attention": (flash_attention, (normal(4, 16, 640), normal(2, 16, 640), normal(2, 640, 16))),
    "rows": (rows.kernel, (normal(200, 8),)),
}


def restored(stream):
    """The stream after it was stored and read."""
    read = streams.decode(streams.encode(stream), stream.constants)
    assert read == stream and read.digest == stream.digest
    return read


def bits(x):
    return x.contiguous().view(torch.uint8)


@pytest.mark.filterwarnings("ignore::optimum_neuron.nki.UninitializedReadWarning")
@pytest.mark.parametrize("name", CALLS)
def test_replay_equals_kernel(name):
    kernel, args = CALLS[name]
    traced = streams.trace(kernel, args, {})
    inputs, arrays = [[x.clone() for x in args if isinstance(x, torch.Tensor)] for _ in range(2)]
    stream = restored(traced.stream)
    streams.verify(stream, TRN3)
    outputs = streams.run(stream, inputs)
    rest = iter(arrays)
    result = kernel(*(next(rest) if isinstance(x, torch.Tensor) else x for x in args))
    expected = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)
    expected = [x for x in expected if isinstance(x, torch.Tensor)]
    assert len(outputs) == len(expected)
    for one, other in zip([*outputs, *inputs], [*expected, *arrays], strict=True):
        assert one.dtype == other.dtype and torch.equal(bits(one), bits(other))
    changed = [number for number, x in enumerate(x for x in args if isinstance(x, torch.Tensor)) if name == "in_place"]
    assert traced.stream.changed == tuple(changed[:1])


def test_loops_are_folded():
    traced = [streams.trace(scaled, (normal(128 * count, 8), 0.3), {}).stream for count in (2, 7)]
    assert [stream.num_steps for stream in traced] == [3, 3]
    assert [stream.num_instructions for stream in traced] == [6, 21]
    (loop,) = [node for node in traced[1].programs[0] if isinstance(node, streams.Loop)]
    assert loop.count == 7


def test_analysis_of_stream_is_that_of_kernel():
    kernel, args = CALLS["flash_attention"]
    analysis = analyze_stream(streams.trace(kernel, args, {}).stream)
    expected = analyze(kernel, *args)
    assert analysis.total_us == expected.total_us and analysis.busy_us == expected.busy_us
    assert [one.peak for one in analysis.memory] == [one.peak for one in expected.memory]
    assert [one.record.line for one in analysis.events] == [one.record.line for one in expected.events]


def refusal(body, *args):
    with pytest.raises(KernelError) as excinfo:
        streams.trace(jit(body), args, {})
    return excinfo.value.details


def test_values_cannot_decide_what_a_traced_kernel_does():
    def by_register(x):
        register = nisa.register_alloc()
        nisa.register_load(register, nl.load(x[:1, :1]))
        nl.store(x[nl.ds(register, 1)], nl.load(x[:1]))

    def by_value(x):
        nl.store(x, nl.load(x) if x.read().sum() else nl.load(x))

    assert refusal(by_register, normal(8, 8))["rule"] == "values"
    found = refusal(by_value, normal(8, 8))
    assert found["rule"] == "values" and found["line"].startswith(__file__)


def test_rules_hold_while_a_kernel_is_traced():
    found = refusal(lambda x: nl.load(x), normal(256, 8))
    assert found["rule"] == "partition" and found["line"].startswith(__file__)
    assert refusal(lambda x: nl.load(x) and None, normal(8, 8))["rule"] == "result"
    assert refusal(lambda x: nl.load(x), normal(8, 8))["rule"] == "result"


def test_target_without_an_instruction():
    @jit
    def kernel(x):
        tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.exponential(tile, tile)
        nl.store(out, tile)
        return out

    stream = streams.trace(kernel, (normal(128, 8),), {}).stream
    streams.verify(stream, TRN3)
    with pytest.raises(KernelError) as excinfo:
        streams.verify(stream, resolve_target("trn2").value)
    assert excinfo.value.details["rule"] == "generation" and excinfo.value.details["line"].startswith(__file__)


def test_arrays_of_numpy_are_traced():
    stream = streams.trace(scaled, (np.ones((128, 4), dtype=np.float32), 2.0), {}).stream
    assert stream.memories[0].dtype == "float32" and isinstance(stream.outputs[0], streams.View)
    assert NkiTensor is not None
