"""Kernels that the public tutorials and samples of the older API teach, written again, against NumPy and torch."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.nki.legacy import (
    benchmark,
    compiler as ncc,
    isa as nisa,
    jit,
    language as nl,
    simulate_kernel,
    typing as nt,
)

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def output(shape, dtype=np.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


# ---------------------------------------------------------------------- matrix products
def tiled(lhs_T, rhs):
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = output((height, width), lhs_T.dtype)
    for m in nl.affine_range(height // 128):
        for n in nl.affine_range(width // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                left = nl.ndarray((128, 128), dtype=lhs_T.dtype, buffer=nl.sbuf)
                right = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.sbuf)
                left[...] = nl.load(lhs_T[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                right[...] = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                total += nl.matmul(left[...], right[...], transpose_x=True)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=nl.copy(total, dtype=out.dtype))
    return out


def hoisted(lhs_T, rhs):
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = output((height, width), lhs_T.dtype)
    i_left, i_right = nl.mgrid[0:128, 0:128], nl.mgrid[0:128, 0:512]
    for m in nl.affine_range(height // 128):
        lefts = nl.ndarray((depth // 128, nl.par_dim(128), 128), dtype=lhs_T.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(depth // 128):
            lefts[k, i_left.p, i_left.x] = nl.load(lhs_T[k * 128 + i_left.p, m * 128 + i_left.x])
        for n in nl.affine_range(width // 512):
            rights = nl.ndarray((depth // 128, nl.par_dim(128), 512), dtype=rhs.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(depth // 128):
                rights[k, i_right.p, i_right.x] = nl.load(rhs[k * 128 + i_right.p, n * 512 + i_right.x])
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                left, right = lefts[k, i_left.p, i_left.x], rights[k, i_right.p, i_right.x]
                total[...] += nl.matmul(left, right, transpose_x=True)
            nl.store(out[m * 128 + i_right.p, n * 512 + i_right.x], value=nl.copy(total, dtype=out.dtype))
    return out


def fully_blocked(lhs_T, rhs, in_m=2, in_n=2, in_k=2):
    (depth, height), width = lhs_T.shape, rhs.shape[1]
    out = output((height, width), lhs_T.dtype)
    block_m, block_n = 128 * in_m, 512 * in_n
    i_left, i_right = nl.mgrid[0:128, 0:block_m], nl.mgrid[0:128, 0:block_n]
    i_128, i_512 = nl.mgrid[0:128, 0:128], nl.mgrid[0:128, 0:512]
    for n in nl.affine_range(width // block_n):
        shape = (height // block_m, in_m, in_n, nl.par_dim(128), 512)
        totals = nl.zeros(shape, dtype=lhs_T.dtype, buffer=nl.sbuf)
        for k in nl.sequential_range(depth // (128 * in_k)):
            rights = nl.ndarray((in_k, nl.par_dim(128), block_n), dtype=rhs.dtype, buffer=nl.sbuf)
            for part in nl.affine_range(in_k):
                rows = (in_k * k + part) * 128
                rights[part, i_right.p, i_right.x] = nl.load(rhs[rows + i_right.p, block_n * n + i_right.x])
            for m in nl.affine_range(height // block_m):
                lefts = nl.ndarray((in_k, nl.par_dim(128), block_m), dtype=lhs_T.dtype, buffer=nl.sbuf)
                for part in nl.affine_range(in_k):
                    rows = (in_k * k + part) * 128
                    lefts[part, i_left.p, i_left.x] = nl.load(lhs_T[rows + i_left.p, block_m * m + i_left.x])
                for bn in nl.affine_range(in_n):
                    for bm in nl.affine_range(in_m):
                        total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                        for part in nl.affine_range(in_k):
                            total[...] += nisa.nc_matmul(
                                lefts[part, i_128.p, bm * 128 + i_128.x], rights[part, i_512.p, bn * 512 + i_512.x]
                            )
                        totals[m, bm, bn, i_512.p, i_512.x] += total[i_512.p, i_512.x]
        for m in nl.affine_range(height // block_m):
            for bm in nl.affine_range(in_m):
                packed = nl.ndarray((128, block_n), dtype=totals.dtype, buffer=nl.sbuf)
                for bn in nl.affine_range(in_n):
                    packed[i_512.p, bn * 512 + i_512.x] = nl.copy(totals[m, bm, bn, i_512.p, i_512.x])
                nl.store(
                    out[(in_m * m + bm) * 128 + i_right.p, block_n * n + i_right.x],
                    value=packed[i_right.p, i_right.x],
                )
    return out


@pytest.mark.parametrize("kernel", [tiled, hoisted, fully_blocked])
def test_matrix_products(kernel):
    lhs_T, rhs = normal(512, 256), normal(512, 1024)
    np.testing.assert_allclose(simulate_kernel(kernel, lhs_T, rhs), lhs_T.T @ rhs, rtol=1e-4, atol=1e-4)


def test_hoisted_loads_take_less_simulated_time():
    """Full blocks pay at the sizes of the tutorial, which docs/fidelity-details.md compares."""
    lhs_T, rhs = torch.randn(512, 256, dtype=torch.bfloat16), torch.randn(512, 1024, dtype=torch.bfloat16)
    times = []
    for kernel in (tiled, hoisted):
        bench = benchmark(kernel, warmup=1, iters=2)
        bench(lhs_T, rhs)
        times.append(bench.benchmark_result.nc_latency.get_latency_percentile(50))
    assert times[0] > times[1] > 0


# ---------------------------------------------------------------------- rows and windows
def test_transpose_of_the_elements_of_each_partition():
    def transpose(x, rows, columns):
        out = output(x.shape)
        tile = nl.load(x)
        i_p, i_row, i_column = nl.mgrid[0 : x.shape[0], 0:rows, 0:columns]
        turned = nl.ndarray((nl.par_dim(x.shape[0]), rows * columns), dtype=x.dtype)
        turned[i_p, i_column * rows + i_row] = nl.copy(tile[i_p, i_row * columns + i_column])
        nl.store(out, value=turned)
        return out

    x = normal(64, 15)
    expected = x.reshape(64, 3, 5).transpose(0, 2, 1).reshape(64, 15)
    np.testing.assert_array_equal(simulate_kernel(transpose, x, 3, 5), expected)


@pytest.mark.parametrize("length", [256, 1000])
def test_layer_norm_in_two_ways(length):
    def by_language(x, gamma, beta, epsilon):
        out = output(x.shape)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(x.shape[1])[None, :]
        scale = nl.load(gamma.reshape((1, x.shape[1]))[nl.arange(1)[:, None], i_f]).broadcast_to((128, x.shape[1]))
        shift = nl.load(beta.reshape((1, x.shape[1]))[nl.arange(1)[:, None], i_f]).broadcast_to((128, x.shape[1]))
        for block in nl.affine_range(math.ceil(x.shape[0] / 128)):
            mask = block * 128 + i_p < x.shape[0]
            tile = nl.load(x[block * 128 + i_p, i_f], mask=mask)
            centered = nl.subtract(tile, nl.sum(tile, axis=[1], mask=mask) / x.shape[1])
            variance = nl.sum(nl.square(centered), axis=[1]) / x.shape[1]
            result = centered * nl.rsqrt(variance + epsilon) * scale + shift
            nl.store(out[block * 128 + i_p, i_f], value=result, mask=mask)
        return out

    def by_instructions(x, gamma, beta, epsilon):
        out, width = output(x.shape), x.shape[1]
        i_p, i_f = nl.arange(128)[:, None], nl.arange(width)[None, :]
        i_bn, chunk = nl.arange(nl.tile_size.bn_stats_fmax)[None, :], nl.tile_size.bn_stats_fmax
        scale = nl.load(gamma.reshape((1, width))).broadcast_to((128, width))
        shift = nl.load(beta.reshape((1, width))).broadcast_to((128, width))
        for block in nl.affine_range(math.ceil(x.shape[0] / 128)):
            rows = block * 128 + i_p < x.shape[0]
            tile = nl.load(x[block * 128 + i_p, i_f], mask=rows)
            stats = nl.ndarray((nl.par_dim(128), 6 * math.ceil(width / chunk)), dtype=nl.float32)
            for part in nl.affine_range(math.ceil(width / chunk)):
                inside = rows & (part * chunk + i_bn < width)
                stats[:, nl.ds(part * 6, 6)] = nisa.bn_stats(tile[i_p, part * chunk + i_bn], mask=inside)
            mean = nisa.bn_aggr(stats, mask=rows & (nl.arange(stats.shape[1])[None, :] >= 0))
            factor = nl.rsqrt(mean[:, 1] + epsilon)
            result = nisa.tensor_scalar(tile, np.subtract, mean[:, 0], op1=np.multiply, operand1=factor, mask=rows)
            nl.store(out[block * 128 + i_p, i_f], value=result * scale + shift, mask=rows)
        return out

    x, gamma, beta = normal(200, length), normal(length), normal(length)
    reference = F.layer_norm(*map(torch.tensor, (x,)), (length,), torch.tensor(gamma), torch.tensor(beta), 1e-5)
    for kernel in (by_language, by_instructions):
        result = simulate_kernel(kernel, x, gamma, beta, 1e-5)
        np.testing.assert_allclose(result, reference.numpy(), rtol=1e-3, atol=1e-4)


def test_interpolation_reads_and_writes_by_steps():
    def nearest(x, factor):
        channels, height, width = x.shape
        out = output((channels, height * factor, width * factor))
        tile = nl.load(x)
        large = nl.ndarray((nl.par_dim(channels), height * factor, width * factor), dtype=x.dtype)
        i_c, i_h, i_w = nl.mgrid[0:channels, 0:height, 0:width]
        for row in nl.static_range(factor):
            for column in nl.static_range(factor):
                large[i_c, i_h * factor + row, i_w * factor + column] = nl.copy(tile[i_c, i_h, i_w])
        nl.store(out, value=large)
        return out

    x = normal(8, 5, 7)
    expected = F.interpolate(torch.tensor(x)[None], scale_factor=2)[0].numpy()
    np.testing.assert_array_equal(simulate_kernel(nearest, x, 2), expected)


# ---------------------------------------------------------------------- mamba
def mamba_by_state(delta, u, A, B, C):
    batch, channels, length = delta.shape
    states, tiles = A.shape[1], channels // 128
    out = output(delta.shape)
    for b in nl.affine_range(batch):
        total = nl.zeros((tiles, nl.par_dim(128), length), dtype=delta.dtype)
        for state in nl.affine_range(states):
            for tile in nl.affine_range(tiles):
                first = tile * 128
                delta_i = nl.load(delta[b, first : first + 128, 0:length])
                decay = nisa.activation(op=nl.exp, data=delta_i, scale=nl.load(A[first : first + 128, state]))
                moved = nisa.tensor_tensor(delta_i, nl.load(u[b, first : first + 128, 0:length]), op=nl.multiply)
                into = nl.load(B[b, state : state + 1, 0:length]).broadcast_to((128, length))
                grown = nisa.tensor_tensor(moved, into, op=nl.multiply)
                scanned = nisa.tensor_tensor_scan(decay, grown, initial=0, op0=np.multiply, op1=np.add)
                out_of = nl.load(C[b, state : state + 1, 0:length]).broadcast_to((128, length))
                total[tile, 0:128, 0:length] += nisa.tensor_tensor(scanned, out_of, op=nl.multiply)
        for tile in nl.affine_range(tiles):
            nl.store(out[b, tile * 128 : tile * 128 + 128, 0:length], total[tile, 0:128, 0:length])
    return out


def mamba_by_piece(delta, u, A, B, C, piece=16):
    batch, channels, length = delta.shape
    out = output(delta.shape)
    for b in nl.affine_range(batch):
        for tile in nl.affine_range(channels // 128):
            rows = slice(tile * 128, tile * 128 + 128)
            total = nl.zeros((nl.par_dim(128), length), dtype=delta.dtype)
            delta_i, u_i = nl.load(delta[b, rows, 0:length]), nl.load(u[b, rows, 0:length])
            for state in nl.affine_range(A.shape[1]):
                A_i, start = nl.load(A[rows, state]), nl.zeros((128, 1), dtype=delta.dtype)
                for number in nl.static_range(length // piece):
                    part = slice(number * piece, number * piece + piece)
                    decay = nisa.activation(op=nl.exp, data=delta_i[0:128, part], scale=A_i)
                    moved = nisa.tensor_tensor(delta_i[0:128, part], u_i[0:128, part], op=nl.multiply)
                    into = nl.load(B[b, state : state + 1, part]).broadcast_to((128, piece))
                    grown = nisa.tensor_tensor(moved, into, op=nl.multiply)
                    scanned = nisa.tensor_tensor_scan(decay, grown, initial=start, op0=np.multiply, op1=np.add)
                    start[...] = scanned[0:128, piece - 1]
                    out_of = nl.load(C[b, state : state + 1, part]).broadcast_to((128, piece))
                    total[0:128, part] += nisa.tensor_tensor(scanned, out_of, op=nl.multiply)
            nl.store(out[b, rows, 0:length], total[0:128, 0:length])
    return out


@pytest.mark.parametrize("kernel", [mamba_by_state, mamba_by_piece])
def test_mamba(kernel):
    batch, channels, length, states = 1, 256, 32, 4
    delta, u, A = (
        np.abs(normal(batch, channels, length)) * 0.1,
        normal(batch, channels, length),
        -np.abs(normal(channels, states)),
    )
    B, C = normal(batch, states, length), normal(batch, states, length)
    state, columns = np.zeros((batch, channels, states)), []
    for t in range(length):
        step = delta[:, :, t, None]
        state = np.exp(step * A[None]) * state + step * B[:, None, :, t] * u[:, :, t, None]
        columns.append((state * C[:, None, :, t]).sum(-1))
    np.testing.assert_allclose(simulate_kernel(kernel, delta, u, A, B, C), np.stack(columns, -1), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- attention
def diffusion_attention(q, k, v, use_causal_mask=False, mixed_precision=True):
    length, depth = q.shape
    tiles, narrow = length // 128, nl.bfloat16 if mixed_precision else np.float32
    out = output(q.shape, q.dtype)
    i_p, i_d, i_s = nl.arange(128)[:, None], nl.arange(depth)[None, :], nl.arange(128)[None, :]
    i_depth = nl.arange(depth)[:, None]
    values = nl.ndarray((nl.par_dim(128), tiles, depth), dtype=narrow)
    queries = nl.ndarray((tiles, nl.par_dim(depth), 128), dtype=narrow)
    keys = nl.ndarray((tiles, nl.par_dim(depth), 128), dtype=narrow)
    for tile in nl.affine_range(tiles):
        values[i_p, tile, i_d] = nl.load(v[tile * 128 + i_p, i_d], dtype=narrow)
        queries[tile, i_depth, i_s] = nl.load_transpose2d(q[tile * 128 + i_p, i_d], dtype=narrow) * 0.125
        keys[tile, i_depth, i_s] = nl.load_transpose2d(k[tile * 128 + i_p, i_d], dtype=narrow)
    for row in nl.affine_range(tiles):
        scores = nl.ndarray((nl.par_dim(128), length), dtype=np.float32)
        lowest = nl.ndarray((nl.par_dim(128), tiles), dtype=np.float32)
        for tile in nl.affine_range(tiles):
            product = nl.zeros((nl.par_dim(128), 128), dtype=np.float32, buffer=nl.psum)
            product[i_p, i_s] += nisa.nc_matmul(moving=keys[tile, i_depth, i_s], stationary=queries[row, i_depth, i_s])
            if use_causal_mask:
                scores[i_p, tile * 128 + i_s] = nisa.affine_select(
                    pred=row * 128 + i_p >= tile * 128 + i_s,
                    on_true_tile=product[i_p, i_s],
                    on_false_value=-9984.0,
                    dtype=np.float32,
                )
            else:
                scores[i_p, tile * 128 + i_s] = nl.copy(product[i_p, i_s], dtype=np.float32)
            lowest[i_p, tile] = nisa.tensor_reduce(
                np.max, data=scores[i_p, tile * 128 + i_s], axis=(1,), dtype=np.float32, negate=True
            )
        shift = nisa.tensor_reduce(np.min, data=lowest[i_p, nl.arange(tiles)[None, :]], axis=(1,), dtype=np.float32)
        powers = nisa.activation(np.exp, data=scores[i_p, nl.arange(length)[None, :]], bias=shift, scale=1.0)
        total = nisa.tensor_reduce(np.add, data=powers, axis=(1,), dtype=np.float32)
        weights = nl.ndarray((nl.par_dim(128), length), dtype=narrow)
        weights[i_p, nl.arange(length)[None, :]] = nl.copy(powers, dtype=narrow)
        divisor = nl.ndarray((nl.par_dim(128), depth), dtype=np.float32)
        divisor[i_p, i_d] = nl.copy((1.0 / total).broadcast_to((128, depth)), dtype=np.float32)
        turned = nl.ndarray((nl.par_dim(128), tiles, 128), dtype=narrow)
        result = nl.zeros((nl.par_dim(depth), 128), dtype=np.float32, buffer=nl.psum)
        for tile in nl.affine_range(tiles):
            turned[i_p, tile, i_s] = nisa.nc_transpose(weights[i_p, tile * 128 + i_s])
        for tile in nl.affine_range(tiles):
            result[i_depth, i_s] += nisa.nc_matmul(moving=turned[i_p, tile, i_s], stationary=values[i_p, tile, i_d])
        scaled = nl.copy(result[i_depth, i_s], dtype=np.float32) * nisa.nc_transpose(divisor[i_p, i_d])
        nl.store(out[row * 128 + i_s, i_depth], value=scaled)
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_diffusion_attention(causal):
    q, k, v = (RNG.random((256, 64)).astype(np.float32) for _ in range(3))
    states = (torch.tensor(x)[None] for x in (q, k, v))
    reference = F.scaled_dot_product_attention(*states, is_causal=causal, scale=0.125)[0].numpy()
    result = simulate_kernel(diffusion_attention, q, k, v, use_causal_mask=causal)
    np.testing.assert_allclose(result, reference, atol=1e-2)
    exact = simulate_kernel(diffusion_attention, q, k, v, use_causal_mask=causal, mixed_precision=False)
    np.testing.assert_allclose(exact, reference, rtol=1e-4, atol=1e-5)


@dataclasses.dataclass(frozen=True)
class Sizes:
    keys: int = 512
    is_training: bool = True


@jit(mode="trace")
def attend(q_tile, k_tile, v_tiles, o, l, m, first_row, first_key, sizes):  # noqa: E741
    scores = nl.ndarray((nl.par_dim(128), sizes.keys), buffer=nl.sbuf, dtype=np.float32)
    product = nl.ndarray((nl.par_dim(128), sizes.keys), dtype=np.float32, buffer=nl.psum)
    product[:, :] = nl.matmul(q_tile, k_tile, transpose_x=True)
    i_q, i_k = nl.mgrid[0:128, 0 : sizes.keys]
    scores[:, :] = nisa.affine_select(
        pred=first_row + i_q >= first_key + i_k, on_true_tile=product, on_false_value=nl.fp32.min, dtype=np.float32
    )
    highest = nisa.tensor_reduce(np.max, scores[:, :], axis=(1,), dtype=np.float32, negate=False)
    before = nl.copy(m[:, 0])
    m[:, 0] = nl.maximum(before, highest)
    now = m[:, 0]
    shrink = nisa.activation(np.exp, now, bias=before, scale=-1.0)
    scaled = nl.ndarray((nl.par_dim(128), o.shape[1]), dtype=np.float32)
    scaled[...] = nl.multiply(o[:, :], shrink)
    weights, parts = nl.ndarray((nl.par_dim(128), sizes.keys), np.float32), nl.ndarray((nl.par_dim(128), 1), np.float32)
    weights[:, :] = nisa.activation_reduce(
        np.exp, scores[:, :], bias=-1 * now, scale=1.0, reduce_op=nl.add, reduce_res=parts[:, 0], dtype=np.float32
    )
    total = nl.sum(parts, axis=1, dtype=np.float32)
    result = nl.zeros((nl.par_dim(128), o.shape[1]), dtype=np.float32, buffer=nl.psum, lazy_initialization=True)
    for part in nl.affine_range(sizes.keys // 128):
        turned = nl.ndarray((nl.par_dim(128), 128), buffer=nl.psum, dtype=np.float32)
        turned[:, nl.ds(0, 128)] = nisa.nc_transpose(weights[:, nl.ds(part * 128, 128)])
        result[:, :] += nl.matmul(nl.copy(turned), v_tiles[part, :, :], transpose_x=True)
    o[:, :] = nl.add(scaled, result)
    power = nisa.activation(nl.exp, now, bias=l[:, 0], scale=-1.0)
    l[:, 0] = nl.add(now, nisa.activation(nl.log, power, bias=total))


def flash(q, k, v, sizes=None):
    sizes = sizes or Sizes()
    batch, heads, depth, length = q.shape
    out = output((batch, heads, length, depth))
    lse = output((batch, heads, 128, length // 128)) if sizes.is_training else None
    assert nl.program_ndim() == 2
    b, head = nl.program_id(axis=0), nl.program_id(axis=1)
    tiles = length // 128
    for group in nl.affine_range(heads // k.shape[1]):
        own = head * (heads // k.shape[1]) + group
        l = nl.full((nl.par_dim(128), tiles), fill_value=nl.fp32.min, dtype=np.float32, lazy_initialization=False)  # noqa: E741
        o = nl.zeros((tiles, nl.par_dim(128), depth), dtype=np.float32, buffer=nl.sbuf)
        m = nl.full((tiles, nl.par_dim(128), 1), fill_value=nl.fp32.min, dtype=np.float32)
        for j in nl.sequential_range(0, k.shape[3] // sizes.keys):
            k_tile = nl.ndarray((nl.par_dim(depth), sizes.keys), dtype=np.float32)
            k_tile[:, :] = nl.load(k[b, head, :, nl.ds(j * sizes.keys, sizes.keys)])
            v_tiles = nl.ndarray((sizes.keys // 128, nl.par_dim(128), depth), dtype=np.float32)
            v_head = v[b, head]
            for part in nl.affine_range(sizes.keys // 128):
                v_tiles[part, :, :] = nl.load(v_head[nl.ds(j * sizes.keys + 128 * part, 128), :])
            for i in nl.affine_range(tiles):
                if (i < tiles) & ((i + 1) * 128 > j * sizes.keys):
                    q_tile = nl.ndarray((depth, 128), dtype=np.float32)
                    q_tile[:, :] = nl.load(q[b, own][:, nl.ds(i * 128, 128)]) * (1.0 / depth**0.5)
                    attend(
                        q_tile=q_tile,
                        k_tile=k_tile,
                        v_tiles=v_tiles,
                        o=o[i],
                        l=l[:, i],
                        m=m[i],
                        first_row=i * 128,
                        first_key=j * sizes.keys,
                        sizes=sizes,
                    )
        for i in nl.affine_range(tiles):
            factor = nisa.activation(np.exp, l[:, i], bias=m[i, :, :], scale=-1.0)
            nl.store(out[b, own, nl.ds(i * 128, 128), :], nl.multiply(o[i, :, :], factor))
        if sizes.is_training:
            nl.store(lse[b, own, :, :], l[:, :])
    return (out, lse) if sizes.is_training else out


def test_flash_attention_of_groups_on_a_grid():
    batch, heads, groups, depth, length = 1, 2, 1, 64, 1024
    q, k = normal(batch, heads, depth, length), normal(batch, groups, depth, length)
    v = normal(batch, groups, length, depth)
    result, lse = simulate_kernel(jit(flash)[batch, groups], q, k, v)
    queries, keys = torch.tensor(q).transpose(2, 3), torch.tensor(k).transpose(2, 3).expand(-1, heads, -1, -1)
    values = torch.tensor(v).expand(-1, heads, -1, -1)
    reference = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    np.testing.assert_allclose(result, reference.numpy(), rtol=1e-3, atol=1e-4)
    scores = (queries @ keys.transpose(2, 3)) / depth**0.5
    scores = scores.masked_fill(~torch.ones(length, length).tril().bool(), -torch.inf)
    sums = scores.logsumexp(-1).reshape(batch, heads, length // 128, 128).transpose(2, 3)
    np.testing.assert_allclose(lse, sums.numpy(), rtol=1e-3, atol=1e-3)


# ---------------------------------------------------------------------- placed by hand
def test_rms_norm_and_product_with_tiles_placed_by_hand():
    def kernel(hidden, weights, epsilon=1e-6):
        batch, length, width = hidden.shape
        columns, parts = weights.shape[1], width // 128
        out = output((batch, length, columns), hidden.dtype)
        i_row, i_square = nl.mgrid[0:128, 0:width], nl.mgrid[0:128, 0:128]
        i_out = nl.mgrid[0:128, 0:columns]
        where = 0

        def take(count, size):
            nonlocal where
            where += count * size
            return ncc.sbuf.mod_alloc(base_addr=where - count * size, num_free_tiles=(count,))

        identity = nl.ndarray((nl.par_dim(128), 128), hidden.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=where))
        where += 512
        identity[...] = nl.load(nl.shared_constant(np.identity(128, dtype=np.int8), dtype=hidden.dtype))
        zero = nl.ndarray((nl.par_dim(128), 1), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=where))
        where += 4
        zero[...] = 0
        loaded = nl.ndarray((parts, nl.par_dim(128), columns), weights.dtype, buffer=take(parts, columns * 4))
        for part in nl.affine_range(parts):
            loaded[part, i_out.p, i_out.x] = nl.load(weights[part * 128 + i_out.p, i_out.x])
        rows = nl.ndarray((2, nl.par_dim(128), width), hidden.dtype, buffer=take(2, width * 4))
        squares = nl.ndarray((2, nl.par_dim(128), width), np.float32, buffer=take(2, width * 4))
        total = nl.ndarray((2, nl.par_dim(128), 1), np.float32, buffer=take(2, 4))
        normed = nl.ndarray((2, nl.par_dim(128), width), hidden.dtype, buffer=take(2, width * 4))
        result = nl.ndarray((2, nl.par_dim(128), columns), hidden.dtype, buffer=take(2, columns * 4))
        for b in nl.affine_range(batch):
            for half in nl.affine_range(math.ceil(length / 256)):
                for turn in nl.affine_range(2):
                    first = (2 * half + turn) * 128
                    inside = first + i_row.p < length
                    rows[turn] = nl.load(hidden[b, first + i_row.p, i_row.x], mask=inside)
                    squares[turn] = nisa.activation_reduce(
                        op=nl.square, data=rows[turn], reduce_op=np.add, reduce_res=total[turn], bias=zero[...]
                    )
                    total[turn] = nisa.tensor_scalar(total[turn], np.multiply, 1 / width, op1=np.add, operand1=epsilon)
                    total[turn] = nisa.activation(op=nl.rsqrt, data=total[turn], bias=zero[...])
                    normed[turn] = nl.multiply(rows[turn], total[turn], dtype=hidden.dtype)
                    turned = nl.ndarray(
                        (parts, nl.par_dim(128), 128),
                        np.float32,
                        buffer=ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(2,)),
                    )
                    for part in nl.affine_range(parts):
                        turned[part, i_square.p, i_square.x] = nisa.nc_matmul(
                            normed[turn, i_square.p, part * 128 + i_square.x], identity[...], is_transpose=True
                        )
                        normed[turn, i_square.p, part * 128 + i_square.x] = nl.copy(turned[part], dtype=hidden.dtype)
                    sums = nl.ndarray(
                        (1, nl.par_dim(128), columns),
                        np.float32,
                        buffer=ncc.psum.alloc(functools.partial(bank, number=7)),
                    )
                    for part in nl.affine_range(parts):
                        sums[0] += nisa.nc_matmul(
                            normed[turn, i_square.p, part * 128 + i_square.x], loaded[part, i_out.p, i_out.x]
                        )
                    result[turn] = nl.copy(sums[0], dtype=out.dtype)
                    nl.store(out[b, first + i_out.p, i_out.x], value=result[turn], mask=first + i_out.p < length)
        return out

    def bank(idx, pdim_size, fdim_size, number):
        return number, 0, 0

    hidden, weights = normal(1, 300, 256), normal(256, 96)
    reference = F.rms_norm(torch.tensor(hidden), (256,), eps=1e-6) @ torch.tensor(weights)
    np.testing.assert_allclose(simulate_kernel(kernel, hidden, weights), reference.numpy(), rtol=1e-3, atol=1e-4)


def test_gather_and_pick_by_indices_in_memory():
    def kernel(table, index, start):
        outs = output((64, table.shape[1])), output((1, 32))
        i_p, i_f = nl.arange(64)[:, None], nl.arange(table.shape[1])[None, :]
        rows: nt.tensor[64, 1] = nl.load(index[i_p])
        nl.store(outs[0], value=nl.load(table[rows[i_p, 0], i_f]))
        first = nl.load(start)
        tile = nl.load(table[0:1, :])
        nl.store(
            outs[1], value=nisa.tensor_copy_dynamic_src(tile[nl.arange(1)[:, None], first + nl.arange(32)[None, :]])
        )
        return outs

    table, index = normal(128, 64), RNG.permutation(128)[:64].astype(np.int32)
    rows, part = simulate_kernel(kernel, table, index, np.array([[5]], dtype=np.int32))
    np.testing.assert_array_equal(rows, table[index])
    np.testing.assert_array_equal(part, table[:1, 5:37])


def test_programs_of_a_grid_reduce_together():
    def kernel(x):
        out = output(x.shape)
        row, column = nl.program_id(0), nl.program_id(1)
        total = nl.all_reduce(nl.load(x[row, column]), op=np.add, program_axes=1)
        nl.store(out[row, column], value=total)
        return out

    x = normal(2, 3, 16, 8)
    expected = np.broadcast_to(x.sum(1, keepdims=True), x.shape)
    np.testing.assert_allclose(jit(kernel)[2, 3](x), expected, rtol=1e-5, atol=1e-6)
