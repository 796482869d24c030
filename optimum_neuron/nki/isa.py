"""`nki.isa`: the instructions of a NeuronCore, and the enumerations that they take.

>>> from optimum_neuron.nki import isa as nisa
>>> nisa.engine.vector.value, nisa.reduce_cmd.reset_reduce.value
(5, 3)
"""

from __future__ import annotations

import enum

from ..errors import KernelError as NkiValidationError
from .core import target_core
from .instructions import (
    DgeMode as dge_mode,
    DmaEngine as dma_engine,
    Engine as engine,
    MatmulPerfMode as matmul_perf_mode,
    NkiInstruction,
    OobMode as oob_mode,
    ReduceCmd as reduce_cmd,
    VirtualRegister,
    activate2,
    activation,
    activation_reduce,
    affine_select,
    bn_aggr,
    bn_stats,
    core_barrier,
    dma_compute,
    dma_copy,
    dma_transpose,
    dropout,
    exponential,
    iota,
    local_gather,
    max8,
    memset,
    nc_find_index8,
    nc_match_replace8,
    nc_matmul,
    nc_matmul_mx,
    nc_n_gather,
    nc_stream_shuffle,
    nc_transpose,
    nonzero_with_count,
    quantize_mx,
    rand2,
    rand_get_state,
    rand_set_state,
    range_select,
    reciprocal,
    register_alloc,
    register_load,
    register_move,
    register_store,
    rng,
    scalar_tensor_tensor,
    select_reduce,
    sendrecv,
    sequence_bounds,
    set_rng_seed,
    tensor_copy,
    tensor_copy_predicated,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar,
    tensor_scalar_cumulative,
    tensor_scalar_reduce,
    tensor_tensor,
    tensor_tensor_scan,
    topk,
)

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "nonzero_with_count",
    "oob_mode",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
    "unknown_engine",
    "vector_engine",
]

tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown


class nc_version(enum.IntEnum):
    """Generations of the core, older ones first."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


def get_nc_version() -> nc_version:
    """Return the generation of the core that the kernel runs on, or of the default target."""
    return nc_version(target_core().generation)


def get_nc_sub_version() -> int:
    """Return the step of the generation: 1 for NeuronCore-v4, which has `exponential`, and 0 for the others."""
    return int(target_core().generation >= 4)
