from . import compiler as compiler, isa as isa, language as language, typing as typing
from .blocks import BlockedTensor as BlockedTensor
from .convolution import conv2d_dw_fb01_io01_01bf_rep_nhwc_Pcinh as conv2d_dw_fb01_io01_01bf_rep_nhwc_Pcinh
from .grid import nc as nc
from .imported import attention_isa_kernel as attention_isa_kernel, cumsum as cumsum
from .kernel import simulate_kernel as simulate_kernel
from .measuring import (
    baremetal as baremetal,
    benchmark as benchmark,
    jit as jit,
    profile as profile,
    trace as trace,
)
from .projections import (
    ActFnType as ActFnType,
    NormType as NormType,
    mlp_fused_add_isa_kernel as mlp_fused_add_isa_kernel,
    mlp_isa_kernel as mlp_isa_kernel,
    rmsnorm_qkv_isa_fused_add_kernel as rmsnorm_qkv_isa_fused_add_kernel,
    rmsnorm_qkv_isa_kernel as rmsnorm_qkv_isa_kernel,
)
from .tiles import IndexedTile as IndexedTile, OlderTensor as OlderTensor, Product as Product
