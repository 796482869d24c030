"""Arguments of `optimum-cli neuron serve` under the names of Optimum Neuron and vLLM.

`translate_server_peers` replaces them by those of this package, before anything else reads the command line.
"""

from __future__ import annotations

import argparse
import logging

from ..base import env
from .arguments import positive_int

logger = logging.getLogger(__name__)

PORT = 8080
"""Port of Optimum Neuron's server, for command lines that name the model as it does (`--model`)."""

TASKS = {"generate": "text-generation", "embed": "feature-extraction", "classify": "text-classification"}
"""Tasks of vLLM, and ours."""
_ONLY = ("model", "data_parallel_size", "allow_non_cached_model")


def add_served_models(parser: argparse.ArgumentParser) -> None:
    """Add the models, as arguments or as Optimum Neuron's option."""
    meaning = "name on the Hub, folder, or name that neuron fetch knows"
    parser.add_argument("models", metavar="MODEL", nargs="*", help=meaning)
    parser.add_argument("-m", "--model", metavar="MODEL", help="the same for one model")


def add_server_peers(parser: argparse.ArgumentParser) -> None:
    """Add the other arguments."""
    from ..exporters import OTHER_NAMES

    group = parser.add_argument_group("names of Optimum Neuron and vLLM")
    for name in ("max_model_len", "max_num_seqs"):
        ours = OTHER_NAMES[name]
        group.add_argument(f"--{name}", dest=ours, type=positive_int, metavar="N", help=f"the same as --{ours}")
    group.add_argument("--data-parallel-size", type=positive_int, metavar="N", help="the same as --num_replicas")
    group.add_argument(
        "--allow_non_cached_model", action="store_true", help="no effect: models that are not cached are compiled"
    )


def translate_server_peers(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Replace the arguments by ours; the command line ends with an error if it has no model, or names them twice.

    The variables SM_ON_* are arguments that the command line does not have.
    """
    _add_variables(parser, args)
    if not args.models and args.model is None:
        parser.error("the following arguments are required: MODEL")
    if args.models and args.model is not None:
        parser.error(f"argument --model: not allowed with the argument MODEL ('{args.models[0]}')")
    if args.model is not None and args.port is None and args.simulate is None:
        logger.info("port=%d, as for Optimum Neuron's --model; without it, the port is 8000.", PORT)
        args.port = PORT
    args.models = args.models or [args.model]
    if args.data_parallel_size is not None and args.num_replicas is not None:
        parser.error("argument --data-parallel-size: not allowed with argument --num_replicas")
    args.num_replicas = args.num_replicas or args.data_parallel_size
    if args.allow_non_cached_model:
        logger.info("allow_non_cached_model changes nothing: models that are not cached are compiled.")
    args.task = TASKS.get(args.task, args.task)
    for name in _ONLY:
        delattr(args, name)


def _add_variables(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Set each argument that the environment has and the command line does not."""
    words = env.server_words()
    if not words:
        return
    given, defaults = parser.parse_args(words), parser.parse_args([])
    for name, value in vars(given).items():
        default = getattr(defaults, name)
        is_free = getattr(args, name) == default and not (name == "model" and args.models)
        if value != default and is_free:
            setattr(args, name, value)
