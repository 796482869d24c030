"""Outputs of modules that a call replaces, element by element where a mask is true: to find where two models differ.

    RuntimeRegister.module_superset = ["layers.0"]
    model, hooks = modify_model_for_tensor_replacement(model)
    model(x, replacement, mask)

Replacements and masks are inputs behind the model's own, so a traced model has them too.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..errors import ConfigError, ShapeError, nearest


class RuntimeRegister:
    """The modules with replacements, and the replacements of the call that runs."""

    module_superset: ClassVar[list[str]] = []
    """Names of the modules."""
    _tr_runtime_list: ClassVar[dict[str, torch.Tensor]] = {}
    _tr_mask_list: ClassVar[dict[str, torch.Tensor]] = {}

    @classmethod
    def register_runtime_args(cls, tr_args: Sequence[torch.Tensor], mask_args: Sequence[torch.Tensor]) -> None:
        """Keep copies of the replacements of a call.

        Args:
            tr_args: a tensor for each module.
            mask_args: a mask for each module, true where the tensor replaces the output.

        Raises:
            ShapeError: there are more or fewer than modules.
        """
        names = cls.module_superset
        if not len(tr_args) == len(mask_args) == len(names):
            message = f"Expected {len(names)} tensors and masks, got {len(tr_args)} and {len(mask_args)}."
            raise ShapeError(message, hint="Pass one of each for every module.", modules=list(names))
        for name, *pair in zip(names, tr_args, mask_args, strict=True):
            for one in pair:
                if not isinstance(one, torch.Tensor):
                    raise TypeError(f"The replacement of {name} must be a torch.Tensor, not {type(one).__name__}.")
        cls._tr_runtime_list = {name: one.detach().clone() for name, one in zip(names, tr_args, strict=True)}
        cls._tr_mask_list = {name: one.detach().clone() for name, one in zip(names, mask_args, strict=True)}

    @classmethod
    def clear_runtime_args(cls) -> None:
        """Forget the replacements."""
        cls._tr_runtime_list, cls._tr_mask_list = {}, {}


def patch_forward_with_additional_args(model: nn.Module, module_superset: Sequence[str]) -> nn.Module:
    """Let a model take replacements behind its own inputs: all tensors, and then all masks.

    Args:
        model: the model, whose `forward` is replaced.
        module_superset: names of the modules.
    """
    forward, count = model.forward, len(module_superset)
    num_own = len(inspect.signature(forward).parameters)

    @functools.wraps(forward)
    def replaced(self: nn.Module, *args: Any) -> Any:
        own, rest = args[:num_own], args[num_own:]
        if len(rest) != 2 * count:
            message = f"The model expected {2 * count} trailing replacement args, and got {len(rest)}."
            hint = "Pass all inputs of the model, a tensor for each module, and then a mask for each."
            raise ShapeError(message, hint=hint, modules=list(module_superset), num_args=len(args))
        RuntimeRegister.register_runtime_args(tr_args=rest[:count], mask_args=rest[count:])
        try:
            return forward(*own)
        finally:
            RuntimeRegister.clear_runtime_args()

    del replaced.__wrapped__
    model.forward = types.MethodType(replaced, model)
    return model


def modify_model_for_tensor_replacement(model: nn.Module) -> tuple[nn.Module, dict[str, RemovableHandle]]:
    """Let a model take replacements for the modules of the register, and return it with a hook for each module.

    Args:
        model: the model.

    Raises:
        ConfigError: the model has no such modules.
    """
    names, modules = list(RuntimeRegister.module_superset), dict(model.named_modules())
    if missing := [name for name in names if name not in modules]:
        text = ", ".join(f"{name}{nearest(name, modules)}" for name in missing)
        raise ConfigError(f"The model has no modules {text}.", hint="Change module_superset.", modules=missing)

    def replace(name: str, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        tensor, mask = RuntimeRegister._tr_runtime_list[name], RuntimeRegister._tr_mask_list[name]
        return torch.where(mask, tensor, output)

    hooks = {name: modules[name].register_forward_hook(functools.partial(replace, name)) for name in names}
    return patch_forward_with_additional_args(model, names), hooks
