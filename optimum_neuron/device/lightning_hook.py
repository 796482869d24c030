"""`Trainer(accelerator="neuron")` of Lightning, and `Fabric(accelerator="neuron")`: the device under Lightning's name.

Lightning has a public registry of accelerators. It chooses the strategy and the precision by itself, from a list of
devices without ours, so both choices are wrapped. This happens when Lightning is imported, under either of its package
names; nothing imports it here.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from types import ModuleType
from typing import Any

from ..base.after_import import after_import
from ..errors import ConfigError
from ..upstream.lightning import CONNECTORS, PRECISION, STRATEGY, package_of

NAME = "neuron"
"""Lightning's name of the accelerator."""


def install() -> None:
    """Register the accelerator, now or when Lightning is imported."""
    for module in CONNECTORS:
        after_import(module, _extend)


def _extend(module: ModuleType) -> None:
    registry = getattr(module, "AcceleratorRegistry", None)
    registry = module.ACCELERATOR_REGISTRY if registry is None else registry
    accelerator = accelerator_class(module.Accelerator)
    registry.register(NAME, accelerator, description="simulated NeuronCores", override=True)
    package = package_of(module.__name__)
    STRATEGY[module.__name__].replace(lambda choose: _strategy(choose, package, accelerator))
    PRECISION[module.__name__].replace(lambda choose: _precision(choose, module.MixedPrecision, accelerator))


def accelerator_class(base: Any) -> Any:
    """The accelerator, derived from the abstract class of one of Lightning's packages."""

    class NeuronAccelerator(base):
        """Simulated NeuronCores; one unless `devices` says more."""

        def setup_device(self, device: object) -> None:
            """Make the device current."""
            import torch

            torch.neuron.set_device(device)

        def get_device_stats(self, device: object) -> dict[str, Any]:
            """Return the simulated HBM of a device in bytes."""
            import torch

            return {"allocated_bytes": torch.neuron.memory_allocated(device)}

        def teardown(self) -> None:
            """Do nothing: the core stays the process's."""

        @staticmethod
        def parse_devices(devices: object) -> list[int]:
            """Return the indices that `devices` of the trainer stands for."""
            return device_indices(devices)

        @staticmethod
        def get_parallel_devices(devices: object) -> list[Any]:
            """Return the devices of these indices."""
            import torch

            return [torch.device(NAME, index) for index in device_indices(devices)]

        @staticmethod
        def auto_device_count() -> int:
            """Return 1: more simulated cores need processes and make nothing faster."""
            return 1

        @staticmethod
        def is_available() -> bool:
            """Return whether the device can be used."""
            import torch

            return torch.neuron.is_available()

        @staticmethod
        def name() -> str:
            """Return its name in the registry."""
            return NAME

    return NeuronAccelerator


def device_indices(devices: Any) -> list[int]:
    """Return the indices that a number, a list, or a text such as "0,1" stands for; -1 is every device."""
    import torch

    count = torch.neuron.device_count()
    try:
        texts = devices.split(",") if isinstance(devices, str) else None
        value = devices if texts is None else int(texts[0]) if len(texts) == 1 else [int(text) for text in texts]
        indices = list(range(count if value == -1 else value) if isinstance(value, int) else map(int, value))
    except (TypeError, ValueError):
        indices = []
    if not indices or len(set(indices)) < len(indices) or not set(indices) <= set(range(count)):
        message = f"devices is {devices!r}, but this process may use {count} devices, 0 to {count - 1}."
        hint = "Pass a number of devices or a list of different indices."
        raise ConfigError(message, hint=hint, devices=devices, count=count)
    return indices


def _strategy(choose: Any, package: str, accelerator: Any) -> Any:
    """Lightning's choice for other accelerators is the CPU, or processes whose gloo takes no device tensors."""

    @functools.wraps(choose)
    def chosen(self: Any) -> Any:
        strategy = choose(self)
        if not isinstance(self.accelerator, accelerator):
            return strategy
        strategies = importlib.import_module(f"{package}.strategies")
        if strategy == "ddp":
            return _without_streams(strategies.DDPStrategy)(process_group_backend=NAME)
        single = isinstance(strategy, strategies.SingleDeviceStrategy)
        return strategies.SingleDeviceStrategy(device=self._parallel_devices[0]) if single else strategy

    return chosen


def _without_streams(base: Any) -> Any:
    """DDP that is given no device ids: with them, Lightning opens a stream of CUDA. Modules are on the device."""

    class NeuronDDPStrategy(base):
        def determine_ddp_device_ids(self) -> None:
            """Return None; the trainer asks."""

        _determine_ddp_device_ids = determine_ddp_device_ids  # Fabric asks under this name

    return NeuronDDPStrategy


def _precision(choose: Any, mixed: Any, accelerator: Any) -> Any:
    """Lightning's mixed precision is CUDA's unless the accelerator is on its list."""

    @functools.wraps(choose)
    def chosen(self: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*CUDA is not available", UserWarning)
            precision = choose(self)
        theirs = isinstance(self.accelerator, accelerator) and type(precision) is mixed and precision.device == "cuda"
        return mixed(precision.precision, device=NAME) if theirs else precision

    return chosen
