from . import compiler as compiler, isa as isa, language as language, typing as typing
from .blocks import BlockedTensor as BlockedTensor
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
from .tiles import IndexedTile as IndexedTile, OlderTensor as OlderTensor, Product as Product
