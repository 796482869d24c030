"""Questions that scripts ask about their process and the simulated machine."""

from __future__ import annotations

import os
from typing import Any

from optimum_neuron.hardware import resolve_instance


def current_instance_type() -> str:
    """Return the family of the simulated instance, for example "trn1"."""
    return resolve_instance().value.family


def cores_per_device() -> int:
    """Return the cores of a chip of the simulated instance."""
    return resolve_instance().value.chip.num_cores


def get_num_neuron_cores() -> int:
    """Return the cores of the simulated instance that this process may use."""
    import torch

    return torch.neuron.device_count()  # type: ignore[attr-defined]


def get_neuron_device_indices() -> set[int]:
    """Return the chips of the simulated instance whose cores this process may use."""
    from optimum_neuron.runtime import allowed_cores

    cores = allowed_cores(resolve_instance().value, os.environ).core_ids
    return {core // cores_per_device() for core in cores}


def get_neuronxcc_version() -> str:
    """Return the version of the compiler: of this package's, which stands for neuronx-cc."""
    from optimum_neuron.compiler import COMPILER_VERSION

    return COMPILER_VERSION


def is_neuron_available() -> bool:
    """Return False: `torch_neuron`, the package for first-generation Inferentia, has no counterpart here."""
    return False


def map_torch_dtype(dtype: Any) -> Any:
    """Return the torch.dtype of a name such as "bf16" or "float32", and anything else as it is.

    >>> map_torch_dtype("bf16")
    torch.bfloat16
    """
    import torch

    from optimum_neuron.hardware import canonical_dtype

    return getattr(torch, canonical_dtype(dtype)) if isinstance(dtype, str) else dtype


def is_precompilation() -> bool:
    """Return whether `neuron_parallel_compile` runs the script, to collect its graphs."""
    return os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY") == "1"


def is_logging_process() -> bool:
    """Return whether this process is the one that logs: the first."""
    import torch

    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
