"""Kernels as the public tutorials teach them, against references in torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.nki import isa as nisa, jit, language as nl, simulate


def output(like, shape=None):
    return nl.ndarray(like.shape if shape is None else shape, dtype=like.dtype, buffer=nl.shared_hbm)


def rows(tensor, number):
    return tensor[number * 128 : (number + 1) * 128]


@jit
def add(a, b):
    out = output(a)
    for tile in nl.affine_range(a.shape[0] // 128):
        left, right = nl.load(rows(a, tile)), nl.load(rows(b, tile))
        total = nl.ndarray(left.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)
        nl.store(rows(out, tile), total)
    return out


@jit
def transpose_2d(x, height, width):
    """Each row is a matrix of height by width, which is transposed in its partition."""
    tile, turned, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype), output(x)
    source = tile.reshape((x.shape[0], height, width)).permute((0, 2, 1))
    nisa.tensor_copy(turned.reshape((x.shape[0], width, height)), source)
    nl.store(out, turned)
    return out


@jit
def matmul(lhs_T, rhs):
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = output(lhs_T, (height, width))
    for m in nl.affine_range(height // 128):
        for n in nl.affine_range(width // 512):
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                left = nl.load(rows(lhs_T, k)[:, m * 128 : (m + 1) * 128])
                right = nl.load(rows(rhs, k)[:, nl.ds(n * 512, 512)])
                nisa.nc_matmul(total, left, right)
            result = nl.ndarray((128, 512), dtype=out.dtype)
            nisa.tensor_copy(result, total)
            nisa.dma_copy(rows(out, m)[:, nl.ds(n * 512, 512)], result)
    return out


@jit
def average_pool(x, window):
    channels, height, width = x.shape
    out = output(x, (channels, height // window, width // window))
    tile = nl.load(x)
    blocks = tile.ap(
        [
            *([height * width, channels], [width * window, height // window], [window, width // window]),
            *([width, window], [1, window]),
        ]
    )
    total = nl.sum(blocks, axis=(3, 4))
    nisa.tensor_scalar(total, total, nl.multiply, 1 / window**2)
    nl.store(out, total)
    return out


@jit
def rms_norm(x, weight, epsilon):
    out, gain = output(x), nl.load(weight.reshape((1, weight.shape[0])).broadcast(0, 128))
    for tile in nl.affine_range(x.shape[0] // 128):
        values = nl.load(rows(x, tile))
        squares, total = nl.ndarray(values.shape, dtype=nl.float32), nl.ndarray((128, 1), dtype=nl.float32)
        nisa.activation_reduce(squares, nl.square, values, nl.add, total)
        scale = nl.ndarray((128, 1), dtype=nl.float32)
        nisa.tensor_scalar(scale, total, nl.multiply, 1 / x.shape[1], op1=nl.add, operand1=epsilon)
        nisa.activation(scale, nl.rsqrt, scale)
        nisa.scalar_tensor_tensor(values, values, nl.multiply, scale, nl.multiply, gain)
        nl.store(rows(out, tile), values)
    return out


@jit
def layer_norm(x, epsilon):
    values, out = nl.load(x), output(x)
    parts = x.shape[1] // 512
    stats, moments = nl.ndarray((128, parts, 6), dtype=nl.float32), nl.ndarray((128, 2), dtype=nl.float32)
    for part in range(parts):
        nisa.bn_stats(stats[:, part], values[:, nl.ds(part * 512, 512)])
    nisa.bn_aggr(moments, stats)
    scale = nl.ndarray((128, 1), dtype=nl.float32)
    nisa.activation(scale, nl.rsqrt, moments[:, 1:2], bias=epsilon)
    nisa.tensor_scalar(values, values, nl.subtract, moments[:, 0:1], op1=nl.multiply, operand1=scale)
    nl.store(out, values)
    return out


@jit
def scan(decay, inputs):
    """The recurrence of a state-space model: state = decay * state + input."""
    factors, terms, out = nl.load(decay), nl.load(inputs), output(inputs)
    state, half = nl.zeros((128, 1), dtype=nl.float32), inputs.shape[1] // 2
    for part in nl.sequential_range(2):
        piece = nl.ndarray((128, half), dtype=nl.float32)
        place = nl.ds(part * half, half)
        nisa.tensor_tensor_scan(piece, factors[:, place], terms[:, place], state, nl.multiply, nl.add)
        nisa.tensor_copy(state, piece[:, half - 1 : half])
        nl.store(out[:, place], piece)
    return out


@jit
def flash_attention(q_DS, k_DS, v_SD):
    """Causal attention of one head, with a running maximum and sum for each row of 128 queries."""
    depth, length = q_DS.shape
    out_SD, keys = output(v_SD), nl.load(k_DS)
    for block in nl.affine_range(length // 128):
        query = nl.load(q_DS[:, nl.ds(block * 128, 128)])
        highest, total = nl.full((128, 1), -1e30, nl.float32), nl.zeros((128, 1), dtype=nl.float32)
        mixed = nl.zeros((128, depth), dtype=nl.float32)
        for step in nl.sequential_range(block + 1):
            scores = nl.matmul(query, keys[:, nl.ds(step * 128, 128)], transpose_x=True)
            masked = nl.ndarray((128, 128), dtype=nl.float32)
            nisa.tensor_scalar(masked, scores, nl.multiply, 1 / math.sqrt(depth))
            nisa.affine_select(masked, [[-1, 128]], 1, masked, -1e30, nl.greater_equal, (block - step) * 128)
            peak, rescale = nl.ndarray((128, 1), dtype=nl.float32), nl.ndarray((128, 1), dtype=nl.float32)
            nisa.tensor_reduce(peak, nl.maximum, masked, 1)
            nisa.tensor_tensor(peak, peak, highest, nl.maximum)
            nisa.tensor_tensor(rescale, highest, peak, nl.subtract)
            nisa.activation(rescale, nl.exp, rescale)
            negative, weight_sum = nl.negative(peak), nl.ndarray((128, 1), dtype=nl.float32)
            nisa.activation_reduce(masked, nl.exp, masked, nl.add, weight_sum, bias=negative)
            nisa.scalar_tensor_tensor(total, total, nl.multiply, rescale, nl.add, weight_sum)
            values = nl.load(rows(v_SD, step))
            update = nl.matmul(nl.transpose(masked), values, transpose_x=True)
            nisa.scalar_tensor_tensor(mixed, mixed, nl.multiply, rescale, nl.add, update)
            nisa.tensor_copy(highest, peak)
        nisa.reciprocal(total, total)
        nisa.tensor_scalar(mixed, mixed, nl.multiply, total)
        nl.store(rows(out_SD, block), mixed)
    return out_SD


@jit
def softmax(x):
    out = output(x)
    nl.store(out, nl.softmax(nl.load(x)))
    return out


def test_addition_on_numpy_arrays_and_torch_tensors():
    a, b = torch.randn(256, 8), torch.randn(256, 8)
    torch.testing.assert_close(add(a, b), a + b)
    result = simulate(add)(a.numpy(), b.numpy())
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, (a + b).numpy())


def test_transpose():
    x = torch.randn(128, 3 * 5)
    torch.testing.assert_close(transpose_2d(x, 3, 5), x.reshape(128, 3, 5).permute(0, 2, 1).reshape(128, 15))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-1)])
def test_tiled_matmul(dtype, tolerance):
    a, b = torch.randn(256, 128).to(dtype), torch.randn(256, 1024).to(dtype)
    result = matmul(a, b)
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), a.float().T @ b.float(), atol=tolerance, rtol=1e-2)


def test_average_pool():
    x = torch.randn(8, 6, 9)
    torch.testing.assert_close(average_pool(x, 3), F.avg_pool2d(x, 3))


def test_rms_norm():
    x, weight = torch.randn(256, 64), torch.randn(64)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6), F.rms_norm(x, (64,), weight, 1e-6))


def test_layer_norm():
    x = torch.randn(128, 1024) + 3
    torch.testing.assert_close(layer_norm(x, 1e-5), F.layer_norm(x, (1024,), eps=1e-5), atol=1e-5, rtol=1e-4)


def test_softmax():
    x = torch.randn(128, 40)
    torch.testing.assert_close(softmax(x), x.softmax(-1))


def test_scan_carries_its_state():
    decay, inputs = torch.rand(128, 16), torch.randn(128, 16)
    state, expected = torch.zeros(128), []
    for step in range(16):
        state = decay[:, step] * state + inputs[:, step]
        expected.append(state)
    torch.testing.assert_close(scan(decay, inputs), torch.stack(expected, 1))


@pytest.mark.parametrize(("reverse0", "reverse1"), [(True, False), (False, True)])
def test_scan_exchanges_the_operands_of_one_operator(reverse0, reverse1):
    @jit
    def kernel(x, y):
        tile, out = nl.ndarray(x.shape, x.dtype), output(x)
        options = {"reverse0": reverse0, "reverse1": reverse1}
        nisa.tensor_tensor_scan(tile, nl.load(x), nl.load(y), 1.0, nl.subtract, nl.subtract, **options)
        nl.store(out, tile)
        return out

    x, y = torch.randn(8, 6), torch.randn(8, 6)
    state, expected = torch.ones(8), []
    for left, right in zip(x.T, y.T, strict=True):
        step = state - left if reverse0 else left - state
        state = right - step if reverse1 else step - right
        expected.append(state)
    torch.testing.assert_close(kernel(x, y), torch.stack(expected, 1))


@pytest.mark.parametrize("first", [slice(0, 2), slice(0, 1), slice(0, 0)])
def test_a_product_is_added_where_an_earlier_one_was_written(first):
    """The sums are a tile of three dimensions, of which the first matmul writes all, a part, or nothing."""

    @jit
    def kernel(x, y):
        left, right, out = nl.load(x), nl.load(y), output(x, (16, 2, 8))
        total = nl.ndarray((16, 2, 8), nl.float32, buffer=nl.psum)
        if first.stop:
            nisa.nc_matmul(total[:, first], left, right[:, first])
        nisa.nc_matmul(total, left, right)
        nl.store(out, nl.copy(total))
        return out

    x, y = torch.randn(32, 16), torch.randn(32, 2, 8)
    expected = torch.einsum("km,knc->mnc", x, y)
    expected[:, first] *= 2
    torch.testing.assert_close(kernel(x, y), expected, rtol=1e-4, atol=1e-4)


def test_flash_attention():
    q, k, v = (torch.randn(384, 64) for _ in range(3))
    expected = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    torch.testing.assert_close(flash_attention(q.T.contiguous(), k.T.contiguous(), v), expected, atol=1e-5, rtol=1e-4)


def test_grid_shares_its_output():
    @jit
    def double(x):
        out, place = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.ds(nl.program_id(0) * 64, 64)
        assert nl.num_programs() == 2
        tile = nl.load(x[place])
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nl.store(out[place], tile)
        return out

    x = torch.randn(128, 4)
    torch.testing.assert_close(double[2](x), 2 * x)


@pytest.mark.parametrize("make", [torch.ones, np.ones])
def test_inputs_are_updated_in_place(make):
    @jit
    def fill(x):
        nl.store(x, nl.zeros((128, 2), dtype=x.dtype))

    x = make((128, 2), dtype=torch.float32 if make is torch.ones else np.float32)
    fill(x)
    assert x.sum() == 0


def test_gather_by_indices():
    @jit
    def gather(table, indices):
        rows_of, out = nl.load(indices), nl.ndarray((4, 8), table.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((4, 8), dtype=table.dtype)
        nisa.dma_copy(tile, table.ap([[8, 4], [1, 8]], vector_offset=rows_of, indirect_dim=0))
        nl.store(out, tile)
        return out

    table, indices = torch.randn(16, 8), torch.tensor([[3], [0], [15], [3]], dtype=torch.int32)
    torch.testing.assert_close(gather(table, indices), table[indices[:, 0]])
