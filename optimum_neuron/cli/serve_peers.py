"""Arguments of `optimum-cli neuron serve` under the names of Optimum Neuron and vLLM.

`translate_peer_arguments` replaces them by those of this package, before anything else reads the command line.
"""

from __future__ import annotations

import argparse
import logging

from ..errors import ConfigError
from .arguments import positive_int

logger = logging.getLogger(__name__)

TASKS = {"generate": "text-generation", "embed": "feature-extraction", "classify": "text-classification"}
"""Tasks of vLLM, and ours."""
_ONLY = ("model", "data_parallel_size", "allow_non_cached_model")


def add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    group = parser.add_argument_group("names of Optimum Neuron and vLLM")
    group.add_argument("-m", "--model", metavar="MODEL", help="the same as the argument MODEL")
    sizes = {"--max_model_len": "sequence_length", "--max_num_seqs": "batch_size"}
    for flag, name in sizes.items():
        group.add_argument(flag, dest=name, type=positive_int, metavar="N", help=f"the same as --{name}")
    group.add_argument(
        "--data-parallel-size", type=positive_int, metavar="N", help="1; for more, pass --ray --num_replicas N"
    )
    group.add_argument(
        "--allow_non_cached_model", action="store_true", help="no effect: models that are not cached are compiled"
    )


def translate_peer_arguments(args: argparse.Namespace) -> str:
    """Replace the arguments by ours; return what is wrong with the command line, or an empty text.

    Raises:
        ConfigError: several copies of a model without Ray.
    """
    if args.model is not None and args.models:
        return f"argument --model: not allowed with the argument MODEL ('{args.models[0]}')"
    args.models = args.models or [name for name in (args.model,) if name is not None]
    if not args.models:
        return "the following arguments are required: MODEL"
    if args.data_parallel_size not in (None, 1):
        number = args.data_parallel_size
        message = f"data_parallel_size={number} is not supported: a server without Ray has one copy of a model."
        hint = f"Pass --ray --num_replicas {number}."
        raise ConfigError(message, hint=hint, option="data_parallel_size", value=number)
    if args.allow_non_cached_model:
        logger.info("allow_non_cached_model changes nothing: models that are not cached are compiled.")
    args.task = TASKS.get(args.task, args.task)
    for name in _ONLY:
        delattr(args, name)
    return ""
