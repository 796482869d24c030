from .activations import (
    ReduceCmd as ReduceCmd,
    activate2 as activate2,
    activation as activation,
    activation_reduce as activation_reduce,
    exponential as exponential,
)
from .base import (
    SBUF as SBUF,
    Engine as Engine,
    Instruction as Instruction,
    checked as checked,
    execute as execute,
    recorded as recorded,
)
from .collective import (
    HBM as HBM,
    Collective as Collective,
    Parts as Parts,
    all_reduced as all_reduced,
    check_priority as check_priority,
    exchanged as exchanged,
    gathered as gathered,
    passed_on as passed_on,
    reduced as reduced,
    scattered as scattered,
)
from .cores import DmaEngine as DmaEngine, core_barrier as core_barrier, sendrecv as sendrecv
from .elementwise import (
    reciprocal as reciprocal,
    scalar_tensor_tensor as scalar_tensor_tensor,
    tensor_scalar as tensor_scalar,
    tensor_tensor as tensor_tensor,
    tensor_tensor_scan as tensor_tensor_scan,
)
from .gathering import (
    local_gather as local_gather,
    nc_n_gather as nc_n_gather,
    nc_stream_shuffle as nc_stream_shuffle,
)
from .handles import NkiInstruction as NkiInstruction
from .matmul import MatmulPerfMode as MatmulPerfMode, nc_matmul as nc_matmul, nc_transpose as nc_transpose
from .positions import nonzero_with_count as nonzero_with_count, sequence_bounds as sequence_bounds
from .randomness import (
    dropout as dropout,
    rand2 as rand2,
    rand_get_state as rand_get_state,
    rand_set_state as rand_set_state,
    rng as rng,
    set_rng_seed as set_rng_seed,
)
from .reduction import (
    tensor_partition_reduce as tensor_partition_reduce,
    tensor_reduce as tensor_reduce,
    tensor_scalar_cumulative as tensor_scalar_cumulative,
    tensor_scalar_reduce as tensor_scalar_reduce,
)
from .registers import (
    VirtualRegister as VirtualRegister,
    register_alloc as register_alloc,
    register_load as register_load,
    register_move as register_move,
    register_store as register_store,
)
from .scaled import nc_matmul_mx as nc_matmul_mx, quantize_mx as quantize_mx
from .search import (
    max8 as max8,
    nc_find_index8 as nc_find_index8,
    nc_match_replace8 as nc_match_replace8,
    topk as topk,
)
from .selection import (
    affine_select as affine_select,
    iota as iota,
    range_select as range_select,
    select_reduce as select_reduce,
)
from .statistics import bn_aggr as bn_aggr, bn_stats as bn_stats
from .transfer import (
    DgeMode as DgeMode,
    OobMode as OobMode,
    dma_compute as dma_compute,
    dma_copy as dma_copy,
    dma_transpose as dma_transpose,
    memset as memset,
    tensor_copy as tensor_copy,
    tensor_copy_predicated as tensor_copy_predicated,
)
