"""Tensors of a model between its inputs and results: those of named modules, and those that code registers.

    enable_tensor_capture(model, ["layers.0"], capture_inputs=True)
    model(x)
    print(get_captured_tensors_dict()["layers.0.outputs"])

A traced model may return them: they are tensors of the graph while it is traced.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError, nearest
from .layers import ColumnParallelLinear

_MAX_TENSORS = 10
_OF_EXPERTS = "moe_auto"


@dataclasses.dataclass
class CapturedModelInfo:
    """What is captured, and what was."""

    modules_to_capture: list[str]
    max_tensors: int | None = None
    """Number of tensors that code may register; None: any."""
    capture_inputs: bool = False
    hooks: list[Any] = dataclasses.field(default_factory=list)
    module_tensors: OrderedDict[str, torch.Tensor] = dataclasses.field(default_factory=OrderedDict)
    manual_tensors: OrderedDict[str, torch.Tensor] = dataclasses.field(default_factory=OrderedDict)


class TensorRegistry:
    """The captured tensors of this process."""

    _instance: TensorRegistry | None = None

    def __init__(self) -> None:
        self.enabled = False
        self.model_info = CapturedModelInfo([], _MAX_TENSORS)

    @classmethod
    def get_instance(cls) -> TensorRegistry:
        """Return the registry of this process."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def clear(self) -> None:
        """Forget all tensors, and what is captured."""
        self.remove_hooks()
        self.model_info = CapturedModelInfo([], _MAX_TENSORS)

    def configure(
        self,
        enabled: bool = False,
        modules: Sequence[str] | None = None,
        max_tensors: int | None = None,
        capture_inputs: bool = False,
    ) -> None:
        """Say what is captured, and forget what was.

        Args:
            enabled: capture.
            modules: names of modules.
            max_tensors: number of tensors that code may register; None: any.
            capture_inputs: capture inputs of these modules too.
        """
        self.remove_hooks()
        self.enabled = enabled
        self.model_info = CapturedModelInfo(list(modules or ()), max_tensors, capture_inputs)

    def register_tensor(self, name: object, tensor: torch.Tensor, module: nn.Module | None = None) -> None:
        """Keep a copy of a tensor: as one of a module if the name begins with that of one, otherwise by itself.

        Args:
            name: its name; a second tensor of one name gets a number.
            tensor: the tensor.
            module: the module it is of; padding of its outputs is removed.
        """
        if not self.enabled:
            return
        info, value = self.model_info, tensor.detach().clone()
        owners = info.modules_to_capture
        if isinstance(name, str) and any(name == one or name.startswith(f"{one}.") for one in owners):
            if isinstance(module, ColumnParallelLinear) and not module.keep_padded_output:
                is_padded = module.pad_size > 0 and value.shape[-1] == module.output_size
                value = value[..., : module.output_size - module.pad_size] if is_padded else value
            info.module_tensors[name] = value
            return
        if info.max_tensors is not None and len(info.manual_tensors) >= info.max_tensors:
            return
        key = f"manual_{name}" if isinstance(name, str) else f"manual_tensor_{len(info.manual_tensors)}"
        number, unique = 0, key
        while unique in info.manual_tensors:
            number, unique = number + 1, f"{key}_{number + 1}"
        info.manual_tensors[unique] = value

    def get_captured_tensors_dict(self) -> OrderedDict[str, torch.Tensor]:
        """Return all tensors: of each module its inputs and outputs, and then those that code registered."""
        info, found = self.model_info, OrderedDict[str, torch.Tensor]()
        for module in info.modules_to_capture:
            kinds = [f"{module}.inputs"] * info.capture_inputs + [f"{module}.outputs"]
            for kind in kinds:
                own = sorted(name for name in info.module_tensors if name.startswith(kind))
                found.update({name: info.module_tensors[name] for name in own})
            if module in info.module_tensors:
                found[module] = info.module_tensors[module]
        return OrderedDict([*found.items(), *info.manual_tensors.items()])

    def get_module_tensors(self) -> OrderedDict[str, torch.Tensor]:
        """Return the tensors of modules."""
        return self.model_info.module_tensors

    def get_manual_tensors(self) -> OrderedDict[str, torch.Tensor]:
        """Return the tensors that code registered; the choices of experts of all layers are one tensor."""
        manual = self.model_info.manual_tensors
        if chosen := [manual.pop(name) for name in list(manual) if _OF_EXPERTS in name]:
            manual["auto_moe_stats.expert_index"] = torch.stack(chosen)
        return manual

    def get_manual_tensor_count(self) -> int:
        """Return how many tensors code registered."""
        return len(self.model_info.manual_tensors)

    def get_monitored_tensor_count(self) -> int:
        """Return how many tensors of modules there are."""
        return len(self.model_info.module_tensors)

    def get_total_tensor_count(self) -> int:
        """Return how many tensors there are."""
        return self.get_manual_tensor_count() + self.get_monitored_tensor_count()

    def remove_hooks(self) -> None:
        """Let modules run without being captured."""
        for hook in self.model_info.hooks:
            hook.remove()
        self.model_info.hooks = []


