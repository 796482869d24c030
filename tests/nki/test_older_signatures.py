"""Functions of the older API have the parameters and defaults of the vendor's published stubs."""

from __future__ import annotations

import enum
import inspect

import numpy as np
import pytest

from optimum_neuron import nki
from optimum_neuron.errors import ConfigError
from optimum_neuron.nki import legacy as older
from optimum_neuron.nki.legacy import compiler, isa, language

TOP = {
    "baremetal": "kernel=None **kwargs",
    "benchmark": "kernel=None **kwargs",
    "jit": "func=None mode=auto **kwargs",
    "profile": "func=None **kwargs",
    "simulate_kernel": "kernel *args **kwargs",
}
ISA = {
    "activation": "op data * bias=None scale=1.0 reduce_op=None reduce_res=None reduce_cmd=idle mask=None dtype=None",
    "activation_reduce": "op data * reduce_op reduce_res bias=None scale=1.0 mask=None dtype=None",
    "affine_select": "pred on_true_tile on_false_value * mask=None dtype=None",
    "bn_aggr": "data * mask=None dtype=None",
    "bn_stats": "data * mask=None dtype=None",
    "builtin_custom_op": "function_name lib_file_name ulib_to_ucode_version ulib_to_isa_version srcs dsts",
    "dma_transpose": "src * axes=None mask=None dtype=None",
    "dropout": "data prob * mask=None dtype=None",
    "iota": "expr dtype * mask=None",
    "max8": "* src mask=None dtype=None",
    "memset": "shape value dtype * mask=None engine=unknown",
    "nc_find_index8": "* data vals mask=None dtype=None",
    "nc_match_replace8": "* data vals imm dst_idx=None mask=None dtype=None",
    "nc_matmul": "stationary moving * is_stationary_onezero=False is_moving_onezero=False is_transpose=False "
    "tile_position=() tile_size=() mask=None",
    "nc_stream_shuffle": "src dst shuffle_mask * dtype=None mask=None",
    "nc_transpose": "data * mask=None dtype=None engine=unknown",
    "range_select": "* on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd=idle reduce_res=None reduce_op=max "
    "range_start=0 on_false_value=-3.4028235e+38 mask=None dtype=None",
    "reciprocal": "data * dtype=None mask=None",
    "scalar_tensor_tensor": "* data op0 operand0 op1 operand1 reverse0=False reverse1=False dtype=None mask=None",
    "select_reduce": "* dst predicate on_true on_false reduce_res=None reduce_cmd=idle reduce_op=max "
    "reverse_pred=False mask=None dtype=None",
    "tensor_copy": "src * mask=None dtype=None engine=unknown",
    "tensor_copy_dynamic_dst": "* dst src mask=None dtype=None engine=unknown",
    "tensor_copy_dynamic_src": "src * mask=None dtype=None engine=unknown",
    "tensor_copy_predicated": "* src dst predicate reverse_pred=False mask=None dtype=None",
    "tensor_partition_reduce": "op data * mask=None dtype=None",
    "tensor_reduce": "op data axis * mask=None dtype=None negate=False keepdims=False",
    "tensor_scalar": "data op0 operand0 reverse0=False op1=None operand1=None reverse1=False * dtype=None mask=None "
    "engine=unknown",
    "tensor_scalar_cumulative": "* src dst op0 op1 imm0 imm1=None reduce_cmd=reset_reduce mask=None",
    "tensor_scalar_reduce": "* data op0 operand0 reduce_op reduce_res reverse0=False dtype=None mask=None",
    "tensor_tensor": "data1 data2 op * dtype=None mask=None engine=unknown",
    "tensor_tensor_scan": "data0 data1 initial op0 op1 reverse0=False reverse1=False * dtype=None mask=None",
}
WITHOUT_OPTIONS = {
    "dma_copy": "* dst src mask=None dst_rmw_op=None oob_mode=error dge_mode=unknown",
    "get_nc_version": "",
    "local_gather": "src_buffer index num_elem_per_idx=1 num_valid_indices=None * mask=None",
    "sequence_bounds": "* segment_ids dtype=None",
}
_REDUCTION = "x axis * dtype=None mask=None keepdims=False"
_CREATION = "* buffer=None name="
LANGUAGE = {
    **dict.fromkeys(
        [
            "abs",
            "arctan",
            "ceil",
            "cos",
            "erf",
            "erf_dx",
            "exp",
            "floor",
            "gelu",
            "gelu_apprx_sigmoid",
            "gelu_apprx_tanh",
            "gelu_dx",
            "invert",
            "log",
            "mish",
            "negative",
            "reciprocal",
            "relu",
            "rsqrt",
            "sigmoid",
            "sign",
            "silu",
            "silu_dx",
            "sin",
            "softplus",
            "sqrt",
            "square",
            "tan",
            "tanh",
            "trunc",
        ],
        "x * dtype=None mask=None",
    ),
    **dict.fromkeys(
        [
            "add",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "divide",
            "left_shift",
            "maximum",
            "minimum",
            "multiply",
            "power",
            "right_shift",
            "subtract",
        ],
        "x y * dtype=None mask=None",
    ),
    **dict.fromkeys(
        [
            "equal",
            "greater",
            "greater_equal",
            "less",
            "less_equal",
            "logical_and",
            "logical_or",
            "logical_xor",
            "not_equal",
        ],
        "x y * dtype=bool mask=None",
    ),
    **dict.fromkeys(("fmod", "mod"), "x y dtype=None mask=None"),
    **dict.fromkeys(("max", "mean", "min", "prod", "sum"), _REDUCTION),
    "all": "x axis * dtype=bool mask=None",
    "all_reduce": "x op program_axes * dtype=None mask=None parallel_reduce=True asynchronous=False",
    "atomic_rmw": "dst value op * mask=None",
    "broadcast_to": "src * shape",
    "copy": "src * mask=None dtype=None",
    "device_print": "prefix x * mask=None",
    "dropout": "x rate * dtype=None mask=None",
    "empty_like": f"a dtype=None {_CREATION}",
    "full": f"shape fill_value dtype {_CREATION}",
    "gather_flattened": "data indices * mask=None dtype=None",
    "load": "src * mask=None dtype=None",
    "load_transpose2d": "src * mask=None dtype=None",
    "logical_not": "x * dtype=bool mask=None",
    "loop_reduce": "x op loop_indices * dtype=None mask=None",
    "matmul": "x y * transpose_x=False mask=None",
    "ndarray": f"shape dtype {_CREATION}",
    "ones": f"shape dtype {_CREATION}",
    "rand": "shape dtype=float32",
    "random_seed": "seed * mask=None",
    "rms_norm": "x w axis n epsilon=1e-06 * dtype=None compute_dtype=None mask=None",
    "shared_constant": "constant dtype=None",
    "shared_identity_matrix": "n dtype=uint8",
    "softmax": "x axis * dtype=None compute_dtype=None mask=None",
    "store": "dst value * mask=None",
    "transpose": "x * dtype=None mask=None",
    "var": "x axis * dtype=None mask=None",
    "where": "condition x y * dtype=None mask=None",
    "zeros": f"shape dtype {_CREATION}",
    "zeros_like": f"a dtype=None {_CREATION}",
}
LANGUAGE_WITHOUT_OPTIONS = {
    "affine_range": "*args **kwargs",
    "arange": "*args",
    "ds": "start size",
    "expand_dims": "data axis",
    "finfo": "dtype",
    "gemm_grid": "",
    "gemm_stationary_grid": "",
    "logical_not": "x * dtype=bool mask=None **kwargs",
    "num_programs": "axes=None",
    "program_id": "axis",
    "program_ndim": "",
    "sequential_range": "*args **kwargs",
    "static_cast": "input_data dtype",
    "static_range": "*args",
}
COMPILER = {
    "allocation_scope": "",
    "enable_stack_allocator": "func=None log_level=50",
    "force_auto_alloc": "func=None",
    "multi_buffer": "factor=2",
    "no_reorder": "",
    "psum.alloc": "func",
    "psum.auto_alloc": "",
    "psum.mod_alloc": "* base_bank base_addr=0 base_partition=0 num_bank_tiles=() num_par_tiles=() num_free_tiles=()",
    "sbuf.alloc": "func",
    "sbuf.auto_alloc": "",
    "sbuf.mod_alloc": "* base_addr base_partition=0 num_par_tiles=() num_free_tiles=()",
    "skip_middle_end_transformations": "func=None",
}
VALUES = (
    "bfloat16 bfp16 bool_ float16 float32 float8_e4m3 float8_e5m2 fp32 hbm int16 int32 int8 mgrid nc par_dim "
    "private_hbm psum sbuf shared_hbm spmd_dim tfloat32 tile_size uint16 uint32 uint8"
)
TABLE = [
    *((older, name, text) for name, text in TOP.items()),
    *((isa, name, f"{text} **kwargs") for name, text in ISA.items()),
    *((isa, name, text) for name, text in WITHOUT_OPTIONS.items()),
    *((language, name, f"{text} **kwargs") for name, text in LANGUAGE.items()),
    *((language, name, text) for name, text in LANGUAGE_WITHOUT_OPTIONS.items()),
    *((compiler, name, text) for name, text in COMPILER.items()),
]


