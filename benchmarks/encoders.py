"""Models of one forward: MiniLM, ViT-base and ResNet-50 against transformers eager and compiled, onnxruntime, OpenVINO.

All in float32 on the same weights. MiniLM's are the real ones; the time of a ViT or a ResNet does not depend on its
weights, so these are random. onnxruntime and OpenVINO are in the extra `benchmark`; missing packages have no rows.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

BATCHES = {"MiniLM": (1, 32), "ViT-base": (1, 8), "ResNet-50": (1, 8)}
SEQUENCE_LENGTH = 128
BARS = {
    "MiniLM": {
        "eager": "bar: above 1.0",
        "compile": "bar: above 1.0",
        "onnxruntime": "bar: 1.0",
        "OpenVINO": "bar: 1.0",
    },
    "ViT-base": {"OpenVINO": "bar: 1.0"},
    "ResNet-50": {"OpenVINO": "bar: 1.0"},
}


def run(settings: Settings) -> list[Row]:
    """Measure each model at each batch size, all engines in turn."""
    rows: list[Row] = []
    for model, batches in BATCHES.items():
        for batch in batches:
            figures = in_turn({name: _timed(call) for name, call in _engines(model, batch).items()}, settings.rounds)
            what = f"{model}, batch {batch}"
            rows += rows_of({f"{what}: {name}": values for name, values in figures.items()}, "ms")
            rows += [
                ratio(f"{what}: {name} over ours", values, figures["ours"], note=BARS[model].get(name, ""))
                for name, values in figures.items()
                if name != "ours"
            ]
    return rows


def _timed(call: Callable[[], Any]) -> Callable[[], float]:
    """Milliseconds of one call, the better of two: the first finds its weights pushed out of the processor's caches."""
    return lambda: 1e3 * min(seconds(call), seconds(call))


@functools.cache
def _original(model: str) -> Any:
    import torch
    from transformers import AutoModel, ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    if model == "MiniLM":
        return AutoModel.from_pretrained(contenders.folder("all-minilm-l6-v2"), dtype=torch.float32).eval()
    if model == "ViT-base":
        return ViTForImageClassification(ViTConfig(num_labels=1000)).eval()
    return ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval()


def _inputs(model: str, batch: int) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    if model != "MiniLM":
        return {"pixel_values": torch.randn(batch, 3, 224, 224, generator=generator)}
    mask = torch.ones(batch, SEQUENCE_LENGTH, dtype=torch.long)
    mask[:, SEQUENCE_LENGTH - 28 :] = 0  # padding, as batches have it
    ids = torch.randint(1000, 30000, (batch, SEQUENCE_LENGTH), generator=generator)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


def _engines(model: str, batch: int) -> dict[str, Callable[[], Any]]:
    import torch

    from optimum_neuron import NeuronModelForFeatureExtraction, NeuronModelForImageClassification

    original, inputs = _original(model), _inputs(model, batch)
    if model == "MiniLM":
        ours = NeuronModelForFeatureExtraction.from_model(
            original, batch_size=batch, sequence_length=SEQUENCE_LENGTH, wait_for_host_code=True
        )
    else:
        ours = NeuronModelForImageClassification.from_model(original, batch_size=batch, wait_for_host_code=True)
    torch._dynamo.reset()
    compiled = torch.compile(original)

    def without_gradients(module: Any) -> Callable[[], Any]:
        return torch.no_grad()(lambda: module(**inputs))

    engines = {
        "ours": lambda: ours(**inputs),
        "eager": without_gradients(original),
        "compile": without_gradients(compiled),
    }
    if importlib.util.find_spec("onnxruntime") is not None:
        engines["onnxruntime"] = _onnxruntime(_first_result(original, list(inputs)), inputs)
    if importlib.util.find_spec("openvino") is not None:
        engines["OpenVINO"] = _openvino(_first_result(original, list(inputs)), inputs)
    _require_agreement(ours(**inputs)[0], engines, inputs)
    return engines


def _require_agreement(ours: Any, engines: dict[str, Callable[[], Any]], inputs: dict[str, Any]) -> None:
    """All engines compute the same: figures of different results compare nothing."""
    import torch

    mask = inputs.get("attention_mask")
    for name, call in engines.items():
        found = torch.as_tensor(call()[0])
        error = (found - ours).abs()
        error = error if mask is None else error[mask.bool()]
        assert error.max() <= 1e-2 * ours.abs().max(), f"{name} differs from ours by {error.max()}"


def _first_result(model: Any, names: list[str]) -> Any:
    """The model with positional inputs and its first result only, as the other engines import it."""
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            return self.model(**dict(zip(names, tensors, strict=True)))[0]

    return First().eval()


def _onnxruntime(module: Any, inputs: dict[str, Any]) -> Callable[[], Any]:
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, tuple(inputs.values()), path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {node.name: tensor.numpy() for node, tensor in zip(session.get_inputs(), inputs.values(), strict=False)}
    return lambda: session.run(None, feed)


def _openvino(module: Any, inputs: dict[str, Any]) -> Callable[[], Any]:
    import openvino
    import torch

    with torch.no_grad():
        program = openvino.convert_model(torch.export.export(module, tuple(inputs.values())))
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    request = openvino.Core().compile_model(program, "CPU", options).create_infer_request()
    feed = [tensor.numpy() for tensor in inputs.values()]
    return lambda: list(request.infer(feed[: len(request.input_tensors)], share_inputs=True).values())
