"""Collectives of kernels on several ranks, against torch; a ring of matmuls as the public samples have it."""

from __future__ import annotations

import inspect

import pytest
import torch

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import collectives as ncc, isa as nisa, jit, language as nl, launch, launch_ranks

RANKS = 4
ALL = ncc.ReplicaGroup([list(range(RANKS))])
SIGNATURES = {
    "all_gather": "srcs dsts replica_group collective_dim",
    "all_gather_v": "srcs dsts replica_group metadata_tensor recv_counts_known=False has_rdispls=False",
    "all_reduce": "srcs dsts replica_group op",
    "all_to_all": "srcs dsts replica_group collective_dim",
    "all_to_all_v": "srcs dsts replica_group metadata_tensor recv_counts_known=False has_rdispls=False",
    "collective_permute": "srcs dsts source_target_pairs",
    "collective_permute_implicit": "srcs_by_channel dsts_by_channel replica_group channel_ids=[0]",
    "collective_permute_implicit_reduce": "srcs0_by_channel srcs1_by_channel dsts_by_channel replica_group op "
    "channel_ids=[0]",
    "reduce_scatter": "srcs dsts replica_group collective_dim op",
}


def described(function) -> str:
    parameters = inspect.signature(function).parameters.values()
    return " ".join(
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default}"
        for parameter in parameters
    )


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_published_parameters(name):
    assert described(getattr(ncc, name)) == f"{SIGNATURES[name]} priority=None name=None"


def test_published_parameters_of_ranks():
    assert described(ncc.rank_id) == "name=None"
    iteration = ncc.collective_permute_implicit_current_processing_rank_id
    assert described(iteration) == "iteration_id replica_group channel_id=0 name=None"
    assert set(ncc.__all__) == {*SIGNATURES, "ReplicaGroup", "rank_id", iteration.__name__}


def kernel_of(call, shape):
    """A kernel that copies its input to HBM, and returns what a collective yields."""

    @jit
    def kernel(x):
        source = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(source, nl.load(x))
        call(source, out)
        return out

    return kernel


def inputs(rows=8, ranks=RANKS):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, 6, generator=generator) for _ in range(ranks)]


def run(call, shape, xs):
    return launch_ranks(kernel_of(call, shape), [(x,) for x in xs])


@pytest.mark.parametrize(
    ("op", "expected"), [(nl.add, sum), (nl.maximum, lambda xs: torch.stack(xs).amax(0)), (nl.minimum, None)]
)
def test_all_reduce(op, expected):
    xs = inputs()
    wanted = torch.stack(xs).amin(0) if expected is None else expected(xs)
    for out in run(lambda source, out: ncc.all_reduce([source], [out], ALL, op), (8, 6), xs):
        torch.testing.assert_close(out, wanted)


def test_groups_are_apart():
    xs, groups = inputs(), ncc.ReplicaGroup([[0, 2], [1, 3]])
    outs = run(lambda source, out: ncc.all_reduce([source], [out], groups, nl.add), (8, 6), xs)
    torch.testing.assert_close(outs[0], xs[0] + xs[2])
    torch.testing.assert_close(outs[3], xs[1] + xs[3])


def test_gather_scatter_and_exchange():
    xs = inputs()
    for out in run(lambda source, out: ncc.all_gather([source], [out], ALL, 0), (32, 6), xs):
        torch.testing.assert_close(out, torch.cat(xs))
    outs = run(lambda source, out: ncc.reduce_scatter([source], [out], ALL, 0, nl.add), (2, 6), xs)
    torch.testing.assert_close(torch.cat(outs), sum(xs))
    outs = run(lambda source, out: ncc.all_to_all([source], [out], ALL, 0), (8, 6), xs)
    for rank, out in enumerate(outs):
        torch.testing.assert_close(out, torch.cat([x[rank * 2 : rank * 2 + 2] for x in xs]))


def test_permutations():
    xs = inputs()
    swap = [(0, 1), (1, 0), (2, 3)]
    outs = launch_ranks(kernel_with_start(swap), [(x,) for x in xs])
    torch.testing.assert_close(outs[0], xs[1])
    torch.testing.assert_close(outs[3], xs[2])
    assert (outs[2] == 0).all()

    outs = run(lambda source, out: ncc.collective_permute_implicit([[source]], [[out]], ALL), (8, 6), xs)
    for rank, out in enumerate(outs):
        torch.testing.assert_close(out, xs[rank - 1])

    def reduced(source, out):
        ncc.collective_permute_implicit_reduce([[source]], [[source]], [[out]], ALL, nl.add)

    for rank, out in enumerate(run(reduced, (8, 6), xs)):
        torch.testing.assert_close(out, 2 * xs[rank - 1])


