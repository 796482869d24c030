"""Command lines: a parser that answers typing mistakes with the nearest name, and the base of our commands.

Hyphens and underscores in the name of an option are the same.

optimum creates the parsers of all commands itself, from the plain argparse class; `Command.parse_args` turns
ours into `NeuronParser`. The arguments of a command are declared when its line is parsed or its help is shown.
A mistyped command line ends with exit code 2, two lines on stderr (or one JSON object on stdout with `--json`),
and no page of usage.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from optimum.commands.base import BaseOptimumCLICommand, CommandInfo

from ..errors import nearest
from .errors import EXIT_USAGE, run_guarded
from .output import Mode, Out


class NeuronParser(argparse.ArgumentParser):
    """An argument parser whose refusals name the nearest option or choice."""

    _json = False
    _declare: Callable[[NeuronParser], None] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    @classmethod
    def adopt(
        cls, parser: argparse.ArgumentParser, declare: Callable[[argparse.ArgumentParser], None] | None = None
    ) -> None:
        """Turn a parser that optimum made into one of ours; `declare` adds its arguments when they are needed."""
        parser.__class__ = cls
        vars(parser)["_declare"] = declare
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.allow_abbrev = False

    def declared(self) -> NeuronParser:
        """Return the parser with its arguments: those of commands that are not called are never made."""
        declare, self._declare = self._declare, None
        if declare is not None:
            declare(self)
        return self

    def format_help(self) -> str:
        """Return the page of help."""
        self.declared()
        return super().format_help()

    def format_usage(self) -> str:
        """Return the line of usage."""
        self.declared()
        return super().format_usage()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse at this level what argparse would hand to the root parser."""
        self.declared()
        words = list(sys.argv[1:] if args is None else args)
        self._json = "--json" in words
        if self._subparsers is None:
            words = self._as_declared(words)
            self._refuse_unknown_options(words)
            words = self._without_swallowed(words)
        parsed, extra = super().parse_known_args(words, namespace)
        if extra:
            self.error(f"unexpected argument '{extra[0]}'")
        return parsed, extra

    def error(self, message: str, **details: object) -> NoReturn:
        """Print the error and the help command, then exit with 2; `--json` has the details too."""
        out = Out("json" if self._json else "human")
        parts = {"type": "UsageError", "code": "usage", "message": message, "hint": "", "details": details}
        out.error(parts, next_command=f"{self.prog} --help")
        sys.exit(EXIT_USAGE)

    def _as_declared(self, words: Sequence[str]) -> list[str]:
        """Write options as they were declared: `--batch-size` is `--batch_size`, and the other way, as in vLLM."""
        declared = {name.replace("-", "_"): name for name in self._option_string_actions if name.startswith("--")}
        end = words.index("--") if "--" in words else len(words)

        def spelled(word: str) -> str:
            name, equals, value = word.partition("=")
            is_known = name in self._option_string_actions
            return word if is_known else declared.get(name.replace("-", "_"), name) + equals + value

        return [*map(spelled, words[:end]), *words[end:]]

    def _refuse_unknown_options(self, words: Sequence[str]) -> None:
        # Before argparse: it would first complain about the required option that a typing mistake left out.
        known = self._option_string_actions
        for word in words:
            if word == "--":
                return
            name = word.partition("=")[0]
            is_option = len(word) > 1 and word[0] == "-" and word[1] not in "0123456789." and " " not in name
            if is_option and name not in known and (word.startswith("--") or word[:2] not in known):
                self.error(f"unknown option '{name}'{nearest(name, known)}", options=[name], choices=sorted(known))

    def _without_swallowed(self, words: list[str]) -> list[str]:
        """Move a word that is no number from the values of an option of numbers to the front: `--scales 0.7 OUTPUT`."""
        for index, word in enumerate(words):
            action = self._option_string_actions.get(word)
            if action is not None and action.nargs == "+" and action.type is float:
                values = list(itertools.takewhile(_is_value, words[index + 1 :]))
                if len(values) > 1 and _is_number(values[-2]) and not _is_number(values[-1]):
                    place = index + len(values)
                    return [words[place], *words[:place], *words[place + 1 :]]
        return words

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            what = f"{'/'.join(action.option_strings)}: unknown value" if action.option_strings else "unknown command"
            guess = nearest(str(value), choices) or "."
            self.error(f"{what} '{value}'{guess} Choose from {', '.join(choices)}.")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _is_number(word)


class Command(BaseOptimumCLICommand):
    """Base of our leaf commands: declares arguments, then executes under the error guard."""

    DESCRIPTION: str
    """Description of the command for its help page; examples at the end."""

    @classmethod
    def parse_args(cls, parser: argparse.ArgumentParser) -> None:
        """Adopt the parser that optimum made."""
        NeuronParser.adopt(parser, cls._declare)
        parser.description = cls.DESCRIPTION

    @classmethod
    def _declare(cls, parser: argparse.ArgumentParser) -> None:
        cls.add_arguments(parser)
        output = parser.add_argument_group("output").add_mutually_exclusive_group()
        output.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        output.add_argument("--quiet", action="store_true", help="print only the value a script needs")

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments, if it has any."""

    @abstractmethod
    def execute(self, out: Out) -> int | None:
        """Do the work, answer through `out`, return the exit code; None is 0, as for `sys.exit`."""

    def run(self) -> None:
        """Execute; known errors become messages and exit codes."""
        mode: Mode = "json" if self.args.json else "quiet" if self.args.quiet else "human"
        code = run_guarded(self.execute, Out(mode), command=self.parser.prog)
        if code:
            sys.exit(code)


class CommandGroup(BaseOptimumCLICommand):
    """Base of commands that only hold other commands; called bare they print their help."""

    @staticmethod
    def parse_args(parser: argparse.ArgumentParser) -> None:
        """Adopt the parser: subcommands created on it become ours too."""
        NeuronParser.adopt(parser)


def subcommands(*commands: type[BaseOptimumCLICommand]) -> tuple[CommandInfo, ...]:
    """The commands of a group, as optimum registers them."""
    return tuple(
        CommandInfo(name=command.COMMAND.name, help=command.COMMAND.help, subcommand_class=command)
        for command in commands
    )
