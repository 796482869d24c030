"""Options of the commands, from the fields of dataclasses: configurations of the kinds, and where a model is.

An option that is not given is not passed on: defaults live in the Python API, in one place. Values that the
Python API checks (tasks, instance types, limits) are not checked a second time here.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import typing
from collections.abc import Callable, Collection, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..options.option import HasOptions, Option

Number = TypeVar("Number", int, float)
_Parser = Callable[[str], Number]

_NOT_OPTIONS = ("func", "json", "quiet")
"""Attributes of parsed arguments that are no options of the Python API."""


def number_type(convert: _Parser[Number], what: str, low: float, high: float = math.inf) -> _Parser[Number]:
    """The parser of a finite number in a range, for `type` of an argument.

    Args:
        what: Name of the numbers, for the message.
    """

    def parse(text: str) -> Number:
        with contextlib.suppress(ValueError):
            if low <= (value := convert(text)) <= high and value < math.inf:
                return value
        raise argparse.ArgumentTypeError(f"'{text}' is not {what}")

    return parse


def digits(text: str) -> int:
    """Parse digits; `int` would take signs, spaces and underscores too."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


whole_number = number_type(digits, "a whole number of at least 0", 0)
positive_int = number_type(digits, "a whole number above 0", 1)
nonnegative = number_type(float, "a number of at least 0", 0)
finite = number_type(float, "a number", -sys.float_info.max)


def positive_ints(text: str) -> tuple[int, ...]:
    """Parse whole numbers above zero, separated by commas."""
    return tuple(positive_int(part.strip()) for part in text.split(","))


def sizes(text: str) -> int | tuple[int, ...]:
    """Parse one whole number above zero, or several separated by commas."""
    parsed = positive_ints(text)
    return parsed[0] if len(parsed) == 1 else parsed


def names(text: str) -> tuple[str, ...]:
    """Parse names, separated by commas."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty name")
    return parts


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every option of a compile."""
    _add(parser, _of_compiles(), lambda option: True)


def add_validation_switch(parser: argparse._ActionsContainer) -> None:
    """Add the switch that skips validation."""
    parser.add_argument("--disable-validation", action="store_true", help="do not compare with the reference model")


def add_graph_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that set a model's operators, shapes, and target."""
    _add(parser, _of_compiles(), lambda option: option.in_graph)


def add_size_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that locate a model, and input sizes other than batch size and lengths."""
    source, *configs = _of_compiles()
    _add(parser, (source,), lambda option: True)
    _add(parser, configs, lambda option: option.is_input_size)


def add_decoder_arguments(parser: argparse.ArgumentParser, *, without: Collection[str]) -> None:
    """Add the options of an export that decide a decoder's graphs, except some by name."""
    from ..options.configuration import NeuronConfig

    _add(parser, (NeuronConfig,), lambda option: option.in_graph, without=without)


def add_option_arguments(parser: argparse.ArgumentParser, owner: type[HasOptions]) -> None:
    """Add the options of another dataclass."""
    _add(parser, (owner,), lambda option: True)


def _of_compiles() -> tuple[type[HasOptions], ...]:
    from ..kinds import config_classes
    from ..options.option import SourceOptions

    return (SourceOptions, *config_classes())


def _add(
    parser: argparse.ArgumentParser,
    owners: Sequence[type[HasOptions]],
    accepts: Callable[[Option], bool],
    *,
    without: Collection[str] = (),
) -> None:
    """Add the described fields of dataclasses; a field of several has one argument, which takes the type of each."""
    from ..options.configuration import CompileConfig
    from ..options.option import options_of

    types: dict[str, set[Any]] = {}
    options: dict[str, Option] = {}
    titles: dict[str, str] = {}
    for owner in owners:
        hints = typing.get_type_hints(owner)
        for name, option in options_of(owner).items():
            types.setdefault(name, set()).update(_members(hints[name]))
            if option.help and accepts(option) and name not in (*options, *without):
                options[name] = option
                titles[name] = option.group or owner.group
    # Options of every kind come after those that select the model.
    ordered = dict.fromkeys(sorted(titles.values(), key=lambda title: title == CompileConfig.group))
    groups = {title: parser.add_argument_group(title) for title in ordered}
    for name, option in options.items():
        _add_option(groups[titles[name]], name, option, types[name])


def _members(hint: object) -> set[Any]:
    is_union = isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union
    return set(typing.get_args(hint)) if is_union else {hint}


def _add_option(group: argparse._ArgumentGroup, name: str, option: Option, types: set[Any]) -> None:
    if option.levels:
        levels = group.add_mutually_exclusive_group()
        for level, meaning in option.levels.items():
            levels.add_argument(f"-O{level}", dest=name, action="store_const", const=level, help=meaning)
        return
    flags = option.flags or (f"--{name}",)
    if bool in types:
        group.add_argument(*flags, dest=name, action="store_true", help=option.help)
        return
    choices = next((typing.get_args(kind) for kind in types if typing.get_origin(kind) is typing.Literal), None)
    parse, metavar = _parser_of(types)
    parse = whole_number if option.allows_zero else parse
    if option.words:
        parse = _or_word(parse, option.words)
    group.add_argument(
        *flags, dest=name, type=parse, choices=choices, metavar=option.metavar or metavar, help=option.help
    )


def _parser_of(types: set[Any]) -> tuple[Callable[[str], Any], str | None]:
    """Return the function that parses a value, and the value's name in the help text."""
    if tuple[int, ...] in types:
        return (sizes, "N") if int in types else (positive_ints, "N,N")
    if tuple[str, ...] in types:
        return names, "NAME,NAME"
    if float in types:
        return finite, "X"
    return (positive_int, "N") if int in types else (str, None)


def _or_word(parse: Callable[[str], Any], words: Collection[str]) -> Callable[[str], Any]:
    """Return a parser that takes some words too."""
    return lambda text: text if text in words else parse(text)


def add_model(parser: argparse.ArgumentParser, *flags: str, nargs: str | None = None) -> None:
    """Add the model: an argument MODEL, or a required option if it has flags."""
    meaning = "name on the Hub, folder, or name that neuron fetch knows"
    if flags:
        parser.add_argument(*flags, required=True, help=meaning)
    else:
        parser.add_argument("model", metavar="MODEL", nargs=nargs, help=meaning)


def options_from(args: argparse.Namespace, *names: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the options that the user set, as keyword arguments of the Python API.

    Args:
        args: Parsed arguments; zero is a value, an unset switch is none.
        *names: The arguments; none: all of the command.
    """
    values = {name: getattr(args, name) for name in names} if names else vars(args)
    left_out = (*_NOT_OPTIONS, *without)
    return {n: value for n, value in values.items() if n not in left_out and value is not None and value is not False}
