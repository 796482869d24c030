"""Options in the words of another library: errors of a call name the keywords that its user wrote.

    with spelled({"sequence_length": "n_positions"}):
        NeuronModelForCausalLM.from_pretrained(folder, sequence_length=4096)

A word without an underscore, such as `quantization`, is a name before "=" only; a word behind a quotation mark is none.
A keyword may be an expression, such as "k + 1", whose first word is the name.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import NeuronError


@contextlib.contextmanager
def spelled(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors of a block, or of a function, name options as the user knows them.

    Args:
        names: options of this package, and the user's keywords for them.
    """
    try:
        yield
    except NeuronError as error:
        error.message, error.hint = (respelled(text, names) for text in (error.message, error.hint))
        error.args = (error.message, *error.args[1:])
        error.details = _details(error.details, names)
        raise


def respelled(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names of options.

    >>> respelled("quantization='fp8' beside batch_size=2: no quantization.", {"quantization": "quant"})
    "quant='fp8' beside batch_size=2: no quantization."
    """
    plain = "|".join(name for name in names if "_" in name)
    words = "|".join(name for name in names if "_" not in name)
    every = [f"(?:{plain})(?!\\w)"] * bool(plain) + [f"(?:{words})(?==)"] * bool(words)
    return re.sub(rf"(?<![\w.\x22\x27-])(?:{'|'.join(every)})", lambda found: names[found[0]], text) if every else text


def _details(details: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Details whose `option` and `options` have the user's names, also those of several problems."""
    own = dict(details)
    first = {name: keyword.partition(" ")[0] for name, keyword in names.items()}
    if isinstance(name := own.get("option"), str):
        own["option"] = first.get(name, name)
    if isinstance(listed := own.get("options"), list):
        own["options"] = [first.get(name, name) if isinstance(name, str) else name for name in listed]
    if isinstance(problems := own.get("problems"), list):
        own["problems"] = [_problem(problem, names) if isinstance(problem, dict) else problem for problem in problems]
    return own


def _problem(problem: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """One of several problems, as `NeuronError.to_dict` returns it."""
    texts = {key: respelled(problem[key], names) for key in ("message", "hint") if key in problem}
    return {**problem, **texts, "details": _details(problem.get("details", {}), names)}
