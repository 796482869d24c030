"""`optimum.neuron.utils.import_utils`: which packages are there."""

from __future__ import annotations

import importlib.util


def is_package_available(name: str) -> bool:
    """Return whether a package can be imported."""
    return importlib.util.find_spec(name) is not None


def is_neuronx_available() -> bool:
    """Return whether `torch_neuronx` can be imported; this distribution has it."""
    return is_package_available("torch_neuronx")


is_torch_neuronx_available = is_neuronx_available


def is_neuronx_distributed_available() -> bool:
    """Return whether `neuronx_distributed` can be imported; `NeuronTrainer` needs `torch.distributed` only."""
    return is_package_available("neuronx_distributed")


def is_torch_xla_available() -> bool:
    """Return whether `torch_xla` can be imported; the device is `torch.device("neuron")`, without XLA."""
    return is_package_available("torch_xla")


def is_accelerate_available() -> bool:
    """Return whether `accelerate` can be imported, which the extra `training` installs."""
    return is_package_available("accelerate")


def is_vllm_available() -> bool:
    """Return whether `vllm` can be imported; `optimum-cli neuron serve` does not need it."""
    return is_package_available("vllm")


def is_peft_available() -> bool:
    """Return whether `peft` can be imported, which the extra `training` installs."""
    return is_package_available("peft")


def is_trl_available() -> bool:
    """Return whether `trl` can be imported, which the extra `training` installs."""
    return is_package_available("trl")
