"""Second readings of quantized matrices: one element after the other, straight from the descriptions of the formats.

They are written to be checked by eye and share no code with `optimum_neuron/weights`; they are slow. Sources: the OCP
specifications of 8-bit floating point (e4m3) and of microscaling formats (mxfp4), DeepSeek-V3's README_WEIGHTS.md
(blocks and `weight_scale_inv`), compressed-tensors' documentation of its formats, AutoGPTQ's and llm-awq's packing.
"""

from __future__ import annotations

import math

import torch


def e4m3(byte):
    """Value of a float8 of 4 exponent and 3 mantissa bits: bias 7, no infinities."""
    sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    magnitude = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -magnitude if sign else magnitude


def number_at(words, place, bits):
    """Number at a place of a list of int32, the lowest bits of each first."""
    per_word = 32 // bits
    word = int(words[place // per_word]) & 0xFFFFFFFF
    return word >> (bits * (place % per_word)) & ((1 << bits) - 1)


def matrix(num_outputs, num_inputs, element):
    return torch.tensor([[element(o, i) for i in range(num_inputs)] for o in range(num_outputs)])


def scale_at(scale, output, column, block):
    """Scale of an element: of its block, of its output, or of the matrix."""
    if scale.numel() == 1:
        return float(scale)
    if scale.dim() == 1 or (scale.shape[1] == 1 and block == (1, 0)):
        return float(scale.flatten()[output])
    return float(scale[output // block[0], column // block[1]])


def fp8(parts, block):
    data, scale = parts["weight"].view(torch.uint8), parts["weight_scale_inv"]
    return matrix(*data.shape, lambda o, i: e4m3(int(data[o, i])) * scale_at(scale, o, i, block))


def compressed_unpacked(parts, block):
    """Numbers in a dtype of torch; a weight is (number - zero point) * scale, and both have signs."""
    data, scale, zero = parts["weight"], parts["weight_scale"], parts.get("weight_zero_point")

    def element(o, i):
        point = 0.0 if zero is None else scale_at(zero, o, i, block)
        return (float(data[o, i]) - point) * scale_at(scale, o, i, block)

    return matrix(*data.shape, element)


def compressed_packed(parts, block, bits):
    """Numbers are stored without sign, half of the range higher; zero points are packed along outputs."""
    packed, scale, zero = parts["weight_packed"], parts["weight_scale"], parts.get("weight_zero_point")
    order, half = parts.get("weight_g_idx"), 1 << (bits - 1)

    def element(o, i):
        group = int(order[i]) if order is not None else i // block[1] if block[1] else 0
        number = number_at(packed[o], i, bits) - half
        point = 0 if zero is None else number_at(zero[:, group], o, bits) - half
        return (number - point) * float(scale[o, group])

    return matrix(*parts["weight_shape"].tolist(), element)


def gptq(parts, group_size, bits, version=1):
    """Numbers are packed along inputs; the first version stores zero points minus one, modulo the range."""
    qweight, qzeros, scales, order = (parts.get(name) for name in ("qweight", "qzeros", "scales", "g_idx"))

    def element(o, i):
        group = int(order[i]) if order is not None else i // group_size if group_size > 0 else 0
        zero = number_at(qzeros[group], o, bits)
        zero = (zero + 1) % (1 << bits) if version == 1 else zero
        return (number_at(qweight[:, o], i, bits) - zero) * float(scales[group, o])

    return matrix(qweight.shape[1], qweight.shape[0] * (32 // bits), element)


def awq(parts, group_size):
    """Eight outputs share an int32, in the order 0, 2, 4, 6, 1, 3, 5, 7."""
    qweight, qzeros, scales = (parts[name] for name in ("qweight", "qzeros", "scales"))
    place = {column: place for place, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7))}

    def element(o, i):
        group, where = i // group_size if group_size > 0 else 0, o // 8 * 8 + place[o % 8]
        return (number_at(qweight[i], where, 4) - number_at(qzeros[group], where, 4)) * float(scales[group, o])

    return matrix(scales.shape[1], qweight.shape[0], element)


def mxfp4(blocks, scales):
    """Experts [E, I, O] of blocks [E, O, I / 32, 16]: the lower half of a byte first, a power of two for a block."""
    levels = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    num_experts, num_outputs, num_blocks, _ = blocks.shape

    def element(expert, i, o):
        byte = int(blocks[expert, o, i // 32, i % 32 // 2])
        code = byte >> 4 if i % 2 else byte & 15
        return (-1 if code & 8 else 1) * levels[code & 7] * 2.0 ** (int(scales[expert, o, i // 32]) - 127)

    one = [matrix(32 * num_blocks, num_outputs, lambda i, o, e=e: element(e, i, o)) for e in range(num_experts)]
    return torch.stack(one)
