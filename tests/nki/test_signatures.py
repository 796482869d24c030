"""Functions have the parameters and defaults of the vendor's published stubs."""

from __future__ import annotations

import enum
import inspect

import pytest

from optimum_neuron.nki import NkiTensor, isa, language

ISA = {
    "activate2": "dst op data imm0 imm1 op0 op1 relu_param=0.0 reverse0=False reverse1=False reduce_op=None "
    "reduce_res=None reduce_cmd=idle",
    "activation": "dst op data bias=None scale=1.0 reduce_op=None reduce_res=None reduce_cmd=idle",
    "activation_reduce": "dst op data reduce_op reduce_res bias=None scale=1.0",
    "affine_select": "dst pattern channel_multiplier on_true_tile on_false_value cmp_op=nl.equal offset=0",
    "bn_aggr": "dst data",
    "bn_stats": "dst data",
    "core_barrier": "data cores engine=gpsimd",
    "dma_compute": "dst srcs reduce_op scales=None unique_indices=True oob_mode=error",
    "dma_copy": "dst src priority=None oob_mode=error dge_mode=unknown engine=unknown",
    "dma_transpose": "dst src axes=None priority=None dge_mode=unknown oob_mode=error",
    "dropout": "dst data prob",
    "exponential": "dst src max_value=0.0 reduce_res=None reduce_cmd=idle reduce_init=0.0",
    "iota": "dst pattern offset=0 channel_multiplier=0",
    "local_gather": "dst src_buffer index num_elem_per_idx=1 num_valid_indices=None",
    "max8": "dst src",
    "memset": "dst value engine=unknown",
    "nc_find_index8": "dst data vals",
    "nc_match_replace8": "dst data vals imm dst_idx=None",
    "nc_matmul": "dst stationary moving is_stationary_onezero=False is_moving_onezero=False is_transpose=False "
    "accumulate=None tile_position=() tile_size=() perf_mode=none",
    "nc_matmul_mx": "dst stationary moving stationary_scale moving_scale tile_position=None tile_size=None "
    "accumulate=None",
    "nc_n_gather": "dst data indices",
    "nc_stream_shuffle": "dst src shuffle_mask",
    "nc_transpose": "dst data engine=unknown",
    "nonzero_with_count": "dst src index_offset=0 padding_val=-1",
    "quantize_mx": "dst src dst_scale",
    "rand2": "dst min max",
    "rand_get_state": "dst engine=gpsimd",
    "rand_set_state": "src_seeds engine=gpsimd",
    "range_select": "dst on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd=reset_reduce reduce_res=None "
    "reduce_op=nl.maximum range_start=0 on_false_value=Ellipsis",
    "reciprocal": "dst data",
    "rng": "dst engine=vector",
    "scalar_tensor_tensor": "dst data op0 operand0 op1 operand1 reverse0=False reverse1=False",
    "select_reduce": "dst predicate on_true on_false reduce_res=None reduce_cmd=idle reduce_op=nl.maximum "
    "reverse_pred=False",
    "sendrecv": "src dst send_to_rank recv_from_rank pipe_id dma_engine=dma",
    "sequence_bounds": "dst segment_ids",
    "set_rng_seed": "src_seeds",
    "tensor_copy": "dst src engine=unknown",
    "tensor_copy_predicated": "dst src predicate reverse_pred=False",
    "tensor_partition_reduce": "dst op data",
    "tensor_reduce": "dst op data axis negate=False keepdims=False",
    "tensor_scalar": "dst data op0 operand0 reverse0=False op1=None operand1=None reverse1=False engine=unknown",
    "tensor_scalar_cumulative": "dst src op0 op1 imm0 imm1=None reduce_cmd=reset_reduce",
    "tensor_scalar_reduce": "dst data op0 operand0 reduce_op reduce_res=None reverse0=False reduce_cmd=reset_reduce "
    "reduce_init=None reduce_res_negate=False",
    "tensor_tensor": "dst data1 data2 op engine=unknown",
    "tensor_tensor_scan": "dst data0 data1 initial op0 op1 reverse0=False reverse1=False",
    "topk": "val_dst idx_dst src n",
}
REGISTERS = {
    "register_alloc": "x=None",
    "register_load": "dst src",
    "register_move": "dst src",
    "register_store": "dst src",
}


def written(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name}={default.name if isinstance(default, enum.Enum) else default}"


@pytest.mark.parametrize("name", sorted(ISA))
def test_instruction_has_published_parameters(name):
    parameters = inspect.signature(getattr(isa, name)).parameters.values()
    assert " ".join(map(written, parameters)) == f"{ISA[name]} name=None"


