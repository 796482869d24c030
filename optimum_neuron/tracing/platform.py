"""The platform that models are traced for when nothing names another."""

from __future__ import annotations

from ..hardware import resolve_target

NAMES_RELEASE = "2.9.0"
"""Release of torch-neuronx whose names these are."""
SUPPORTED_TYPES = ("trn1", "inf2", "trn2", "trn3")
"""What `get_platform_target` can return."""


def get_platform_target() -> str:
    """Name of the simulated platform: "inf2", "trn1", "trn2" or "trn3".

    Example:
        ```python
        from optimum_neuron.tracing.platform import get_platform_target

        print(get_platform_target())
        ```
    """
    name = resolve_target().value.name
    return "trn1" if name == "trn1n" else name  # to the vendor's tools, the same chip with more network
