"""Platforms that scripts distinguish, and other facts that they read before a run.

>>> from optimum_neuron.neuronx_distributed.platforms import hardware
>>> hardware("inf2")
<hardware.TRN1: 'trn1'>
"""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Any

from ..errors import ArtifactError
from ..files.plain_json import parse_json


class hardware(enum.Enum):  # noqa: N801  # scripts import this name
    """Generation of the chip, by the name of an instance."""

    TRN1 = "trn1"
    TRN2 = "trn2"
    TRN3 = "trn3"

    @classmethod
    def _missing_(cls, value: object) -> hardware | None:
        return cls.TRN1 if value in ("trn1n", "inf2") else None


class HloMetadataLevel(enum.Enum):
    """How much a program says about the code that it comes from."""

    DEBUG = "debug"
    INFO = "info"
    NONE = "none"

    @classmethod
    def _missing_(cls, value: object) -> HloMetadataLevel | None:
        """The level of the older switch `debug`."""
        return {True: cls.DEBUG, False: cls.INFO}[value] if isinstance(value, bool) else None


def get_dict_from_json(json_file: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a JSON file.

    Args:
        json_file: the file.

    Raises:
        ArtifactError: there is no such file, or it is not JSON.
    """
    path = Path(json_file)
    try:
        content: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"JSON file not found: {path}.", hint="Pass another file.", file=str(path)) from error
    except ValueError as error:
        message = f"Failed to parse JSON file {path}: {error}"
        raise ArtifactError(message, hint="Write it again as UTF-8 text.", file=str(path)) from error
    return content