def kernel_with_start(pairs):
    @jit
    def kernel(x):
        source, out = nl.ndarray(x.shape, x.dtype, nl.hbm), nl.zeros(x.shape, x.dtype, nl.shared_hbm)
        nl.store(source, nl.load(x))
        ncc.collective_permute([source], [out], pairs)
        return out

    return kernel


@pytest.mark.parametrize("function", [ncc.all_to_all_v, ncc.all_gather_v])
def test_counts_that_only_the_device_knows(function):
    counts = torch.tensor([[1, 2], [3, 4]])

    @jit
    def kernel(x, metadata):
        source, table = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.ndarray((3, 2), nl.uint32, nl.shared_hbm)
        out = nl.zeros((1, 16), x.dtype, nl.shared_hbm)
        nisa.dma_copy(source, x)
        nisa.dma_copy(table, metadata)
        function([source], [out], ncc.ReplicaGroup([[0, 1]]), table)
        return out, table

    xs = [torch.arange(1, 8.0).reshape(1, 7), torch.arange(11, 18.0).reshape(1, 7)]
    calls = []
    for rank, x in enumerate(xs):
        starts = torch.tensor([0, counts[rank][0]])
        calls.append((x, torch.stack([counts[rank], starts, torch.zeros(2, dtype=torch.int64)]).to(torch.uint32)))
    outs = launch_ranks(kernel, calls)
    for rank, (out, table) in enumerate(outs):
        wanted = torch.zeros(1, 16)
        for other in range(2):
            first, size = int(counts[other][:rank].sum()), int(counts[other][rank])
            wanted[0, other * 8 : other * 8 + size] = xs[other][0, first : first + size]
        torch.testing.assert_close(out, wanted)
        assert table[2].tolist() == counts[:, rank].tolist()


def test_ring_of_matmuls_overlaps_ranks():
    rows, depth, columns = 32, 128, 64

    @jit
    def ring(x, weights):
        buffers = [nl.ndarray((rows, depth), x.dtype, nl.hbm) for _ in range(2)]
        out = nl.ndarray((RANKS, rows, columns), x.dtype, nl.shared_hbm)
        right = nl.load(weights)
        nisa.dma_copy(buffers[0], x)
        for step in range(RANKS):
            now, later = buffers[step % 2], buffers[(step + 1) % 2]
            rank = ncc.collective_permute_implicit_current_processing_rank_id(step, ALL)
            if step < RANKS - 1:
                ncc.collective_permute_implicit([[now]], [[later]], ALL)
            left, total = nl.ndarray((depth, rows), x.dtype), nl.ndarray((rows, columns), nl.float32, nl.psum)
            nisa.dma_transpose(left, now)
            nisa.nc_matmul(total, left, right)
            tile = nl.copy(total, x.dtype)
            place = out.ap([[columns, rows], [1, columns]], offset=0, scalar_offset=rank, indirect_dim=0)
            nisa.dma_copy(place, tile)
        return out

    torch.manual_seed(0)
    xs = [torch.randn(rows, depth) for _ in range(RANKS)]
    weights = [torch.randn(depth, columns) for _ in range(RANKS)]
    outs = launch_ranks(ring, list(zip(xs, weights, strict=True)))
    for out, right in zip(outs, weights, strict=True):
        torch.testing.assert_close(out, torch.stack([x @ right for x in xs]), rtol=1e-4, atol=1e-4)


def test_both_physical_cores_of_a_rank_make_one_collective():
    @jit
    def kernel(x):
        source, out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        half = nl.program_id(0) * 4
        nl.store(source[half : half + 4], nl.load(x[half : half + 4]))
        nisa.core_barrier(source, (0, 1))
        ncc.all_reduce([source], [source], ncc.ReplicaGroup([[0, 1]]), nl.add)
        nl.store(out[half : half + 4], nl.load(source[half : half + 4]))
        return out

    xs = inputs(ranks=2)
    for out in launch_ranks(kernel[2], [(x,) for x in xs]):
        torch.testing.assert_close(out, sum(xs))


@pytest.mark.parametrize("num_cores", [1, 2])
def test_tiles_in_sbuf(num_cores):
    @jit
    def kernel(x):
        source, wide = nl.load(x), nl.ndarray((8, 12), x.dtype)
        ncc.all_gather([source], [wide], ncc.ReplicaGroup([[0, 1]]), 1)
        out = nl.ndarray((8, 12), x.dtype, nl.shared_hbm)
        nl.store(out, wide)
        return out

    xs = inputs(ranks=2)
    for out in launch_ranks(kernel[num_cores], [(x,) for x in xs]):
        torch.testing.assert_close(out, torch.cat(xs, 1))


