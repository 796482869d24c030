"""Questions that scripts ask about their process and the simulated machine."""

from __future__ import annotations

import os
from typing import Any

from optimum_neuron.base import env
from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import resolve_instance, resolve_target


def current_instance_type() -> str:
    """Return the family of the simulated instance, for example "trn1"."""
    return resolve_instance().value.family


def get_instance_name() -> str:
    """Return the simulated instance, for example "trn1.2xlarge"."""
    return resolve_instance().value.name


def normalize_instance_type(instance_type: str) -> str:
    """Return the target that an instance or a family is compiled for.

    Raises:
        ConfigError: there is no such instance.
    """
    return resolve_target(instance_type).value.name


def get_default_compilation_target() -> str:
    """Return the target of the simulated instance."""
    return resolve_target().value.name


def align_compilation_target(target: str, override: bool) -> str:
    """Set NEURON_PLATFORM_TARGET_OVERRIDE to a target, and return the one that is compiled for.

    Args:
        target: instance or family.
        override: replace another value of the variable, or the target of the simulated instance.

    Raises:
        ConfigError: there is no such target, or it is not that of the simulated instance.
    """
    wanted, chosen = normalize_instance_type(target), env.platform_target()
    if chosen is not None and chosen != wanted and not override:
        return chosen
    if chosen is None and not override and wanted != (own := get_default_compilation_target()):
        message = f"The simulated instance is compiled for {own}, not {wanted}."
        hint = f"Set NEURON_PLATFORM_TARGET_OVERRIDE={wanted}, or pass override=True."
        raise ConfigError(message, hint=hint, target=wanted, instance=get_instance_name())
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = wanted
    return wanted


def get_neuron_devices_count() -> int:
    """Return the chips of the simulated instance."""
    return resolve_instance().value.num_chips


def cores_per_device() -> int:
    """Return the cores of a chip of the simulated instance, as programs see them."""
    instance = resolve_instance().value
    return instance.num_logical_cores() // instance.num_chips


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


def string_to_bool(value: str | bool) -> bool:
    """Return what a word of a command line means: yes, true, t, y, and 1, or no, false, f, n, and 0.

    Raises:
        ConfigError: it is another word.
    """
    if isinstance(value, bool):
        return value
    for meaning, words in {True: ("yes", "true", "t", "y", "1"), False: ("no", "false", "f", "n", "0")}.items():
        if value.lower() in words:
            return meaning
    raise ConfigError(f"{value!r} is neither true nor false.", hint="Pass yes or no.", value=value)


def is_sentence_transformer_model(model: str, token: str | None = None, revision: str | None = None) -> bool:
    """Return whether a model is one of sentence-transformers: it has a list of modules.

    Raises:
        ModelError: there is no such model.
    """
    from optimum_neuron.sources import find_folder

    where = {name: value for name, value in (("token", token), ("revision", revision)) if value is not None}
    return (find_folder(model, **where) / "modules.json").is_file()


def is_logging_process() -> bool:
    """Return whether this process is the one that logs: the first."""
    import torch

    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
