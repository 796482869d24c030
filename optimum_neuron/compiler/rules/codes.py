"""The NCC_... error codes of the Neuron compiler as data: meaning, remedy, and whether this package raises them.

Codes and triggers are facts of AWS Neuron 2.32 (compiler documentation, one page for each code); the words are ours.
`docs/error-codes.md` is the output of `to_markdown`. It does not depend on graphs: rules pick a code from here.

    >>> from optimum_neuron.compiler.rules.codes import CODES
    >>> CODES["NCC_EVRF013"].meaning
    'topk of an int32 or int64 tensor'
"""

from __future__ import annotations

import dataclasses

OPERATOR_CHECK = "operator check"
"""Value of `ErrorCode.simulated_by` for the codes that rules raise."""

HARDWARE_CATALOGUE = "hardware catalogue"
"""Value of `ErrorCode.simulated_by` for the codes that `optimum_neuron.hardware` raises."""

ON_HOST = "on the host with allow_host_ops"
"""Phrase of remedies. `Report.raise_for_refusals` replaces it for programs that do not have this option."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ErrorCode:
    """One published error code."""

    code: str
    """With prefix, for example "NCC_EVRF001"."""
    meaning: str
    """Problem found by the compiler."""
    remedy: str
    simulated_by: str | None
    """The part of this package that raises it; None when nothing does."""
    downcast: str | None = None
    """Value of --implicit-integer-downcast that turns the refusal into a warning."""


_FEWER_BYTES = "use a smaller batch or sequence, or split the model over more cores"
_FEWER_INSTRUCTIONS = "split the model over more cores, or compile it in parts"
_LISTED_OPERATOR = f"write it with operators of the supported list, or run it {ON_HOST}"
_FLOAT_FIRST = "cast to float32 or bfloat16 first, or accept the rounding with --implicit-integer-downcast={0}"
_KNOWN_CALL = "use a custom call that the compiler knows"
_MX_INPUT = "quantize one bfloat16 or float16 tensor along a dimension that is a multiple of 4, in blocks of 32"
_SCALED_DOT = "call block_scaled_dot with left, right and their scales, with matching static shapes"

_ROWS: dict[str, tuple[str, str]] = {
    "EARG001": ("the target has no such logical-core setting", "leave it out, or use 1 on trn1 and inf2"),
    "EBIR023": ("a fused MLP kernel got an intermediate size above 4096", "use more tensor parallelism"),
    "EBVF030": ("the program needs more instructions than fit", _FEWER_INSTRUCTIONS),
    "EHCA005": ("a custom call has a target that the compiler does not know", _KNOWN_CALL),
    "EMOD025": (
        "a tensor has a size that is not known at compile time",
        "fix every size: pad or bucket the inputs, and select with masks of a static shape",
    ),
    "EOOM001": ("the model's tensors exceed the device memory of a core", _FEWER_BYTES),
    "EOOM002": ("the model's tensors exceed the device memory of a core", _FEWER_BYTES),
    "ESFH002": (
        "a 64-bit integer constant does not fit 32 bits",
        "use constants from -2^31 to 2^31 - 1, for example torch.iinfo(torch.int32).max",
    ),
    "ESPP004": (
        "no code can be generated for a data type",
        "use float32, bfloat16, float16 or an integer type of at most 32 bits",
    ),
    "ESPP047": ("an 8-bit float type that the target lacks", "cast to float16 or bfloat16"),
    "EUOC002": ("an operator that the compiler does not support", _LISTED_OPERATOR),
    "EVRF001": ("an operator that the compiler does not support", _LISTED_OPERATOR),
    "EVRF004": ("a complex tensor", "keep real and imaginary parts in two real tensors"),
    "EVRF005": ("an 8-bit float of the FNUZ kind", "cast to float16 or bfloat16"),
    "EVRF006": ("a random generator other than the default one", "use the framework's default generator"),
    "EVRF007": ("the program needs more instructions than fit", _FEWER_INSTRUCTIONS),
    "EVRF009": ("activations exceed the device memory of a core", _FEWER_BYTES),
    "EVRF010": (
        "a convolution that dilates its input and its kernel",
        "use stride 1 or dilation 1 in the transposed convolution, or spread the kernel with zeros yourself",
    ),
    "EVRF011": ("a strided convolution of a dilated input", "upsample and downsample in two steps"),
    "EVRF013": ("topk of an int32 or int64 tensor", "cast the tensor to float32 before topk"),
    "EVRF015": ("a custom call has a target that the compiler does not know", _KNOWN_CALL),
    "EVRF016": ("scatter_reduce of integers or booleans", "cast input and source to float32 or bfloat16"),
    "EVRF017": ("a window reduction of a dilated input", "insert the gaps yourself"),
    "EVRF018": ("a window reduction with a dilated window", "pool with dilation 1 over a strided slice"),
    "EVRF019": ("a window reduction that does not have two operands", "reduce each operand on its own"),
    "EVRF022": ("an arithmetic right shift of a type that is not 32 bits wide", "cast the first operand to int32"),
    "EVRF024": ("an output tensor above 4 GB", _FEWER_BYTES),
    "EVRF031": (
        "a scatter whose positions run past the end",
        "make every position smaller than the size of the dimension that is written",
    ),
    "EVRF035": ("a matrix product of integers that the engine would round beyond 2^24", _FLOAT_FIRST.format("dot")),
    "EVRF036": ("MX quantization: unreadable options", _MX_INPUT),
    "EVRF037": ("MX quantization: not exactly one operand", _MX_INPUT),
    "EVRF038": ("MX quantization: a dimension other than the last two", _MX_INPUT),
    "EVRF039": ("MX quantization: a block size other than 32", _MX_INPUT),
    "EVRF040": ("MX quantization: a scale method other than EMAX", _MX_INPUT),
    "EVRF041": ("MX quantization: an input that is neither bfloat16 nor float16", _MX_INPUT),
    "EVRF042": ("MX quantization: a malformed call", _MX_INPUT),
    "EVRF043": ("scaled matrix product: not four operands", _SCALED_DOT),
    "EVRF044": ("scaled matrix product: wrong type of the left operand", _SCALED_DOT),
    "EVRF045": ("scaled matrix product: an output that is neither float32 nor bfloat16", _SCALED_DOT),
    "EVRF046": ("scaled matrix product: the left operand has fewer than two dimensions", _SCALED_DOT),
    "EVRF047": ("scaled matrix product: the right operand has fewer than two dimensions", _SCALED_DOT),
    "EVRF048": ("scaled matrix product: batch sizes differ", _SCALED_DOT),
    "EVRF049": ("scaled matrix product: unreadable options", _SCALED_DOT),
    "EVRF050": ("scaled matrix product: contracted sizes differ", _SCALED_DOT),
    "EVRF051": ("float8_e4m3fn on a target before trn3", "compile for trn3, or cast to bfloat16"),
    "EVRF052": ("the older float8 e4m3 on a target after trn3", "use float8_e4m3fn"),
    "EVRF053": ("scaled matrix product: a dimension is both batch and contracted", _SCALED_DOT),
    "EVRF054": ("scaled matrix product: no such batch dimension", _SCALED_DOT),
    "EVRF055": ("scaled matrix product: no such contracted dimension", _SCALED_DOT),
    "EVRF056": (
        "a gather whose positions run past the end of its table",
        "make every position smaller than the size that it indexes; a sequence is no longer than its table of "
        "positions (max_position_embeddings)",
    ),
    "EVRF057": ("MX quantization: not two outputs", _MX_INPUT),
    "EVRF058": ("MX quantization: a size that is not a multiple of 4", _MX_INPUT),
    "EVRF059": ("the file of an NKI kernel is missing", "trace the kernel again on this machine"),
    "EVRF060": (
        "a scatter that combines integers, which the engine would round beyond 2^24",
        _FLOAT_FIRST.format("scatter"),
    ),
    "EVRF061": ("an all-reduce of integers, which would round beyond 2^24", _FLOAT_FIRST.format("all_reduce")),
    "EVRF062": (
        "a power of int64, which would be cut to int32",
        "cast to int32 or float32 first, or accept the cut with --implicit-integer-downcast=pow",
    ),
    "EVRF063": ("a reduce-scatter of integers, which would round beyond 2^24", _FLOAT_FIRST.format("reduce_scatter")),
    "EVRF064": ("the graph handed to the compiler is inconsistent", "report it with the log of the compiler"),
    "EVRF065": ("an NKI kernel traced by an unsupported version", "trace the kernel again with the current nki"),
    "EXSP001": ("activations exceed the device memory of a core", _FEWER_BYTES),
    "EXTP004": ("the program needs more instructions than fit", _FEWER_INSTRUCTIONS),
}
"""Code to its meaning and its remedy."""

_CHECKED = """
    EMOD025 ESFH002 ESPP004 ESPP047 EUOC002 EVRF001 EVRF004 EVRF005 EVRF010 EVRF013 EVRF016 EVRF018 EVRF022 EVRF031
    EVRF035 EVRF051 EVRF056 EVRF060 EVRF062
