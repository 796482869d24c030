"""The older API: kernels as its public tutorials teach them, against NumPy and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.errors import ConfigError, KernelError
from optimum_neuron.nki.legacy import compiler as ncc, isa as nisa, jit, language as nl, simulate_kernel

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def output(shape, dtype=np.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def test_addition_on_a_grid():
    @jit
    def add(a, b):
        out = output(a.shape)
        ix = nl.program_id(0) * 128 + nl.arange(128)[:, None]
        iy = nl.program_id(1) * 64 + nl.arange(64)[None, :]
        nl.store(out[ix, iy], value=nl.load(a[ix, iy]) + nl.load(b[ix, iy]))
        return out

    a, b = normal(256, 128), normal(256, 128)
    np.testing.assert_array_equal(add[2, 2](a, b), a + b)
    assert isinstance(add[2, 2](torch.tensor(a), torch.tensor(b)), torch.Tensor)


@pytest.mark.parametrize("rows", [128, 200])
def test_rms_norm_with_a_mask(rows):
    def rms_norm(a, g):
        out = output(a.shape)
        ix, iw, iy = nl.arange(128)[:, None], nl.arange(1)[:, None], nl.arange(a.shape[1])[None, :]
        weights = nl.load(g.reshape((1, a.shape[1]))[iw, iy])
        for block in nl.affine_range(math.ceil(a.shape[0] / 128)):
            mask = block * 128 + ix < a.shape[0]
            tile = nl.load(a[block * 128 + ix, iy], mask=mask)
            mean = nl.sum(nl.square(tile), axis=[1]) / a.shape[1]
            result = nl.multiply(tile * nl.rsqrt(mean), weights.broadcast_to((128, a.shape[1])))
            nl.store(out[block * 128 + ix, iy], value=result, mask=mask)
        return out

    a, g = normal(rows, 96), normal(96)
    reference = F.rms_norm(torch.tensor(a), (96,), torch.tensor(g), 0.0).numpy()
    np.testing.assert_allclose(simulate_kernel(rms_norm, a, g), reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("through_language", [True, False])
def test_matmul_accumulates_in_psum(through_language):
    def matmul(lhs_T, rhs):
        (depth, height), width = lhs_T.shape, rhs.shape[1]
        out = output((height, width))
        for m in nl.affine_range(height // 128):
            total = nl.zeros((nl.par_dim(128), width), nl.float32, buffer=nl.psum)
            i_m, i_n = nl.mgrid[0:128, 0:width]
            for k in nl.affine_range(depth // 128):
                left = nl.load(lhs_T[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                right = nl.load(rhs[k * 128 + i_m, i_n])
                if through_language:
                    total += nl.matmul(left, right, transpose_x=True)
                else:
                    total[i_m, i_n] += nisa.nc_matmul(left, right)
            nl.store(out[m * 128 + i_m, i_n], value=nl.copy(total, dtype=out.dtype))
        return out

    lhs_T, rhs = normal(256, 256), normal(256, 512)
    np.testing.assert_allclose(simulate_kernel(matmul, lhs_T, rhs), lhs_T.T @ rhs, rtol=1e-4, atol=1e-4)


def test_average_pool_with_five_dimensions_of_indices():
    def pool(x, window):
        channels, height, width = x.shape
        out = output((channels, height // window, width // window))
        tile = nl.load(x)
        i0 = nl.arange(channels)[:, None, None, None, None]
        i1, i2 = nl.arange(height // window)[:, None, None, None], nl.arange(width // window)[:, None, None]
        i3, i4 = nl.arange(window)[:, None], nl.arange(window)
        blocks = tile[i0, window * i1[None] + i3, window * i2[None] + i4]
        nl.store(out, value=nl.sum(blocks, axis=[3, 4], keepdims=False) / window**2)
        return out

    x = normal(16, 8, 6)
    np.testing.assert_allclose(
        simulate_kernel(pool, x, 2), F.avg_pool2d(torch.tensor(x), 2).numpy(), rtol=1e-5, atol=1e-6
    )


def test_one_element_is_loaded_and_an_empty_grid_is_refused():
    @jit
    def body(x):
        out = output((1, 1))
        nl.store(out, nl.load(x[1, 2]))
        return out

    x = normal(2, 3)
    np.testing.assert_array_equal(body(x), x[1:, 2:])
    with pytest.raises(ConfigError) as error:
        body[0](x)
    assert error.value.details["grid"] == (0,)


def test_slices_behind_the_end_are_cut_by_a_mask_and_steps_go_backward():
    @jit
    def body(x):
        out = output((100, 4))
        i_p, i_f = nl.arange(128)[:, None], nl.arange(4)[None, :]
        tile = nl.load(x[0:128, 2:6], mask=i_p < 100)
        nl.store(out[i_p, i_f], value=tile[i_p, 3 - i_f] - tile, mask=i_p < 100)
        return out

    x = normal(100, 8)
    np.testing.assert_array_equal(body(x), x[:, 5:1:-1] - x[:, 2:6])


@pytest.mark.parametrize("columns", [slice(None), slice(-4, None), slice(1, -2), slice(0, 0)])
def test_other_slices_beside_one_behind_the_end_are_those_of_numpy(columns):
    x, shapes = normal(100, 8), []

    @jit
    def body(x):
        out, tile = output((100, 8)), nl.load(x[0:128, columns], mask=nl.arange(128)[:, None] < 100)
        shapes.append(tile.shape)
        nl.store(out[0:100, 0:8], value=nl.load(x))
        if tile.shape[1]:
            nl.store(out[0:100, 0 : tile.shape[1]], value=tile[0:100])
        return out

    wanted = x[:, columns]
    np.testing.assert_array_equal(body(x)[:, : wanted.shape[1]], wanted)
    assert shapes == [(128, wanted.shape[1])]


@pytest.mark.parametrize("through", ["load", "store", "both"])
def test_a_mask_that_leaves_no_block_is_one_of_loads_and_stores(through):
    @jit
    def body(x):
        out = output((64, 48))
        nl.store(out, 7.0)
        i_p, i_f = nl.arange(64)[:, None], nl.arange(48)[None, :]
        tile = nl.load(x[i_p, 47 - i_f], mask=None if through == "store" else i_p >= i_f)
        nl.store(out[i_p, i_f], value=tile, mask=None if through == "load" else i_p >= i_f)
        return out

    x = normal(64, 48)
    np.testing.assert_array_equal(np.tril(body(x)), np.tril(x[:, ::-1]))
    if through != "load":
        assert (body(x)[np.triu_indices(64, 1, 48)] == 7).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_instructions_reduce_what_any_mask_leaves(dtype):
    x = (100 * normal(64, 48) - 300).astype(np.int32).clip(0 if dtype == np.uint8 else None, 255).astype(dtype)
    x += 3 * (dtype == np.uint8)

    @jit
    def body(x):
        tile, mask = nl.load(x), nl.arange(64)[:, None] >= nl.arange(48)[None, :]
        found = [nisa.tensor_reduce(op, tile, axis=(1,), mask=mask, keepdims=True) for op in (np.max, np.min)]
        found += [nl.max(tile, axis=[1], mask=mask), nisa.tensor_partition_reduce(np.max, tile, mask=mask)]
        outs = [output(one.shape, dtype) for one in found]
        for out, one in zip(outs, found, strict=True):
            nl.store(out, one)
        return tuple(outs)

    seen, wide = np.tri(64, 48, dtype=bool), x.astype(np.float64)
    highest, lowest = np.where(seen, wide, -np.inf), np.where(seen, wide, np.inf)
    largest, smallest, also_largest, over_rows = body(x)
    np.testing.assert_array_equal(largest[:, 0], highest.max(1))
    np.testing.assert_array_equal(smallest[:, 0], lowest.min(1))
    np.testing.assert_array_equal(also_largest[:, 0], highest.max(1))
    np.testing.assert_array_equal(over_rows[0], highest.max(0))


def test_what_a_mask_leaves_may_be_smaller_than_the_tile():
    @jit
    def body(x):
        tile, out, sums = nl.load(x), output(x.shape), output((1, 48))
        i_p, i_f = nl.arange(8)[:, None], nl.arange(48)[None, :]
        nl.store(out, 0.0)
        nl.store(sums, 0.0)
        nl.store(out, nisa.activation(np.exp, tile, mask=i_p >= i_f))
        nl.store(sums, nisa.tensor_partition_reduce(np.add, tile, mask=i_f < 40))
        return out, sums

    x = normal(8, 48)
    powers, sums = body(x)
    np.testing.assert_allclose(powers[np.tril_indices(8, 0, 48)], np.exp(x)[np.tril_indices(8, 0, 48)], rtol=1e-6)
    np.testing.assert_allclose(sums[0, :40], x.sum(0)[:40], rtol=1e-5)


def test_results_have_the_dtype_that_is_asked_for_or_that_of_their_tiles():
    tiles = {}

    @jit
    def kernel(x):
        tile = nl.load(x)
        tiles["doubled"] = tile * 2
        tiles["summed"] = nl.sum(tile, axis=[1], dtype=nl.float32)
        tiles["turned"] = nisa.dma_transpose(tile)
        tiles["wider"] = nisa.dma_transpose(tile, dtype=nl.float32)
        tiles["number"] = nisa.memset((8, 4), np.bool_(True), nl.int32)
        tiles["column"] = nisa.iota(nl.arange(8), nl.int32)
        tiles["zeros"] = nl.zeros((nl.par_dim(8), 4), nl.float32, lazy_initialization=True)
        outs = [output(tile.shape, tile.dtype) for tile in tiles.values()]
        for out, tile in zip(outs, tiles.values(), strict=True):
            nl.store(out, tile)
        return tuple(outs)

    x = torch.tensor(normal(16, 32)).bfloat16()
    wide = x.float()
    expected = {"doubled": 2 * x, "summed": wide.sum(1, keepdim=True), "turned": x.T, "wider": wide.T}
    expected |= {"number": torch.ones((8, 4), dtype=torch.int32), "column": torch.arange(8, dtype=torch.int32)[:, None]}
    expected["zeros"] = torch.zeros(8, 4)
    for one, wanted in zip(kernel(x), expected.values(), strict=True):
        torch.testing.assert_close(one, wanted)


@pytest.mark.parametrize("width", [1, 48])
def test_operators_of_what_a_mask_leaves(width):
    @jit
    def kernel(x, y):
        out, columns = output(x.shape), nl.arange(48)[None, :]
        mask = (nl.arange(16)[:, None] < 9) & (columns >= 1) & (columns < 40)
        nl.store(out, 0.0)
        nl.store(out, nl.add(nl.load(x), nl.load(y), mask=mask), mask=mask)
        nothing = columns > 50
        nl.store(out, nisa.tensor_scalar(nl.load(x), np.add, 1.0, mask=nothing), mask=nothing)
        return out

    x, y = normal(16, 48), normal(16, width)
    expected = np.zeros((16, 48), np.float32)
    expected[:9, 1:40] = (x + y)[:9, 1:40]
    np.testing.assert_array_equal(kernel(x, y), expected)


def test_attention_by_instructions():
    def attention(q_DS, k_DS, v_SD):
        depth, length = q_DS.shape
        out, scale = output(v_SD.shape), 1 / math.sqrt(depth)
        queries, keys, values = (nl.load(tensor) for tensor in (q_DS, k_DS, v_SD))
        scores = nisa.tensor_copy(nisa.nc_matmul(queries, keys))
        i_q, i_k = nl.mgrid[0:length, 0:length]
        scores = nisa.affine_select(i_q >= i_k, scores, -1e30)
        lowest = nisa.tensor_reduce(np.max, scores, axis=[1], negate=True)
        powers = nisa.activation(np.exp, scores, bias=nisa.tensor_scalar(lowest, np.multiply, scale), scale=scale)
        total = nisa.reciprocal(nl.sum(powers, axis=[1]))
        weights = nisa.tensor_copy(nisa.nc_transpose(powers))
        nl.store(out, value=nisa.tensor_scalar(nisa.nc_matmul(weights, values), np.multiply, total))
        return out

    q, k, v = (normal(128, 64) for _ in range(3))
    states = (torch.tensor(x)[None] for x in (q, k, v))
    reference = F.scaled_dot_product_attention(*states, is_causal=True)[0].numpy()
    np.testing.assert_allclose(simulate_kernel(attention, q.T.copy(), k.T.copy(), v), reference, rtol=1e-4, atol=1e-5)


def test_layer_norm_and_scan():
    def body(x, decay):
        outs = output(x.shape), output(x.shape)
        tile = nl.load(x)
        mean_and_variance = nisa.bn_aggr(nisa.bn_stats(tile))
        shift = nl.rsqrt(mean_and_variance[:, 1:2] + 0.01)
        nl.store(outs[0], value=(tile - mean_and_variance[:, 0:1]) * shift)
        nl.store(outs[1], value=nisa.tensor_tensor_scan(nl.load(decay), tile, 0.0, np.multiply, np.add))
        return outs

    x, decay = normal(128, 40), normal(128, 40)
    normal_, scanned = simulate_kernel(body, x, decay)
    np.testing.assert_allclose(normal_, F.layer_norm(torch.tensor(x), (40,), eps=0.01).numpy(), rtol=1e-4, atol=1e-5)
    state, columns = np.zeros(128, np.float32), []
    for column in range(40):
        state = decay[:, column] * state + x[:, column]
        columns.append(state)
    np.testing.assert_allclose(scanned, np.stack(columns, 1), rtol=1e-4, atol=1e-5)


def test_reductions_and_softmax_of_what_a_mask_leaves():
    def body(x):
        outs = output((128, 1)), output(x.shape), output((128, 8), np.int32)
        ix, iy = nl.arange(128)[:, None], nl.arange(64)[None, :]
        tile = nl.load(x)
        mask = (iy < 40) & (ix < 100)
        nl.store(outs[0][ix, nl.arange(1)[None, :]], value=nl.max(tile[ix, iy], axis=1, mask=mask), mask=ix < 100)
        nl.store(outs[0][nl.arange(28)[:, None] + 100, nl.arange(1)[None, :]], value=7)
        nl.store(outs[1], value=nl.softmax(tile, axis=1))
        nl.store(outs[1][ix, iy], value=nl.softmax(tile, axis=[1], mask=mask), mask=mask)
        nl.store(outs[2], value=nisa.iota(nl.arange(128)[:, None] * 3 + nl.arange(8)[None, :], nl.int32))
        return outs

    x = normal(128, 64)
    largest, soft, numbers = simulate_kernel(body, x)
    np.testing.assert_array_equal(largest[:100, 0], x[:100, :40].max(1))
    assert (largest[100:] == 7).all()
    reference = torch.tensor(x).softmax(1)
    reference[:100, :40] = torch.tensor(x)[:100, :40].softmax(1)
    np.testing.assert_allclose(soft, reference.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(numbers, np.arange(128)[:, None] * 3 + np.arange(8))


ROW, COLUMN = nl.arange(128)[:, None], nl.arange(64)[None, :]


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("bounds", lambda x: nl.load(x[ROW + 1, COLUMN])),
        ("mask", lambda x: nl.var(nl.load(x), axis=1, mask=ROW >= COLUMN)),
        ("mask", lambda x: nisa.bn_stats(nl.load(x), mask=ROW >= COLUMN)),
        ("mask", lambda x: nisa.tensor_tensor_scan(nl.load(x), nl.load(x), 0, np.add, np.add, mask=ROW >= COLUMN)),
        ("affine", lambda x: nl.load(x[ROW, COLUMN * COLUMN // 64])),
        ("affine", lambda x: nisa.iota(ROW * COLUMN, nl.int32)),
        ("rank", lambda x: x[ROW]),
        ("block", lambda x: nl.exp(nl.ndarray((4, nl.par_dim(128), 8), nl.float32)[0:2])),
        ("partition", lambda x: nl.ndarray((nl.par_dim(4), nl.par_dim(128), 8), nl.float32)),
        ("address", lambda x: nl.ndarray((128, 8), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=224 * 1024))),
        ("address", lambda x: nl.ndarray((128, 8), nl.float32, buffer=ncc.sbuf.alloc(lambda idx, rows, size: (0, -4)))),
        (
            "address",
            lambda x: nl.ndarray((128, 8), nl.float32, buffer=ncc.psum.alloc(lambda idx, rows, size: (-1, 0, 0))),
        ),
        ("buffer", lambda x: nl.load(nl.zeros((128, 8), nl.float32))),
        ("assignment", lambda x: ROW.__setitem__((0, 0), 1)),
    ],
)
def test_refused(rule, body):
    with pytest.raises(KernelError) as excinfo:
        simulate_kernel(body, normal(128, 64))
    assert excinfo.value.details["rule"] == rule and excinfo.value.details["line"].startswith(__file__)


def test_options_of_jit():
    assert jit(mode="simulation")(lambda x: x)(1) == 1
    with pytest.raises(ConfigError):
        jit(lambda x: x, mode="fast")
    with pytest.raises(ConfigError):
        jit(lambda x: x, cache=True)


@pytest.mark.parametrize("divisor", [7, 7.0])
def test_integers_divide_to_floats(divisor):
    """Rows and columns of flat positions, as kernels that resize images compute them."""

    @jit
    def kernel():
        rows, columns = output((128, 8), np.int32), output((128, 8), np.int32)
        positions = nisa.iota(nl.arange(128)[:, None] * 8 + nl.arange(8)[None, :], dtype=nl.int32)
        nl.store(rows, nl.floor(positions / divisor, dtype=nl.int32))
        nl.store(columns, nl.floor(positions * 0.3, dtype=nl.int32))
        return rows, columns

    rows, columns = kernel()
    positions = np.arange(1024).reshape(128, 8)
    np.testing.assert_array_equal(rows, positions // 7)
    np.testing.assert_array_equal(columns, np.floor(positions.astype(np.float32) * np.float32(0.3)))


@pytest.mark.parametrize("command", ["reset_reduce", "load_reduce"])
@pytest.mark.parametrize(("op", "running"), [(nl.add, np.add), (nl.max, np.maximum), (np.multiply, np.multiply)])
def test_running_reductions(op, running, command):
    @jit
    def kernel(x, start):
        out, tile = output(x.shape), nl.ndarray((nl.par_dim(32), 16), dtype=nl.float32, buffer=nl.sbuf)
        commands = (
            {"imm1": nl.load(start), "reduce_cmd": nisa.reduce_cmd.load_reduce} if command == "load_reduce" else {}
        )
        nisa.tensor_scalar_cumulative(src=nl.load(x), dst=tile, op0=nl.multiply, op1=op, imm0=0.5, **commands)
        nl.store(out, tile)
        return out

    x, start = normal(32, 16), normal(32, 1)
    first = {"reset_reduce": x[:, :1] * 0.5, "load_reduce": running(x[:, :1] * 0.5, start)}[command]
    expected = running.accumulate(np.concatenate([first, x[:, 1:] * 0.5], 1), axis=1)
    np.testing.assert_allclose(kernel(x, start), expected, rtol=1e-5)


def test_elements_are_assigned_at_every_partition():
    @jit
    def kernel(x):
        out, tile = output((8, 4)), nl.zeros((nl.par_dim(8), 4), dtype=nl.float32)
        rows = nl.load(x)
        for row in nl.static_range(8):
            tile[row, 1] = row * 5
            tile[row : row + 1, 2:4] = rows[7 - row : 8 - row, 0:2] if row % 4 == 3 else 1.0
        nl.store(out, tile)
        return out

    x = normal(8, 4)
    expected = np.stack([np.zeros(8), np.arange(8) * 5, np.ones(8), np.ones(8)], 1)
    expected[[3, 7], 2:] = x[[4, 0], :2]
    np.testing.assert_allclose(kernel(x), expected, rtol=1e-6)


def test_predicates_are_booleans_too():
    @jit
    def kernel(x):
        out, tile = output(x.shape), nl.load(x)
        nisa.tensor_copy_predicated(src=0.0, dst=tile, predicate=nl.less(tile, 0.5))
        nl.store(out, tile)
        return out

    x = normal(16, 8)
    np.testing.assert_array_equal(kernel(x), np.where(x < 0.5, 0, x))


def test_masks_that_python_joins_are_refused():
    @jit
    def kernel(x):
        rows, columns = nl.mgrid[0:8, 0:4]
        return nl.load(x[rows, columns], mask=(rows < 4 and columns < 2))

    with pytest.raises(KernelError) as excinfo:
        kernel(normal(8, 4))
    assert excinfo.value.details["rule"] == "mask"


def test_matrices_of_many_rows_are_transposed_and_arguments_may_be_missing():
    @jit
    def kernel(x, scale=None):
        out = output(x.shape[::-1])
        tile = nl.load_transpose2d(x)
        nl.store(out, nl.multiply(tile, 2.0) if scale else tile)
        return out

    x = normal(300, 64)
    np.testing.assert_array_equal(kernel(x), x.T)
    np.testing.assert_array_equal(kernel(x, normal(1, 1)), 2 * x.T)


def test_dimensions_between_others_are_reduced():
    """Average pooling: windows are two dimensions of an access pattern."""

    @jit(additional_compile_opt="--disable-checks")
    def kernel(x):
        out = output((4, 3, 2))
        i0, i1, i2, i3, i4 = nl.mgrid[0:4, 0:3, 0:2, 0:2, 0:2]
        nl.store(out, nl.sum(nl.load(x)[i0, 2 * i1 + i2, 2 * i3 + i4], axis=[2, 4]) / 4)
        return out

    x = normal(4, 6, 4)
    np.testing.assert_allclose(kernel(x), F.avg_pool2d(torch.from_numpy(x), 2).numpy(), rtol=1e-5, atol=1e-6)
