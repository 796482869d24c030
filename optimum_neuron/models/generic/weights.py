"""Where the generic path's parameters come from: the same name, without the wrapper's prefix."""

from __future__ import annotations


def weight_map(names: list[str]) -> dict[str, tuple[str, ...]]:
    """Map parameter names of a `GenericDecoder` to names in transformers' state dict.

    Example:
        ```python
        from optimum_neuron.models.generic import weight_map

        assert weight_map(["model.lm_head.weight"]) == {"model.lm_head.weight": ("lm_head.weight",)}
        ```
    """
    return {name: (name.removeprefix("model."),) for name in names}