def test_simulated_time_grows_with_bytes_and_ranks():
    def time_us(ranks, rows):
        group = ncc.ReplicaGroup([list(range(ranks))])
        kernel = kernel_of(lambda source, out: ncc.all_reduce([source], [out], group, nl.add), (rows, 512))
        xs = [(torch.zeros(rows, 512),) for _ in range(ranks)]
        _, streams = launch_ranks(kernel, xs, record=True)
        (record,) = [row for row in streams[0] if row.opcode == "all_reduce"]
        assert record.engine == "dma" and record.reads[0].buffer == "shared_hbm"
        return record.cycles / 1e3

    assert 4 < time_us(2, 8) < time_us(2, 128) < time_us(4, 128)


def error_of(calls, ranks=2):
    kernels = [kernel_of(call, shape) for call, shape in calls]

    @jit
    def kernel(x):
        return kernels[int(ncc.rank_id()) % len(kernels)](x)

    with pytest.raises(KernelError) as excinfo:
        launch_ranks(kernel, [(x,) for x in inputs(ranks=ranks)])
    return excinfo.value


TWO = ncc.ReplicaGroup([[0, 1]])


@pytest.mark.parametrize(
    ("rule", "calls"),
    [
        ("mismatch", [(lambda s, o: ncc.all_reduce([s], [o], TWO, nl.add), (8, 6)),
                      (lambda s, o: ncc.all_reduce([s], [o], TWO, nl.maximum), (8, 6))]),
        ("mismatch", [(lambda s, o: ncc.all_reduce([s], [o], TWO, nl.add), (8, 6)),
                      (lambda s, o: ncc.all_to_all([s], [o], TWO, 0), (8, 6))]),
        ("deadlock", [(lambda s, o: ncc.all_reduce([s], [o], TWO, nl.add), (8, 6)),
                      (lambda s, o: nisa.dma_copy(o, s), (8, 6))]),
        ("replica_group", [(lambda s, o: ncc.all_reduce([s], [o], ncc.ReplicaGroup([[0, 0]]), nl.add), (8, 6))]),
        ("replica_group", [(lambda s, o: ncc.all_reduce([s], [o], ncc.ReplicaGroup([[0, 2]]), nl.add), (8, 6))]),
        ("replica_group", [(lambda s, o: ncc.all_reduce([s], [o], ncc.ReplicaGroup([[0]]), nl.add), (8, 6))]),
        ("replica_group", [(lambda s, o: ncc.collective_permute([s], [o], [(0, 1), (0, 1)]), (8, 6))]),
        ("operator", [(lambda s, o: ncc.all_reduce([s], [o], TWO, nl.multiply), (8, 6))]),
        ("shape", [(lambda s, o: ncc.all_gather([s], [o], TWO, 0), (8, 6))]),
        ("axis", [(lambda s, o: ncc.all_gather([s], [o], TWO, 1), (8, 12))]),
        ("operand", [(lambda s, o: ncc.all_reduce([s], [nl.load(s)], TWO, nl.add), (8, 6))]),
        ("operand", [(lambda s, o: ncc.all_to_all([nl.load(s)], [nl.load(s)], TWO, 0), (8, 6))]),
        ("channel", [(lambda s, o: ncc.collective_permute_implicit([[s]], [[o]], TWO, [1]), (8, 6))]),
        ("shape", [(lambda s, o: ncc.all_to_all_v([s], [o], TWO, s), (8, 6))]),
    ],
)  # fmt: skip
def test_refused(rule, calls):
    error = error_of(calls)
    assert error.details["rule"] == rule and error.details["line"].startswith(__file__)
    if rule == "mismatch":
        assert len(error.details["lines"]) == 2


def test_ranks_that_join_different_dimensions_are_refused():
    @jit
    def kernel(x):
        source, dim = nl.load(x), int(ncc.rank_id())
        shape = (8, 12) if dim else (16, 6)
        wide, out = nl.ndarray(shape, x.dtype), nl.ndarray(shape, x.dtype, nl.shared_hbm)
        ncc.all_gather([source], [wide], TWO, dim)
        nl.store(out, wide)
        return out

    with pytest.raises(KernelError) as excinfo:
        launch_ranks(kernel, [(x,) for x in inputs(ranks=2)])
    assert excinfo.value.details["rule"] == "mismatch"


def test_a_kernel_alone_is_a_world_of_one_rank():
    x = inputs(ranks=1)[0]
    one = kernel_of(lambda source, out: ncc.all_reduce([source], [out], ncc.ReplicaGroup([[0]]), nl.add), (8, 6))
    torch.testing.assert_close(one(x), x)
    result, stream = launch(one, (x,), {}, record=True)
    assert [row.opcode for row in stream] == ["dma_copy", "dma_copy", "all_reduce"] and result.shape == x.shape
