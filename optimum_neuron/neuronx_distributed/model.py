"""The model of a rank, as `initialize_parallel_model` returns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError
from .lora import LoraModel
from .pipeline import NxDPPModel


class NxDModel(nn.Module):
    """A model and its configuration; names of its parameters and states are those of the model.

    Args:
        module: the model.
        nxd_config: its configuration.
    """

    def __init__(self, module: nn.Module, nxd_config: Mapping[str, Any]) -> None:
        super().__init__()
        self.module, self.nxd_config = module, dict(nxd_config)
        self.train()

    @property
    def _stages(self) -> NxDPPModel | None:
        inner = self.module.get_base_model() if isinstance(self.module, LoraModel) else self.module
        return inner if isinstance(inner, NxDPPModel) else None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.module(*args, **kwargs)

    def run_train(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, whose result is the loss, and compute gradients.

        Args:
            *args: arguments of the model.
            **kwargs: arguments of the model.
        """
        if self._stages is not None:
            return self._stages.run_train(*args, **kwargs)
        loss: torch.Tensor = self.module(*args, **kwargs)
        loss.backward()
        return loss

    def run_eval(self, *args: Any, **kwargs: Any) -> Any:
        """Run a pipeline's stages without gradients; see `NxDPPModel.run_eval`.

        Args:
            *args: arguments of the model.
            **kwargs: arguments of the model.
        """
        if self._stages is None:
            raise ConfigError("run_eval is for pipelines.", hint="Call the model.", model=type(self.module).__name__)
        return self._stages.run_eval(*args, **kwargs)

    def local_modules(self) -> list[nn.Module]:
        """Return the parts of the model that this rank has."""
        return [self.module] if self._stages is None else list(self._stages.local_stage_modules)

    def original_module(self) -> nn.Module:
        """Return the model."""
        return self.module

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its first parameter."""
        return next(self.module.parameters()).dtype

    @property
    def config(self) -> Any:
        """Configuration of a model of transformers."""
        return self.module.config

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's parameters under its own names."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's buffers under its own names."""
        return self.module.named_buffers(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's states under its own names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load states of the model.

        Args:
            state_dict: the states.
            strict: require the same names.
            assign: as of torch.
        """
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)
