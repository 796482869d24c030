"""Read the text of an environment variable as a switch, a number, a name, or flags; errors name the variable.

It gets variables as a mapping; `env.py` lists them.

    >>> from optimum_neuron.base.env_text import switch
    >>> switch("OPTIMUM_NEURON_DEBUG", {"OPTIMUM_NEURON_DEBUG": "1"}, default=False)
    True
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ..errors import ConfigError, nearest

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def invalid(name: str, text: str, problem: str, hint: str) -> ConfigError:
    """Return the error for a variable whose value cannot be used."""
    return ConfigError(f"{name}={text} {problem}", hint=hint, variable=name.partition("=")[0], value=text)


def switch(name: str, environ: Mapping[str, str], *, default: bool) -> bool:
    """Read a yes-or-no variable."""
    text = environ.get(name)
    if text is None:
        return default
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise invalid(name, text, "is not a yes-or-no value.", f"Set {name} to 1 or 0, or unset it.")


def number(name: str, environ: Mapping[str, str], *, hint: str) -> int | None:
    """Read a whole number of at least 0; None if the variable is unset or empty."""
    text = environ.get(name)
    if text is None or text == "":
        return None
    if not text.isdecimal():
        raise invalid(name, text, "is not a whole number.", hint)
    return int(text)


def sizes(name: str, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Read whole numbers from 1 that commas separate; empty if the variable is unset."""
    text = environ.get(name, "").strip()
    words = [word.strip() for word in text.split(",")] if text else []
    if any(not word.isdecimal() or not int(word) for word in words):
        raise invalid(name, text, "is no list of sizes.", f"Set {name} to sizes such as 2,2.")
    return tuple(map(int, words))


def choice(name: str, choices: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    """Read one of a few names; None if the variable is unset or empty."""
    text = environ.get(name)
    if text is None or text == "":
        return None
    if text not in choices:
        problem = f"is not supported{nearest(text, choices) or '.'}"
        raise invalid(name, text, problem, f"Set it to {' or '.join(choices)}.")
    return text


def compiler_words(environ: Mapping[str, str]) -> list[str]:
    """Split NEURON_CC_FLAGS as a shell does."""
    text = environ.get("NEURON_CC_FLAGS", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        problem = f"cannot be split into flags: {str(error).lower().rstrip('.')}."
        raise invalid("NEURON_CC_FLAGS", text, problem, "Close the quotation mark.") from error


def compiler_flag(flag: str, environ: Mapping[str, str]) -> str | None:
    """Return the last value of a flag in NEURON_CC_FLAGS, written with a space or with an equals sign."""
    words, value = compiler_words(environ), None
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, behind = word.partition("=")
        if name != flag:
            continue
        value = behind if equals else following
        if not value or value.startswith("-"):
            text, hint = environ["NEURON_CC_FLAGS"], f"Write {flag}=VALUE, or leave the flag out."
            raise invalid("NEURON_CC_FLAGS", text, f"has {flag} without its value.", hint)
    return value


def core_list(name: str, environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Read core ids and ranges such as "0-2,5"; None if the variable is unset or blank."""
    text = environ.get(name)
    if text is None or text.strip() == "":
        return None
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise invalid(name, text, f"has '{part}', which is no core or range.", 'Write it like "0", "0-3" or "0,2".')
        cores += range(int(first), int(last or first) + 1)
    if len(set(cores)) != len(cores):
        raise invalid(name, text, "names a core twice.", "Name each core once.")
    return tuple(cores)
