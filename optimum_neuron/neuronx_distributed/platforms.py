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

from ..base import env
from ..errors import ArtifactError
from ..files.plain_json import parse_json
from ..tracing import get_platform_target


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


class LogicalNCConfig(enum.IntEnum):
    """Physical cores of a core that programs see."""

    LNC_1 = 1
    LNC_2 = 2


def get_platform_lnc() -> LogicalNCConfig:
    """Return the physical cores of a core: as many as variables and flags say, else two from Trainium2 on."""
    given = set(env.logical_nc_config().values())
    has_pairs = get_platform_target() in ("trn2", "trn3")
    return LogicalNCConfig(given.pop() if given else 1 + has_pairs)


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
