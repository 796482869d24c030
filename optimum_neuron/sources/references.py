"""Weights of a quantized checkpoint as another library dequantizes them: the reference of validation.

A scale that `weights/published.py` misreads is in the compiled model and in everything else that it reads. Validation
therefore loads its reference model from the tensors of `ReferenceSource`, which takes names and shapes from there, and
every number from transformers or from the package of the format, where one of them runs on a CPU.

    choice = weights_reader(quantization)
    print(choice)         # transformers (it dequantizes the blocks of fp8 on a CPU)
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.core import Choice
from ..weights import SINGLE_FILE, Checkpoint, Layout, PublishedSource, TensorSource, pack_checkpoint
from .gguf import gguf_options, is_gguf, open_gguf
from .layouts import weight_groups
from .quantization import dequantizing, layout_of, method_of, quantization_of, sorts_inputs, with_quantization
from .source import ModelSource

if TYPE_CHECKING:
    import torch

THIS_PACKAGE = "this package"
"""Reader of the reference model's weights where no other library can read them."""


def weights_reader(quantization: Mapping[str, Any] | None) -> Choice[str]:
    """Return which library reads the weights of the reference model, and why.

    Args:
        quantization: settings of a quantized checkpoint; None for a plain one.

    Example:
        ```python
        from optimum_neuron.sources.references import weights_reader

        assert weights_reader({"quant_method": "fp8"}).value == "transformers"
        assert weights_reader({"quant_method": "gptq", "bits": 4}).value == "this package"
        ```
    """
    from transformers.utils import is_compressed_tensors_available

    if quantization is None:
        return Choice(value="transformers", reason="the checkpoint is not quantized")
    method = method_of(quantization)
    if method == "gguf":
        if quantization["is_read_here"]:
            return Choice(
                value="gguf", reason="the package dequantizes the file, under the names that this package finds"
            )
        return Choice(value="transformers", reason="it converts and dequantizes the GGUF file")
    if layout_of(quantization) is None or method == "fp8":
        return Choice(value="transformers", reason=f"it dequantizes {method} on a CPU")
    if method != "compressed-tensors":
        return _not_independent(f"no library that is installed with it dequantizes {method} on a CPU")
    if not is_compressed_tensors_available():
        return _not_independent("the package compressed-tensors is not installed")
    if sorts_inputs(quantization):
        return _not_independent("compressed-tensors no longer reads groups of inputs sorted by activation")
    return Choice(value=method, reason="the package of the format dequantizes its tensors")


def _not_independent(reason: str) -> Choice[str]:
    end = "a tensor that this package misreads is wrong in both models, and the comparison cannot find it"
    return Choice(value=THIS_PACKAGE, reason=f"{reason}; {end}")


@contextlib.contextmanager
def readable(source: ModelSource, dtype: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folder and options with which transformers loads a model; a temporary folder if its weights are dequantized."""
    quantization = quantization_of(source.config)
    if quantization is None or (layout_of(quantization) is None and not is_gguf(source.folder)):
        yield source.folder, {"config": dequantizing(source.config)}
        return
    layout = layout_of(quantization)
    tensors: TensorSource | None
    if layout is None:
        tensors = open_gguf(source.folder)
    else:
        tensors = reference_source(Checkpoint.open(source.folder), layout, quantization)
    if tensors is None:
        yield source.folder, gguf_options(source.folder)
        return
    specs = tensors.specs
    with tempfile.TemporaryDirectory(prefix="optimum-neuron-") as folder:
        pack_checkpoint(tensors, specs, {name: (name,) for name in specs}, Path(folder, SINGLE_FILE), dtype=dtype)
        for path in source.folder.glob("*.json"):
            if not path.name.endswith(".index.json"):
                shutil.copyfile(path, Path(folder, path.name))
        plain = with_quantization(source.config, None)
        plain.save_pretrained(folder)
        yield Path(folder), {"config": plain}


def reference_source(checkpoint: Checkpoint, layout: Layout, quantization: Mapping[str, Any]) -> PublishedSource:
    """Return the tensors of a checkpoint, those matrices dequantized by the library that `weights_reader` names."""
    reader = weights_reader(quantization).value
    if reader == THIS_PACKAGE:
        return PublishedSource(checkpoint, layout)
    return ReferenceSource(
        checkpoint, layout, {"transformers": _by_transformers}.get(reader, _by_package), quantization
    )


class ReferenceSource(PublishedSource):
    """A checkpoint whose matrices another library dequantizes."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        layout: Layout,
        dequantize: Callable[[dict[str, torch.Tensor], Layout, Mapping[str, Any]], torch.Tensor],
        quantization: Mapping[str, Any],
    ) -> None:
        super().__init__(checkpoint, layout)
        self._dequantize, self._quantization = dequantize, quantization

    def dequantized(self, module: str) -> torch.Tensor:
        """Return the float32 matrix of a module, in whole blocks for the library and then as large as it is."""
        num_outputs, num_inputs = self.specs[f"{module}.weight"].shape
        tensor = self.tensors_of(module)
        parts = {part: tensor(part) for part in self.modules[module].specs if part.startswith("weight")}
        rows, columns = (
            _whole(size, block) for size, block in zip((num_outputs, num_inputs), self.layout.block, strict=True)
        )
        parts["weight_scale"] = _matrix(parts["weight_scale"])
        if "weight_packed" in parts:
            parts["weight_packed"] = _padded(parts["weight_packed"], rows, -(-columns // self.layout.per_int))
            parts["weight_shape"] = parts["weight_shape"].new_tensor([rows, columns])
        else:
            parts["weight"] = _padded(parts["weight"], rows, columns)
        return self._dequantize(parts, self.layout, self._quantization).float()[:num_outputs, :num_inputs]


def _by_transformers(parts: dict[str, torch.Tensor], layout: Layout, quantization: Mapping[str, Any]) -> torch.Tensor:
    """Dequantize blocks of fp8."""
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    block = layout.block if any(layout.block) else None
    quantizer = types.SimpleNamespace(quantization_config=FineGrainedFP8Config(weight_block_size=block))
    stored = {"weight": parts["weight"], "weight_scale_inv": parts["weight_scale"]}
    return Fp8Dequantize(quantizer).convert(stored)["weight"]


def _by_package(parts: dict[str, torch.Tensor], layout: Layout, quantization: Mapping[str, Any]) -> torch.Tensor:
    """Dequantize tensors of compressed-tensors."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    weights = QuantizationArgs(**weight_groups(quantization)[0]["weights"])
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    if "weight_zero_point" in parts and parts["weight_zero_point"].dim() == 1:
        parts["weight_zero_point"] = _matrix(parts["weight_zero_point"])
    form = "pack-quantized" if "weight_packed" in parts else "naive-quantized"
    return BaseCompressor.get_value_from_registry(form).decompress(parts, scheme)["weight"]


def _whole(size: int, block: int) -> int:
    """Size of the whole blocks that hold so many elements."""
    return -(-size // block) * block if block else size


def _matrix(scale: torch.Tensor) -> torch.Tensor:
    """Scales with two dimensions, in float32 unless they are bytes of exponents."""
    scale = scale.reshape(-1, 1) if scale.dim() < 2 else scale
    return scale.float() if scale.is_floating_point() else scale


def _padded(numbers: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Numbers with zeros behind the last rows and columns."""
    if numbers.shape == (rows, columns):
        return numbers
    padded = numbers.new_zeros((rows, columns))
    padded[: numbers.shape[0], : numbers.shape[1]] = numbers
    return padded