"""
_SIMULATED_BY = {"EARG001": HARDWARE_CATALOGUE} | dict.fromkeys(_CHECKED.split(), OPERATOR_CHECK)

_DOWNCASTS = {
    "EVRF035": "dot",
    "EVRF060": "scatter",
    "EVRF061": "all_reduce",
    "EVRF062": "pow",
    "EVRF063": "reduce_scatter",
}

CODES: dict[str, ErrorCode] = {
    f"NCC_{code}": ErrorCode(
        code=f"NCC_{code}",
        meaning=meaning,
        remedy=remedy,
        simulated_by=_SIMULATED_BY.get(code),
        downcast=_DOWNCASTS.get(code),
    )
    for code, (meaning, remedy) in _ROWS.items()
}
"""Every published code, by its name with prefix."""

DOWNCASTS = tuple(sorted(_DOWNCASTS.values()))
"""Values that --implicit-integer-downcast knows besides all and none."""


def to_markdown() -> str:
    """Return the text of `docs/error-codes.md`.

    Example:
        ```python
        from optimum_neuron.compiler.rules.codes import to_markdown

        assert to_markdown().startswith("# Compiler error codes")
        ```
    """
    simulated = sum(code.simulated_by is not None for code in CODES.values())
    lines = [
        "# Compiler error codes",
        "",
        "The codes that the Neuron compiler documents (AWS Neuron 2.32), with their meaning and remedy.",
        f'This package raises {simulated} of the {len(CODES)}; the column "simulated by" names the check for each.',
        "A dash means that nothing here checks for it: such a graph may pass here and fail on hardware.",
        "",
        "This page is the output of `optimum_neuron.compiler.rules.codes.to_markdown`; a test compares them.",
        "",
        "| code | the compiler found | what to do | simulated by |",
        "|---|---|---|---|",
    ]
    lines += [f"| {c.code} | {c.meaning} | {c.remedy} | {c.simulated_by or '-'} |" for c in CODES.values()]
    return "\n".join(lines) + "\n"
