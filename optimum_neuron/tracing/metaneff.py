"""What a program says about its tensors: the names and fields of `torch_neuronx.proto.metaneff_pb2`.

meta = MetaNeff(input_tensors=[MetaTensor(name=b"x", shape=[3], type=MetaTensor.Type.USER_INPUT)])
"""

from __future__ import annotations

import dataclasses
import enum
from typing import ClassVar


class TensorType(enum.IntEnum):
    """Where an input of a program comes from."""

    USER_INPUT = 0
    INPUT_WEIGHT = 1
    INPUT_STATE = 2


@dataclasses.dataclass
class MetaTensor:
    """A tensor of a program."""

    Type: ClassVar[type[TensorType]] = TensorType
    name: bytes = b""
    """Its name in the program."""
    shape: list[int] = dataclasses.field(default_factory=list)
    data_type: str = ""
    """As of safetensors and torch, such as "float32"."""
    type: TensorType = TensorType.USER_INPUT
    user_input_key: bytes = b""
    """Parameter of the traced function."""
    checkpoint_key: bytes = b""
    """Name of a weight or a state in a state dict."""


@dataclasses.dataclass
class MetaNeff:
    """The tensors of a program."""

    name: bytes = b""
    input_tensors: list[MetaTensor] = dataclasses.field(default_factory=list)
    output_tensors: list[MetaTensor] = dataclasses.field(default_factory=list)
