"""The options that decide what is compiled, shared by `export neuron`, `check`, `cache lookup` and `cache explain`.

An option that is not given is not passed on: defaults live in the Python API, in one place. Values that the
Python API checks (tasks, instance types, limits) are not checked a second time here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, get_args

from ..core import AutoCast, AutoCastType, TorchDtype

_SIZES = {
    "text_batch_size": "rows of text per call, where texts are compared with images",
    "image_batch_size": "images per call, where texts are compared with images or have images in them",
    "num_choices": "answers to choose from (multiple-choice)",
    "num_channels": "channels of an image",
    "height": "pixels of an image",
    "width": "pixels of an image",
    "audio_sequence_length": "samples of a recording",
    "nb_max_frames": "frames of a spectrogram",
    "feature_size": "values of a frame of a spectrogram",
}
"""Sizes of models of one forward, beside rows and tokens, each with its meaning."""

_COMPILE_OPTIONS = (
    "task",
    "batch_size",
    "sequence_length",
    "decoder_sequence_length",
    "num_beams",
    "prefill_buckets",
    "decode_buckets",
    "max_num_images",
    "image_size",
    *_SIZES,
    "dynamic_batch_size",
    "output_attentions",
    "output_hidden_states",
    "instance_type",
    "auto_cast",
    "auto_cast_type",
    "optlevel",
    "torch_dtype",
    "allow_host_ops",
    "inline_weights_to_neff",
    "trust_remote_code",
    "subfolder",
    "revision",
    "cache_dir",
)
"""Keyword arguments of the Python API that `add_compile_arguments` can set."""

_HOW = ("optlevel", "allow_host_ops", "inline_weights_to_neff")
"""Those of them that change how a model is compiled, and not which operators it has."""


def whole_number(text: str) -> int:
    """Parse a whole number of at least zero.

    Raises:
        argparse.ArgumentTypeError: The text is something else.
    """
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 0")
    return int(text)


def positive_int(text: str) -> int:
    """Parse a whole number above zero.

    Raises:
        argparse.ArgumentTypeError: The text is something else.
    """
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def positive_ints(text: str) -> tuple[int, ...]:
    """Parse whole numbers above zero, separated by commas.

    Raises:
        argparse.ArgumentTypeError: One of them is something else.
    """
    return tuple(positive_int(part.strip()) for part in text.split(","))


def sizes(text: str) -> int | tuple[int, ...]:
    """Parse one size, or several separated by commas.

    Raises:
        argparse.ArgumentTypeError: One of them is no whole number above zero.
    """
    parsed = positive_ints(text)
    return parsed[0] if len(parsed) == 1 else parsed


def names(text: str) -> tuple[str, ...]:
    """Parse names, separated by commas.

    Raises:
        argparse.ArgumentTypeError: One of them is empty.
    """
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty name")
    return parts


def nonnegative(text: str) -> float:
    """Parse a finite number of at least zero.

    Raises:
        argparse.ArgumentTypeError: The text is something else.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 0")
    return value


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, shape and compiler options to a parser.

    Args:
        parser: The parser of a command that compiles, or asks the cache what compiling would need.
    """
    compiler = add_graph_arguments(parser)
    levels = compiler.add_mutually_exclusive_group()
    for level, meaning in (
        ("1", "no C++ compiler needed, ready at once"),
        ("2", "each distinct layer compiled ahead of time"),
        ("3", "as -O2, alternative kernels are tried and seldom used graphs compiled too"),
    ):
        levels.add_argument(f"-O{level}", dest="optlevel", action="store_const", const=level, help=meaning)
    compiler.add_argument(
        "--allow_host_ops",
        type=names,
        metavar="OP,OP",
        help="operators that may run on the host if the target refuses them, for example aten.sort",
    )
    compiler.add_argument(
        "--inline-weights-neff",
        dest="inline_weights_to_neff",
        action="store_true",
        help="put the weights into the NEFF; a fine-tuned checkpoint then needs its own export",
    )


def add_graph_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that decide which operators a model has, of what shape and for what target.

    Args:
        parser: The parser of a command that compiles, or judges what would be compiled.

    Returns:
        The group of the compiler's options.
    """
    model = parser.add_argument_group("model")
    model.add_argument(
        "--task",
        help="what it is for, such as text-generation, by its name here or in optimum (default: from its config)",
    )
    model.add_argument(
        "--torch_dtype", "--dtype", choices=get_args(TorchDtype), help="dtype of the weights (default: its own)"
    )
    model.add_argument("--subfolder", help="folder inside the repository that holds the model")
    model.add_argument("--revision", help="branch, tag or commit on the Hub")
    model.add_argument("--cache_dir", help="folder for downloads from the Hub")
    model.add_argument("--trust-remote-code", action="store_true", help="run the model's own Python code")

    shapes = parser.add_argument_group("shapes (a graph is static: every size is fixed here)")
    shapes.add_argument("--batch_size", type=sizes, metavar="N", help="rows per call")
    shapes.add_argument(
        "--sequence_length",
        type=sizes,
        metavar="N",
        help="tokens per row, prompt and answer; an encoder takes several, for example 64,128,512",
    )
    shapes.add_argument(
        "--decoder_sequence_length",
        type=positive_int,
        metavar="N",
        help="tokens that a model such as T5 writes per row; --sequence_length is what it reads",
    )
    shapes.add_argument(
        "--num_beams",
        type=positive_int,
        metavar="N",
        help="beams that generate() of a model such as T5 has by default; its decoder has a row for each",
    )
    shapes.add_argument(
        "--prefill_buckets", type=positive_ints, metavar="N,N", help="prompt lengths to compile, for example 64,256"
    )
    shapes.add_argument(
        "--decode_buckets",
        type=positive_ints,
        metavar="N,N",
        help="cache slots of a decode step, for example 1024,4096",
    )

    shapes.add_argument(
        "--max_num_images",
        type=positive_int,
        metavar="N",
        help="images of a prompt (image-text-to-text); one that is split counts as its tiles",
    )
    shapes.add_argument(
        "--image_size", type=positive_int, metavar="N", help="pixels of such an image, or tile, in height and in width"
    )

    _add_encoder_arguments(parser)

    compiler = parser.add_argument_group("compiler")
    compiler.add_argument(
        "--instance_type",
        metavar="TARGET",
        help="inf2, trn1, trn1n, trn2, trn3, or an instance such as inf2.xlarge",
    )
    compiler.add_argument("--auto_cast", choices=get_args(AutoCast), help="which fp32 operations are rounded to less")
    compiler.add_argument("--auto_cast_type", choices=get_args(AutoCastType), help="what they are rounded to")
    return compiler


def _add_encoder_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models of one forward (sizes may be several, for example 224,384)")
    for name, meaning in _SIZES.items():
        group.add_argument(f"--{name}", type=sizes, metavar="N", help=meaning)
    group.add_argument("--dynamic-batch-size", action="store_true", help="compile for a single row too")
    group.add_argument(
        "--output_attentions",
        action="store_true",
        help="return attention weights too; with Whisper, for times of words",
    )
    group.add_argument("--output_hidden_states", action="store_true", help="return every layer's hidden states too")


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options the user gave, as keyword arguments of the Python API.

    Args:
        args: Parsed by a parser with `add_compile_arguments`.
    """
    return given(args, _COMPILE_OPTIONS)


def graph_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options the user gave, as keyword arguments of the Python API.

    Args:
        args: Parsed by a parser with `add_graph_arguments`.
    """
    return given(args, [name for name in _COMPILE_OPTIONS if name not in _HOW])


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the named options that the user gave; zero is a value, an unset switch is none."""
    values = {name: getattr(args, name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}
