"""vLLM's parser of command lines: `_` for `-` in flags, and a file of arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError


class FlexibleArgumentParser(argparse.ArgumentParser):
    """A parser that takes `--max_model_len` for `--max-model-len`, and `--config file.yaml`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words, or those of the command line."""
        import sys

        words = _with_file([*(sys.argv[1:] if args is None else args)])
        return super().parse_known_args([_spelled(word) for word in words], namespace)


def _spelled(word: str) -> str:
    """A word of the command line with `-` in its flag.

    >>> _spelled("--max_model_len=4"), _spelled("a_b")
    ('--max-model-len=4', 'a_b')
    """
    if not word.startswith("--"):
        return word
    flag, separator, value = word.partition("=")
    return flag.replace("_", "-") + separator + value


def _with_file(words: Sequence[str]) -> list[str]:
    """Words with those of the file that `--config` names before them, so that the command line has precedence."""
    words = list(words)
    if "--config" not in words or words.index("--config") + 1 == len(words):
        return words
    place = words.index("--config")
    path = Path(words[place + 1])
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}", hint="Pass a YAML file of arguments.", path=str(path)
        ) from error
    read: list[str] = []
    for name, value in rows.items():
        flag = f"--{str(name).replace('_', '-')}"
        if isinstance(value, bool):
            read += [flag] if value else []
        elif isinstance(value, list):
            read += [flag, *map(str, value)]
        else:
            read += [flag, str(value)]
    rest = [*words[:place], *words[place + 2 :]]
    num_before = next((index for index, word in enumerate(rest) if word.startswith("-")), len(rest))
    return [*rest[:num_before], *read, *rest[num_before:]]
