"""Models that diffusers cannot rebuild from their configuration: several ControlNets, a UNet with image adapters.

Their configurations get a field for it. They know nothing of programs or weights.

    data = describe_module(unet)      # {"_class_name": "UNet2DConditionModel", ..., "image_adapters": [...]}
    unet = module_from(kind, data)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ...base.foreign import module_facts

MULTI = "MultiControlNetModel"
"""diffusers' class of several ControlNets."""
NETS = "nets"
"""Field with the configurations of several ControlNets that are one component."""
IMAGE_ADAPTERS = "image_adapters"
"""Field with the class of each image adapter's projection, and the scale that is in its weights."""
_OF_ADAPTERS = "ip_image_proj"
"""diffusers' `encoder_hid_dim_type` of a UNet with image adapters, which its constructor refuses."""


def describe_module(module: Any) -> dict[str, Any]:
    """Return the configuration of a model of diffusers in memory, with what its class does not note."""
    if hasattr(module, NETS):
        return {"_class_name": type(module).__name__, NETS: [describe_module(net) for net in module.nets]}
    data = {name: value for name, value in module.config.items() if name != "_name_or_path"}
    data["_class_name"] = type(module).__name__
    facts = module_facts(module)
    layers = module_facts(facts.encoder_hid_proj).image_projection_layers
    if layers is not None:
        scales = facts.image_adapter_scales or [1.0] * len(layers)
        rows = zip(layers, scales, strict=True)
        data[IMAGE_ADAPTERS] = [{"class": type(layer).__name__, "scale": scale} for layer, scale in rows]
        data["encoder_hid_dim_type"] = None
    return data


def module_from(kind: Any, data: Mapping[str, Any]) -> Any:
    """Build a model of diffusers from its configuration; projections of image adapters are empty.

    Args:
        data: as `describe_module` returns it, or the content of its file.
    """
    if NETS in data:
        import diffusers

        return kind([module_from(getattr(diffusers, net["_class_name"]), net) for net in data[NETS]])
    adapters = data.get(IMAGE_ADAPTERS)
    module = kind.from_config({name: value for name, value in data.items() if name != IMAGE_ADAPTERS})
    if adapters is not None:
        from diffusers.models.embeddings import MultiIPAdapterImageProjection

        # Pipelines ask for their number and their classes only.
        module.encoder_hid_proj = MultiIPAdapterImageProjection([_empty(row["class"]) for row in adapters])
        module.config.encoder_hid_dim_type = _OF_ADAPTERS
        module.image_adapter_scales = [row["scale"] for row in adapters]
    return module


def _empty(name: str) -> nn.Module:
    from diffusers.models import embeddings

    kind = getattr(embeddings, name)
    layer: nn.Module = kind.__new__(kind)
    nn.Module.__init__(layer)
    return layer