def written(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.default is parameter.empty:
        return parameter.name
    value = parameter.default
    text = value.name if isinstance(value, enum.Enum) else getattr(value, "__name__", value)
    text = {"amax": "max"}.get(str(text), text)
    return f"{parameter.name}={str(np.float32(value)) if isinstance(value, float) and value < -1e30 else text}"


def described(function) -> str:
    words, is_named = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_named:
            is_named = True
            words.append("*")
        is_named |= parameter.kind is parameter.VAR_POSITIONAL
        words.append(written(parameter))
    return " ".join(words)


@pytest.mark.parametrize(("module", "name", "text"), TABLE, ids=[f"{row[0].__name__}.{row[1]}" for row in TABLE])
def test_signature(module, name, text):
    function = module
    for part in name.split("."):
        function = getattr(function, part)
    assert described(function) == text.strip()


def test_every_name_is_in_the_table():
    assert set(VALUES.split()) <= set(language.__all__)
    enums = {"dge_mode", "dma_engine", "engine", "fp32", "nc_version", "oob_mode", "reduce_cmd"}
    engines = {name for name in isa.__all__ if name.endswith("_engine")}
    assert set(isa.__all__) == {*ISA, *WITHOUT_OPTIONS, *enums, *engines}
    assert (isa.dge_mode.none, isa.dge_mode.unknown, isa.engine.vector, isa.reduce_cmd.reset_reduce) == (0, 3, 5, 3)
    assert isa.nc_version.gen3 > isa.nc_version.gen2


def test_an_option_that_no_stub_names_is_refused():
    with pytest.raises(ConfigError) as excinfo:
        older.simulate_kernel(lambda x: language.load(x, dge=True), np.ones((8, 8), np.float32))
    assert excinfo.value.details["options"] == ["dge"]
    assert isinstance(nki.language.bfloat16, str)


def test_constants_have_modules_of_their_own():
    constants = pytest.importorskip("neuronxcc.nki.isa.constants")
    sizes = pytest.importorskip("neuronxcc.nki.language.constants")
    assert constants.oob_mode.skip.value == 1 and sizes.tile_size.pmax == 128
