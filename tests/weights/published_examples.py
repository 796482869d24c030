"""Small quantized matrices that the packages of the formats packed and dequantized, and the code that made them.

`published_examples.safetensors` has, for each example, the stored tensors, and `dequantized` as the package returns
it; its metadata has the settings. Made with compressed-tensors 0.20.0, auto-gptq 0.7.1, autoawq 0.2.9, and torch 2.13;
auto-gptq and autoawq are unpacked only, because they need CUDA or an older transformers to be imported as a whole.

    export PYTHONPATH=site-packages:autoawq-0.2.9:auto_gptq/nn_modules/qlinear
    python -m tests.weights.published_examples
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

PATH = Path(__file__).with_suffix(".safetensors")
INT8 = {"num_bits": 8, "type": "int", "symmetric": False}
INT4 = {"num_bits": 4, "type": "int", "symmetric": False}
COMPRESSED = {
    "fp8 in blocks": (
        "float-quantized",
        (40, 80),
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]},
    ),
    "int8 by outputs": ("int-quantized", (24, 40), INT8 | {"strategy": "channel"}),
    "int8 by matrix": ("int-quantized", (24, 40), INT8 | {"strategy": "tensor"}),
    "int4 by groups": ("pack-quantized", (20, 96), INT4 | {"strategy": "group", "group_size": 32}),
    "int4 by outputs": ("pack-quantized", (20, 42), INT4 | {"strategy": "channel"}),
    "int4 by matrix": ("pack-quantized", (20, 42), INT4 | {"strategy": "tensor"}),
    "int8 by groups": ("pack-quantized", (12, 64), INT8 | {"strategy": "group", "group_size": 32, "symmetric": True}),
}
PACKED = {
    "gptq, 4 bits": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False},
    "gptq, 8 bits": {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": False},
    "gptq, symmetric": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True},
    "gptq, last group smaller": {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False},
    "gptq, reordered": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "GEMM"},
}


def read_examples():
    """Return for each example its settings, its stored tensors, and the matrix that they stand for."""
    with safe_open(PATH, "pt") as file:
        settings = {name: json.loads(text) for name, text in file.metadata().items()}
        tensors = {name: {} for name in settings}
        for key in file.keys():  # noqa: SIM118 (it is no dict)
            name, _, part = key.partition("/")
            tensors[name][part] = file.get_tensor(key)
    return {name: (settings[name], parts, parts.pop("dequantized")) for name, parts in tensors.items()}


def _compressed(name, generator):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    form, shape, weights = COMPRESSED[name]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    rows, columns = weights.get("block_structure") or (1, weights.get("group_size") or shape[1])
    grid = (-(-shape[0] // rows), -(-shape[1] // columns)) if weights["strategy"] != "tensor" else (1, 1)
    parts = {"weight": torch.randn(shape, generator=generator)}
    parts["weight_scale"] = torch.rand(grid, generator=generator) * (0.01 if weights["num_bits"] == 8 else 0.2) + 1e-3
    if not weights.get("symmetric", True):
        half = 1 << (weights["num_bits"] - 1)
        parts["weight_zero_point"] = torch.randint(-half, half, grid, generator=generator, dtype=torch.int8)
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress(parts, scheme)
    plain = compressor.decompress(stored, scheme)["weight"]
    settings = {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"weights": weights}},
    }
    return settings, stored, plain


def _packed(name, generator):
    settings = PACKED[name]
    num_outputs, num_inputs, size = 32, 96, settings["group_size"]
    size = size if size > 0 else num_inputs
    linear = torch.nn.Linear(num_inputs, num_outputs, bias=False)
    top = 1 << settings["bits"]
    grid = (num_outputs, -(-num_inputs // size))
    scales = torch.rand(grid, generator=generator).half().float() / 64 + 2**-8
    zeros = torch.randint(1, top, grid, generator=generator).float()
    if settings.get("sym"):
        zeros = torch.full_like(zeros, top // 2)
    groups = torch.arange(num_inputs) // size
    if settings.get("desc_act"):
        groups = groups[torch.randperm(num_inputs, generator=generator)]
    numbers = torch.randint(top, (num_outputs, num_inputs), generator=generator)
    linear.weight.data = (numbers - zeros[:, groups]) * scales[:, groups]
    if settings["quant_method"] == "awq":
        from awq.modules.linear.gemm import WQLinear_GEMM
        from awq.utils.packing_utils import dequantize_gemm

        one = WQLinear_GEMM.from_linear(linear, 4, size, scales=scales.t(), zeros=zeros.t())
        plain = dequantize_gemm(one.qweight, one.qzeros, one.scales.float(), 4, size).t()
        return settings, dict(one.named_buffers()), plain
    from qlinear_cuda import QuantLinear

    one = QuantLinear(
        settings["bits"], settings["group_size"], num_inputs, num_outputs, False, weight_dtype=torch.float32
    )
    one.pack(linear, scales, zeros, groups.int())
    return settings, dict(one.named_buffers()), one(torch.eye(num_inputs)).t()


if __name__ == "__main__":
    sys.modules["awq"] = package = types.ModuleType("awq")
    package.__path__ = [str(Path(path, "awq")) for path in sys.path if Path(path, "awq").is_dir()]
    generator, tensors, metadata = torch.Generator().manual_seed(0), {}, {}
    for name in (*COMPRESSED, *PACKED):
        settings, stored, plain = (_compressed if name in COMPRESSED else _packed)(name, generator)
        metadata[name] = json.dumps(settings)
        named = {**stored, "dequantized": plain.detach().float()}
        tensors |= {f"{name}/{part}": tensor.contiguous().clone() for part, tensor in named.items()}
    save_file(tensors, PATH, metadata=metadata)
