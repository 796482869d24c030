"""FlexAttention on the device: torch checks for devices from a list, which has no "neuron".

In eager mode it runs as torch's own unfused operators, with gradients; `dynamo/flex.py` is the compiled form.
"""

from __future__ import annotations

import functools
from typing import Any


def install() -> None:
    """Let `flex_attention` take tensors of the device."""
    from torch.nn.attention import flex_attention

    validate = flex_attention._validate_device

    @functools.wraps(validate)
    def validate_device(query: Any, key: Any, value: Any) -> None:
        if query.device.type != "neuron":
            validate(query, key, value)

    flex_attention._validate_device = validate_device
