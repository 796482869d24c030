"""Options as fields of dataclasses: keywords of the Python API, and how the command line spells them.

A keyword is a field of a frozen dataclass: of `SourceOptions`, or of a configuration (`configuration.py`). `option`
describes a field to the command line; a field without a help text is a keyword only. This module does not depend on
parsers, models or files.

    >>> from optimum_neuron.options.option import SOURCE_OPTIONS
    >>> "revision" in SOURCE_OPTIONS
    True
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ..errors import ConfigError, nearest

MODEL_GROUP = "model"
"""Title of the group of options that say which model it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """An option's metadata; type and default are those of its field."""

    help: str = ""
    """Meaning in one line, for `--help`; empty: the command line does not have it."""
    group: str | None = None
    """Title of its group on the command line; None: that of its class."""
    flags: tuple[str, ...] = ()
    """Spellings on the command line; empty: `--name`."""
    metavar: str | None = None
    """Value in the help text; None follows from the type."""
    levels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Meaning of each value that has its own flag, `-O1` for "1"."""
    in_graph: bool = True
    """Whether it changes the operators of a graph; `neuron check` takes only such options."""
    in_program: bool = True
    """Whether it decides the compiled program, and so is part of the cache key."""
    is_keyword: bool = True
    """False for a field that follows from the others."""
    allows_zero: bool = False
    """Whether a number may be 0 on the command line."""
    words: tuple[str, ...] = ()
    """Words that the command line takes in place of a number."""
    is_input_size: bool = False
    """Whether it is an input size that `neuron estimate` accepts too, other than batch size and lengths."""


OPEN: Any = None
"""A size that is left open: it follows from the model, so that it has a value in every complete configuration."""


def option(default: Any = dataclasses.MISSING, **parts: Any) -> Any:
    """Return a dataclass field that is an option, with the fields of `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(**parts)})


def options_of(owner: type) -> dict[str, Option]:
    """Return the options of a dataclass by name; a plain field is a keyword without a flag.

    A field that a subclass declares again, with another default, stays the option that it is in the base class.
    """
    options: dict[str, Option] = {}
    for base in filter(dataclasses.is_dataclass, reversed(owner.__mro__)):
        for field in dataclasses.fields(base):
            if "option" in field.metadata or field.name not in options:
                options[field.name] = field.metadata.get("option", Option())
    return options


class HasOptions:
    """Base of dataclasses whose fields are options of the command line."""

    group: ClassVar[str] = MODEL_GROUP
    """Title of the options that do not name a group."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions(HasOptions):
    """Options that locate a model, and the permission to run its code.

    Every function that takes a model takes these keywords.
    """

    subfolder: str = option("", help="folder inside the repository that holds the model")
    """Folder inside the repository."""
    gguf_file: str | None = option(None, help="GGUF file in that folder, with the weights and all settings")
    """GGUF file in the folder, which is all that is read of it, as in transformers."""
    revision: str | None = option(None, help="branch, tag or commit on the Hub")
    """Branch, tag, or commit."""
    token: str | bool | None = None
    """Token of the Hub; True: the one of `hf auth login`."""
    cache_dir: str | Path | None = option(None, help="folder for downloads from the Hub")
    """Folder of downloads."""
    local_files_only: bool = False
    """Download nothing."""
    force_download: bool = False
    """Download files again that are here already."""
    trust_remote_code: bool = option(False, help="run the model's own Python code", flags=("--trust-remote-code",))
    """Run code that comes with the checkpoint."""


SOURCE_OPTIONS = tuple(field.name for field in dataclasses.fields(SourceOptions))
"""Keywords that say where a model is found."""


def source_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `SourceOptions` among others."""
    return {name: value for name, value in options.items() if name in SOURCE_OPTIONS}


def absolute_source(source: str) -> str:
    """Return a model's source for a process with another working directory: a folder of this machine as absolute path.

    >>> absolute_source("org/name")
    'org/name'
    """
    folder = Path(source).expanduser()
    return str(folder.absolute()) if folder.is_dir() else source


def absolute_url(url: str) -> str:
    """Return a folder or an fsspec URL for a process with another working directory.

    >>> absolute_url("s3://bucket/neffs")
    's3://bucket/neffs'
    """
    return url if "://" in url else str(Path(url).expanduser().absolute())


_FEW = 8
"""Names that a message lists; more of them would hide the nearest one."""


def check_known(options: Iterable[str], known: Iterable[str], *, what: str, listed: str = "") -> None:
    """Reject unknown keywords, all at once, each with the nearest known one.

    Args:
        what: what they are options of, for the message.
        listed: where all of them are listed, if they are more than a few: a command, or a call of `help`.
    """
    choices = sorted(set(known))
    if unknown := [name for name in options if name not in choices]:
        guesses = "; ".join(f"{name!r}{nearest(name, choices)}" for name in unknown)
        end = "" if guesses.endswith("?") else "."
        hint = f"Use {', '.join(choices)}." if choices else "Remove them."
        if len(choices) > _FEW:
            hint = f"See {listed or 'docs/python-api.md'} for all {len(choices)}."
        raise ConfigError(f"Unknown options of {what}: {guesses}{end}", hint=hint, options=unknown, choices=choices)


EXPORT_HELP = "`optimum-cli export neuron --help`"
"""Where the options of an export are listed, which every function has that compiles or loads a model."""

Function = TypeVar("Function", bound=Callable[..., Any])


def checks_keywords(function: Function) -> Function:
    """Let a function refuse unknown keywords as `check_known` does, with the nearest name."""
    names = _keywords_of(function)

    @functools.wraps(function)
    def call(*args: object, **options: object) -> Any:
        check_known(options, names or options, what=function.__name__, listed=f"`help({function.__name__})`")
        return function(*args, **options)

    return call  # type: ignore[return-value]


def takes_options(owner: type) -> Callable[[Function], Function]:
    """Give a function with `**options` the keywords of a dataclass, in its signature and in its docstring.

    The docstring itself describes `**options`: further keywords, which are no fields of the dataclass.
    """

    def described(function: Function) -> Function:
        fields = {field.name: field for field in dataclasses.fields(owner)}
        signature = inspect.signature(function)
        *own, others = signature.parameters.values()
        helps = {
            name: option.help
            for name, option in options_of(owner).items()
            if option.is_keyword and name not in signature.parameters
        }
        keywords = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=fields[name].default, annotation=fields[name].type
            )
            for name in helps
        ]
        function.__signature__ = signature.replace(parameters=[*own, *keywords, others])  # type: ignore[attr-defined]
        if function.__doc__ is not None:
            lines = "".join(f"        {name}: {text}.\n" for name, text in helps.items())
            function.__doc__ = function.__doc__.replace("        **options:", f"{lines}        **options:", 1)
        return function

    return described


class ChecksKeywords:
    """Base of dataclasses whose constructor refuses unknown keywords as `check_known` does, with the nearest name."""

    def __new__(cls, *args: object, **options: object) -> Self:
        """Check the keywords; `__init__` takes them."""
        names = _keywords_of(cls.__init__)
        check_known(options, names or options, what=cls.__name__, listed=f"`help({cls.__name__})`")
        return super().__new__(cls)


@functools.cache
def _keywords_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the keywords of a function; none if it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(one.name for one in parameters if one.kind in kinds and one.name != "self")
