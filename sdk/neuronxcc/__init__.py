"""`neuronxcc`, the vendor's name for the compiler: the names of its NKI kernels that scripts import.

It refuses to be imported where the vendor's `neuronx-cc` is installed, because both own this file.
"""

from optimum_neuron.base.doors import OTHERS, Missing, Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

refuse_beside("neuronx-cc", __name__)

_OLDER = "optimum_neuron.nki.legacy"
_MODULES = ("compiler", "isa", "language", "typing")
_PACKAGES = ("_pre_prod_kernels", "_private_kernels")
_OTHER = Missing("Write the operation in torch, which is compiled, or call a kernel of your own.")
_KERNEL = Missing("Call torch.nn.functional.scaled_dot_product_attention.")


def _older(module: str, *names: str) -> dict[str, str]:
    return {name: f"{_OLDER}{module}:{name}" for name in names}


NAMES: Names = {
    "neuronxcc": {},
    "neuronxcc.nki": {
        **_older("", "baremetal", "benchmark", "jit", "profile", "simulate_kernel", "trace"),
        **_older(".typing", "tensor"),
        **{name: f"neuronxcc.nki.{name}:" for name in _MODULES},
    },
    **{f"neuronxcc.nki.{name}": f"{_OLDER}.{name}" for name in _MODULES},
    "neuronxcc.nki.isa.constants": _older(".isa", "dge_mode", "engine", "nc_version", "oob_mode", "reduce_cmd"),
    "neuronxcc.nki.language.constants": _older(".language", "tile_size"),
    **{f"neuronxcc.nki.{name}": {**_older("", "ActFnType", "NormType"), OTHERS: _OTHER} for name in _PACKAGES},
    "neuronxcc.nki._private_kernels.attention": {**_older("", "attention_isa_kernel"), OTHERS: _OTHER},
    "neuronxcc.nki._private_kernels.blockwise_mm": {
        "SkipMode": "optimum_neuron.neuronx_distributed:SkipMode",
        OTHERS: _OTHER,
    },
    "neuronxcc.nki._private_kernels.collectives": {
        "CollectivesConfig": "optimum_neuron.neuronx_distributed:CollectivesConfig"
    },
    "neuronxcc.nki._private_kernels.cumsum": _older("", "cumsum"),
    "neuronxcc.nki._private_kernels.mlp": {**_older("", "mlp_fused_add_isa_kernel", "mlp_isa_kernel"), OTHERS: _OTHER},
    "neuronxcc.nki._private_kernels.qkv": {
        **_older("", "rmsnorm_qkv_isa_fused_add_kernel", "rmsnorm_qkv_isa_kernel"),
        OTHERS: _OTHER,
    },
    "neuronxcc.nki._private_kernels.conv": {**_older("", "conv2d_dw_fb01_io01_01bf_rep_nhwc_Pcinh"), OTHERS: _OTHER},
    **{f"neuronxcc.nki._private_kernels.{name}": {OTHERS: _OTHER} for name in ("blockwise_mm_bwd", "rmsnorm")},
    "neuronxcc.nki.compiler.backends": {},
    "neuronxcc.nki.compiler.backends.neuron": {},
    "neuronxcc.nki.compiler.backends.neuron.dimensions": {"VNC": f"{_OLDER}:nc"},
    "neuronxcc.nki.kernels": {name: _KERNEL for name in ("flash_attn_bwd", "flash_fwd")},
    "neuronxcc.nki.kernels.attention": {**_older("", "attention_isa_kernel"), "FlashConfig": _KERNEL},
    # The older place of the grid of cores.
    "neuronxcc.starfish": {},
    "neuronxcc.starfish.penguin": {},
    "neuronxcc.starfish.penguin.targets": {},
    "neuronxcc.starfish.penguin.targets.nki": {},
    "neuronxcc.starfish.penguin.targets.nki.private_api": {"vnc": f"{_OLDER}:nc"},
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
