"""A convolution behind the name that the public U-Net script imports from the vendor's compiler.

conv2d_dw_fb01_io01_01bf_rep_nhwc_Pcinh(images, weights, out, stride=(1, 1), padding=((1, 1), (1, 1)))
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import isa as nisa, language as nl
from ..core import require
from ..rulebook import Rule
from ..tensor import NkiTensor
from .imported import KEYS, ROWS, kernel, parts

Pair = Sequence[int]


@kernel
def conv2d_dw_fb01_io01_01bf_rep_nhwc_Pcinh(  # noqa: N802 - the vendor's name
    img_ref: NkiTensor,
    filter_ref: NkiTensor,
    out_ref: NkiTensor,
    *,
    stride: Pair = (1, 1),
    padding: Sequence[Pair] = ((0, 0), (0, 0)),
    **layout: object,
) -> None:
    """Write the convolution of images with weights to `out_ref`, as `torch.nn.functional.conv2d` does.

    Args:
        img_ref: images [batch, channels, height, width].
        filter_ref: weights [features, channels, height, width].
        out_ref: gets the result [batch, features, height, width].
        stride: steps between windows.
        padding: rows above and below, columns left and right.
        layout: the shapes `input`, `filter` and `output` again, and the orders `in_perm`, `kern_perm` and `out_perm`,
            which have to be [0, 1, 2, 3].

    Raises:
        KernelError: another order of dimensions, or shapes that do not fit.
    """
    opcode = "conv2d_dw_fb01_io01_01bf_rep_nhwc_Pcinh"
    own = {"input": img_ref.shape, "filter": filter_ref.shape, "output": out_ref.shape}
    own |= dict.fromkeys(("in_perm", "kern_perm", "out_perm"), (0, 1, 2, 3))
    for name, value in layout.items():
        choices = [list(own[name])] if name in own else []
        is_own = name in own and list(value) == choices[0]  # type: ignore[call-overload]
        require(is_own, Rule.CHOICE, opcode=opcode, operand=name, value=value, choices=choices)
    (batch, channels, *sizes), (features, inner, *window) = img_ref.shape, filter_ref.shape
    padded = [size + sum(pads) for size, pads in zip(sizes, padding, strict=True)]
    result = [(size - width) // step + 1 for size, width, step in zip(padded, window, stride, strict=True)]
    shapes = [list(tensor.shape) for tensor in (img_ref, filter_ref, out_ref)]
    fits = inner == channels and list(out_ref.shape) == [batch, features, *result]
    text = f"Images of {channels} channels give {result} for each feature with this stride and padding."
    require(fits, Rule.KERNEL_SHAPES, kernel=opcode, shapes=shapes, layout=text)
    for image in range(nl.program_id(0), batch, nl.num_programs(0)):
        _convolve(img_ref[image], filter_ref, out_ref[image], stride, padding, padded)


def _convolve(
    image: NkiTensor, weights: NkiTensor, out: NkiTensor, stride: Pair, padding: Sequence[Pair], padded: Sequence[int]
) -> None:
    (features, num_rows, num_columns), (down, right) = out.shape, stride
    blocks = parts(image.shape[0], ROWS)
    tiles = [_padded(image[block], padding, padded) for block in blocks]
    for chosen in parts(features, ROWS):
        for columns in parts(num_columns, KEYS):
            width = columns.stop - columns.start
            for rows in parts(num_rows, max(1, KEYS // width)):
                shape = chosen.stop - chosen.start, rows.stop - rows.start, width
                total = nl.ndarray(shape, nl.float32, buffer=nl.psum)
                for block, tile in zip(blocks, tiles, strict=True):
                    for row in range(weights.shape[2]):
                        first = rows.start * down + row
                        lines = slice(first, first + (shape[1] - 1) * down + 1, down)
                        line = nl.load(weights[chosen, block, row].permute((1, 0, 2)))
                        for column in range(weights.shape[3]):
                            begin = columns.start * right + column
                            moving = tile[:, lines, begin : begin + (width - 1) * right + 1 : right]
                            nisa.nc_matmul(total, line[:, :, column], moving)
                nisa.dma_copy(out[chosen, rows, columns], nl.copy(total, out.dtype))


def _padded(image: NkiTensor, padding: Sequence[Pair], padded: Sequence[int]) -> NkiTensor:
    """Return the channels of an image on the chip, with zeros around them."""
    tile = nl.zeros((image.shape[0], *padded), image.dtype)
    (top, _), (left, _) = padding
    nisa.dma_copy(tile[:, top : top + image.shape[1], left : left + image.shape[2]], image)
    return tile
