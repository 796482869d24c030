"""PP-LCNet of PaddlePaddle, exported to ONNX: which way up a page is.

The graph's operators with weights, in the order of their execution, are the modules of transformers' model in the order
of their definition; every shape is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .common import save
from .onnx import Graph, read

if TYPE_CHECKING:
    import numpy as np
    import torch

_DEGREES = ("0", "90", "180", "270")
"""The classes: by how far the page is turned."""
_PROCESSOR = {
    # PPLCNetImageProcessor computes the same, but needs torchvision.
    "image_processor_type": "CLIPImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "resample": 2,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "do_normalize": True,
    "image_mean": [0.406, 0.456, 0.485],
    "image_std": [0.225, 0.224, 0.229],
    "do_convert_rgb": True,
}
"""The original reads blue, green, red with the means of red, green, blue: hence means in reverse."""


def convert(source: Path, destination: Path) -> None:
    """Write the checkpoint and the settings of its image processor, from one ONNX file."""
    import torch
    from transformers import PPLCNetConfig, PPLCNetForImageClassification

    (path,) = source.glob("*.onnx")
    labels = dict(enumerate(_DEGREES))
    config = PPLCNetConfig(id2label=labels, label2id={label: index for index, label in labels.items()})
    model = PPLCNetForImageClassification(config)
    layers = (torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.Linear)
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, layers)]
    tensors = {
        f"{name}.{parameter}": torch.from_numpy(value.copy())
        for (name, _), values in zip(modules, _weights(read(path)), strict=True)
        for parameter, value in values.items()
    }
    for name, module in modules:
        if isinstance(module, torch.nn.BatchNorm2d):
            tensors[f"{name}.num_batches_tracked"] = torch.tensor(0)
    _take_red_first(tensors, modules[0][0])
    save(model, tensors, destination)
    (destination / "preprocessor_config.json").write_text(json.dumps(_PROCESSOR, indent=2) + "\n", "utf-8")


def _take_red_first(tensors: dict[str, torch.Tensor], first: str) -> None:
    """Let the first convolution read red, green, blue, the order of every image processor but PP-LCNet's own."""
    tensors[f"{first}.weight"] = tensors[f"{first}.weight"].flip(1).contiguous()


def _weights(graph: Graph) -> Iterator[dict[str, np.ndarray]]:
    """The weights of each layer by the name of torch's parameter; a bias that is added apart belongs to its layer."""
    layers: list[dict[str, np.ndarray]] = []
    for node in graph.nodes:
        values = [graph.weights[name] for name in node.inputs if name in graph.weights]
        if node.op_type == "Conv":
            layers.append(dict(zip(("weight", "bias"), values, strict=False)))
        elif node.op_type == "BatchNormalization":
            layers.append(dict(zip(("weight", "bias", "running_mean", "running_var"), values, strict=True)))
        elif node.op_type == "MatMul":
            layers.append({"weight": values[0].T})
        elif node.op_type == "Add" and values:
            layers[-1]["bias"] = values[0].reshape(-1)
    return iter(layers)
