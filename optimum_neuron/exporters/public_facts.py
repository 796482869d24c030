"""Builds the "neuron" section of a compiled model's `config.json`, also in Python as `model.config.neuron`.

Scripts and tools look there for compiled shapes and flags. Nothing of this package reads it.

    facts = public_facts(config, "bert")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiler import COMPILER_VERSION
from ..options.configuration import CompileConfig


def public_facts(config: CompileConfig, model_type: str, random_weights: Sequence[str] = ()) -> dict[str, Any]:
    """Return compiled shapes as `static_<axis>`, flags, dtypes, and the compiler.

    Args:
        config: complete configuration of a compile.
        model_type: architecture, as transformers names it.
        random_weights: weights that are random numbers, because the checkpoint has none.
    """
    shapes = config.static_shapes
    flags = {name: value for name, value in config.to_dict().items() if name not in shapes and value is not None}
    del flags["torch_dtype"]
    flags.pop("calls", None)  # shapes of every call of a component of a pipeline: for the loader only
    return {
        **{f"static_{axis}": size for axis, size in shapes.items()},
        "tensor_parallel_size": 1,
        **flags,
        "int_dtype": "int64",
        "float_dtype": config.torch_dtype,
        "model_type": model_type,
        "compiler_type": "neuronx-cc (simulated)",
        "compiler_version": COMPILER_VERSION,
        **({"random_weights": list(random_weights)} if random_weights else {}),
    }