_UNARY = "abs negative sign exp log sqrt rsqrt square reciprocal tanh sigmoid relu gelu gelu_apprx_sigmoid "
_UNARY += "gelu_apprx_tanh gelu_dx gelu_apprx_sigmoid_dx silu silu_dx softplus mish erf erf_dx sin cos tan arctan ceil "
_UNARY += "floor trunc logical_not invert copy"
_BINARY = "add subtract multiply divide maximum minimum power mod fmod equal not_equal less less_equal greater "
_BINARY += "greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or logical_xor"
LANGUAGE = {
    **dict.fromkeys(_UNARY.split(), "x dtype=None"),
    **dict.fromkeys(_BINARY.split(), "x y dtype=None"),
    **dict.fromkeys(["sum", "max", "min", "mean", "prod", "var"], "x axis dtype=None keepdims=False"),
    **dict.fromkeys(("affine_range", "sequential_range", "static_range", "dynamic_range"), "start stop=None step=1"),
    **dict.fromkeys(("is_hbm", "is_on_chip", "is_psum", "is_sbuf"), "buffer"),
    **dict.fromkeys(("zeros", "ones", "rand"), "shape dtype buffer=sbuf name="),
    **dict.fromkeys(("zeros_like", "empty_like"), "x dtype=None buffer=None name="),
    **dict.fromkeys(("load", "load_transpose2d"), "src dtype=None"),
    "all": "x axis dtype=None",
    "broadcast_to": "x shape dtype=None",
    "device_print": "print_prefix tensor",
    "dropout": "x rate dtype=None",
    "ds": "start size",
    "expand_dims": "x axis",
    "fori_loop": "lower upper body_fun step=1",
    "full": "shape fill_value dtype buffer=sbuf name=",
    "gather_flattened": "data indices axis=0 dtype=None",
    "matmul": "x y transpose_x=False",
    "ndarray": "shape dtype buffer=sbuf name= address=None",
    "no_reorder": "",
    "num_programs": "axes=0",
    "program_id": "axis=0",
    "program_ndim": "",
    "random_seed": "seed",
    "rms_norm": "x w axis n epsilon=1e-06 dtype=None compute_dtype=None",
    "shared_constant": "constant",
    "shared_identity_matrix": "n dtype=uint8 dst=None",
    "softmax": "x axis=-1 dtype=None",
    "store": "dst value",
    "transpose": "x dtype=None",
    "where": "condition x y dtype=None",
    "while_loop": "init body_fun",
}


@pytest.mark.parametrize("name", sorted(REGISTERS))
def test_functions_of_registers_have_published_parameters(name):
    parameters = inspect.signature(getattr(isa, name)).parameters.values()
    assert " ".join(map(written, parameters)) == REGISTERS[name]


@pytest.mark.parametrize("name", sorted(LANGUAGE))
def test_function_of_the_language_has_published_parameters(name):
    parameters = inspect.signature(getattr(language, name)).parameters.values()
    assert " ".join(map(written, parameters)) == LANGUAGE[name]


TENSOR = {
    "ap": "pattern offset=None scalar_offset=None vector_offset=None indirect_dim=0 dtype=None",
    "broadcast": "dim size",
    "expand_dim": "dim",
    "flatten_dims": "start_dim end_dim",
    "get_pattern": "",
    "indirect": "index num_elem=None",
    "is_contiguous": "",
    "is_indirect": "",
    "permute": "dims",
    "reinterpret_cast": "dtype",
    "reshape": "shape",
    "rearrange": "src_pattern dst_pattern fixed_sizes=None",
    "reshape_dim": "dim shape",
    "select": "dim index",
    "slice": "dim start end step=1",
    "squeeze_dim": "dim",
    "vector_select": "dim vector_offset",
    "view": "dtype",
}


@pytest.mark.parametrize("name", sorted(TENSOR))
def test_view_has_published_parameters(name):
    _, *parameters = inspect.signature(getattr(NkiTensor, name)).parameters.values()
    assert " ".join(map(written, parameters)) == TENSOR[name]


def test_handles_of_instructions_have_the_published_parameter():
    _, producers = inspect.signature(isa.NkiInstruction.depends_on).parameters.values()
    assert str(producers).startswith("*producers:")


def test_all_published_instructions_are_there():
    others = {"engine", "reduce_cmd", "dge_mode", "oob_mode", "nc_version", "matmul_perf_mode", "get_nc_version"}
    others |= {"dma_engine", "get_nc_sub_version", "NkiInstruction", "VirtualRegister", *REGISTERS}
    assert {*ISA, *others} <= set(isa.__all__)
    assert set(LANGUAGE) <= set(language.__all__)
