"""Layout of a quantized checkpoint by its configuration: what `weights/published.py` needs to read its tensors.

Settings that change what the stored numbers mean are read or rejected by name; defaults are those of the libraries that
write them. It reads no tensor, and knows no scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.core import Choice
from ..base.foreign import plain_value
from ..weights import Layout

FP8_BLOCK = (128, 128)
"""Blocks of the method fp8 in a configuration that does not name them (transformers' `FineGrainedFP8Config`)."""
_GROUP_SIZE = 128
"""Size of groups where a GPTQ or AWQ configuration does not name it."""
_PACKED_BITS = (4, 8)
_COMPRESSED_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")


def stored_layout(method: str, settings: Mapping[str, Any]) -> Choice[Layout | None]:
    """Return the layout of a method's tensors, or None and the reason.

    Args:
        method: as `method_of` returns it.
        settings: the `quantization_config` of a checkpoint.

    Example:
        ```python
        from optimum_neuron.sources.layouts import stored_layout

        layout = stored_layout("fp8", {"weight_block_size": [128, 64]}).value
        assert layout.block == (128, 64) and layout.grid(192, 64) == (2, 1)
        ```
    """
    read = {"fp8": _fp8, "compressed-tensors": _compressed, "gptq": _gptq, "awq": _awq}.get(method)
    if read is None:
        return Choice(value=None, reason=f"{method} has a layout that is not read here")
    layout = read(settings)
    if isinstance(layout, str):
        return Choice(value=None, reason=layout)
    return Choice(value=layout, reason=f"the tensors of {method}")


def _fp8(settings: Mapping[str, Any]) -> Layout | str:
    block = settings.get("weight_block_size", FP8_BLOCK)
    if settings.get("expert_dtype", "fp8") != "fp8":
        return f"fp8 with experts in {settings['expert_dtype']} is not read here"
    return Layout(method="fp8", block=(0, 0) if block is None else (int(block[0]), int(block[1])))


def _gptq(settings: Mapping[str, Any]) -> Layout | str:
    form = _word(settings.get("checkpoint_format") or settings.get("format") or "gptq")
    bits, word = settings.get("bits"), str(settings.get("pack_dtype") or "int32")
    if form not in ("gptq", "gptq_v2") or settings.get("is_marlin_format"):
        return f"GPTQ in the layout {form if form not in ('gptq', 'gptq_v2') else 'marlin'!r} is not read here"
    if bits not in _PACKED_BITS or word.rpartition(".")[2] != "int32":
        return f"gptq with {bits} bits in {word} is not read here"
    writers = (settings.get("meta") or {}).get("quantizer") or ()
    return Layout(
        method="gptq",
        num_bits=bits,
        block=(1, _group_size(settings)),
        is_symmetric=bool(settings.get("sym", True)),
        zero_offset=0 if form == "gptq_v2" else 1,
        carries="gptqmodel" in str(writers).lower(),
    )


def _awq(settings: Mapping[str, Any]) -> Layout | str:
    form = _word(settings.get("version") or settings.get("format") or "gemm")
    if form != "gemm" or _word(settings.get("backend")) == "llm-awq":
        return f"AWQ in the layout {'llm-awq' if form == 'gemm' else form!r} is not read here"
    if settings.get("bits", 4) != 4:
        return f"awq with {settings['bits']} bits is not read here"
    return Layout(method="awq", num_bits=4, block=(1, _group_size(settings)), is_symmetric=False)


def _compressed(settings: Mapping[str, Any]) -> Layout | str:
    groups = weight_groups(settings)
    if not groups or any(group["weights"] != groups[0]["weights"] for group in groups):
        return "compressed-tensors with several groups of layers, or none"
    weights = groups[0]["weights"]
    forms = {_word(group.get("format") or settings.get("format") or _COMPRESSED_FORMATS[0]) for group in groups}
    form = min(forms - set(_COMPRESSED_FORMATS), default=_COMPRESSED_FORMATS[0])
    sparsity = _word((settings.get("sparsity_config") or {}).get("format") or "dense")
    bits, kind = weights.get("num_bits", 8), _word(weights.get("type", "int"))
    if form not in _COMPRESSED_FORMATS or sparsity != "dense":
        return f"compressed-tensors in the format {form if sparsity == 'dense' else sparsity} is not read here"
    if (settings.get("transform_config") or {}).get("config_groups"):
        return "compressed-tensors with transforms of activations is not read here"
    if (kind, bits) not in (("int", 4), ("int", 8), ("float", 8)):
        return f"compressed-tensors with {bits} bits is not read here"
    block = _compressed_block(weights)
    if block is None:
        return f"compressed-tensors with the strategy {weights.get('strategy')} is not read here"
    is_symmetric = bool(weights.get("symmetric", True))
    return Layout(method="compressed-tensors", num_bits=bits, block=block, is_symmetric=is_symmetric)


def weight_groups(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the groups of layers of compressed-tensors whose weights are quantized."""
    groups = (settings.get("config_groups") or {}).values()
    return [group for group in groups if isinstance(group, Mapping) and group.get("weights")]


def _compressed_block(weights: Mapping[str, Any]) -> tuple[int, int] | None:
    """Outputs and inputs that share a scale; 0: all of them."""
    size, block = weights.get("group_size"), weights.get("block_structure")
    strategy = _word(weights.get("strategy") or ("tensor" if size is None else "group" if size > 0 else "channel"))
    if strategy == "block":
        return (int(block[0]), int(block[1])) if block else None
    if strategy == "group":
        return (1, int(size)) if size and size > 0 else None
    return {"tensor": (0, 0), "channel": (1, 0)}.get(strategy)


def _group_size(settings: Mapping[str, Any]) -> int:
    """Neighboring inputs that share a scale; 0: all of them."""
    size = settings.get("group_size")
    return _GROUP_SIZE if size is None else max(int(size), 0)


def _word(value: object) -> str:
    """A name of a setting, which may be an enum and have capitals."""
    return str(plain_value(value)).lower()