def enable_tensor_capture(
    model: nn.Module,
    modules_to_capture: Sequence[str] | None = None,
    max_tensors: int | None = None,
    capture_inputs: bool = False,
) -> nn.Module:
    """Capture the outputs of modules from now on, and return the model.

    Args:
        model: the model.
        modules_to_capture: names of modules.
        max_tensors: number of tensors that `register_tensor` may keep; None: any.
        capture_inputs: capture inputs of these modules too.

    Raises:
        ConfigError: the model has no such modules.
    """
    names, modules = list(modules_to_capture or ()), dict(model.named_modules())
    if missing := [name for name in names if not name or name not in modules]:
        text = ", ".join(f"{name}{nearest(name, modules)}" for name in missing)
        raise ConfigError(f"The model has no modules {text}.", hint="See get_available_modules().", modules=missing)
    registry = TensorRegistry.get_instance()
    registry.configure(True, names, max_tensors, capture_inputs)
    for name in dict.fromkeys(names):
        hook = _hook(name, registry)
        registry.model_info.hooks.append(modules[name].register_forward_hook(hook, with_kwargs=True))
    return model


def _hook(name: str, registry: TensorRegistry) -> Any:
    def capture(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if registry.model_info.capture_inputs:
            for key, tensor in [*_tensors(f"{name}.inputs", args), *_tensors(f"{name}.inputs.kwargs", kwargs)]:
                registry.register_tensor(key, tensor)
        for key, tensor in _tensors(f"{name}.outputs", output):
            registry.register_tensor(key, tensor, module)

    return capture


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a nested value by the names of their places."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors(f"{name}.{key}", part)
    elif isinstance(value, (tuple, list)):
        for number, part in enumerate(value):
            yield from _tensors(f"{name}.{number}", part)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for key, part in sorted(vars(value).items()):
            if not key.startswith("_") and isinstance(part, torch.Tensor):
                yield f"{name}.{key}", part


def disable_tensor_capture(model: nn.Module) -> nn.Module:
    """Capture nothing any more, forget all tensors, and return the model.

    Args:
        model: the model.
    """
    registry = TensorRegistry.get_instance()
    registry.clear()
    registry.enabled = False
    return model


def get_available_modules(model: nn.Module, prefix: str = "") -> list[str]:
    """Return the names of modules that can be captured.

    Args:
        model: the model.
        prefix: its own name in a larger model.
    """
    return [name for name, _ in model.named_modules(prefix=prefix) if name not in ("", prefix)]


def restore_model(model: nn.Module) -> nn.Module:
    """Capture nothing any more, keep what was captured, and return the model.

    Args:
        model: the model.
    """
    registry = TensorRegistry.get_instance()
    registry.remove_hooks()
    registry.enabled = False
    return model


def register_tensor(name: str, tensor: torch.Tensor) -> None:
    """Keep a copy of a tensor, if tensors are captured.

    Args:
        name: its name.
        tensor: the tensor.
    """
    TensorRegistry.get_instance().register_tensor(name, tensor)


def get_captured_tensors_dict() -> OrderedDict[str, torch.Tensor]:
    """Return all captured tensors by name: of modules, and then those that code registered."""
    return TensorRegistry.get_instance().get_captured_tensors_dict()
