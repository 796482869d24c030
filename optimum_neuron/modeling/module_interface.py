"""`ModuleInterface`: what users of transformers call on any model, for models that are compiled.

Calls that change nothing here do what they do there: `eval()` returns the model. A call that would have to change the
program is an error with the reason, and so is a name that compiled models do not have (`refusals.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import torch

from ..errors import ConfigError, WeightsError
from ..options.configuration import CompileConfig
from ..upstream.torch import parse_to
from ..weights import plain_names
from .parameters import CheckpointParameters
from .refusals import refusal

_SHOWN = 6


class LoadedKeys(NamedTuple):
    """Result of `load_state_dict`, as PyTorch returns it."""

    missing_keys: list[str]
    """Names that keep their weights."""
    unexpected_keys: list[str]
    """Names that the model does not have."""


class ModuleInterface(CheckpointParameters):
    """The methods of PyTorch's modules and of transformers' models that do not run the model."""

    neuron_config: CompileConfig
    generation_config: Any = None
    """Settings of `generate`; None for a model that does not generate."""
    supports_gradient_checkpointing = False
    is_gradient_checkpointing = False

    if not TYPE_CHECKING:  # with it, no misspelt attribute would be noticed

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse an attribute of transformers' models with its reason."""
            if (error := refusal(name, type(self).__name__)) is not None:
                raise error
            object.__getattribute__(self, name)
            raise AssertionError("an attribute that was missing has a value")

    @property
    def device(self) -> torch.device:
        """Device of inputs and outputs, the CPU."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights."""
        return getattr(torch, self.neuron_config.torch_dtype)

    def to(self, *args: object, **kwargs: object) -> Self:
        """Accept the CPU, "neuron", and the compiled dtype: a compiled program cannot be moved or cast."""
        device, dtype, *_ = parse_to(*args, **kwargs)
        if (device is not None and device.type not in ("cpu", "neuron")) or dtype not in (None, self.dtype):
            asked = {"device": device and str(device), "dtype": dtype and str(dtype)}
            places = ", ".join(map(str, (*args, *kwargs.values())))
            message = f"to({places}) is not supported: the model is compiled in {self.dtype}."
            raise ConfigError(message, hint="Export with another torch_dtype, or remove to().", **asked)
        return self

    def cpu(self) -> Self:
        """Return the model, whose inputs and outputs are on the CPU."""
        return self

    def cuda(self, device: int | torch.device | None = None) -> Self:
        """Refuse, as `to("cuda")` does."""
        return self.to("cuda" if device is None else torch.device("cuda", device) if type(device) is int else device)

    def float(self) -> Self:
        """Do what `to(torch.float32)` does."""
        return self.to(torch.float32)

    def double(self) -> Self:
        """Do what `to(torch.float64)` does."""
        return self.to(torch.float64)

    def half(self) -> Self:
        """Do what `to(torch.float16)` does."""
        return self.to(torch.float16)

    def bfloat16(self) -> Self:
        """Do what `to(torch.bfloat16)` does."""
        return self.to(torch.bfloat16)

    def type(self, dst_type: torch.dtype) -> Self:
        """Do what `to(dst_type)` does."""
        return self.to(dst_type)

    @property
    def training(self) -> bool:
        """False: the graph was captured for inference."""
        return False

    def eval(self) -> Self:
        """Return the model, which is always in evaluation mode."""
        return self

    def train(self, mode: bool = True) -> Self:
        """Return the model if `mode` is False."""
        return self._without_gradients("train()", mode)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Return the model if `requires_grad` is False."""
        return self._without_gradients("requires_grad_()", requires_grad)

    def _without_gradients(self, call: str, wanted: bool) -> Self:
        if wanted:
            hint = "Train the checkpoint with NeuronTrainer, and pass the result to replace_weights."
            raise ConfigError(f"{call} is not supported: the program was captured for inference.", hint=hint, call=call)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: there are no gradients."""

    def gradient_checkpointing_disable(self) -> None:
        """Do nothing: it is off."""

    def modules(self) -> Iterator[Self]:
        """Iterate over the model alone: its layers are compiled into one program."""
        yield self

    def named_modules(self) -> Iterator[tuple[str, Self]]:
        """Iterate over the model alone, whose name is empty."""
        yield "", self

    def children(self) -> Iterator[Any]:
        """Iterate over nothing: the layers are compiled into one program."""
        return iter(())

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Iterate over nothing, as `children`."""
        return iter(())

    def buffers(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        """Iterate over nothing: constants are compiled into the program."""
        return iter(())

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
        """Iterate over nothing, as `buffers`."""
        return iter(())

    def replace_weights(self, weights: object) -> None:
        """Replace the weights; `CompiledModel` does."""
        raise NotImplementedError

    def load_state_dict(
        self, state_dict: Mapping[str, torch.Tensor], strict: bool = True, assign: bool = False
    ) -> LoadedKeys:
        """Replace the weights by those of a state dict, as `replace_weights` does.

        Args:
            state_dict: tensors by their names in the checkpoint.
            strict: the names are those of the model. Otherwise weights that are missing stay, and others are ignored.
            assign: has no effect on results: tensors are copied to the device in any case.
        """
        own = dict.fromkeys(plain_names(self._names()))
        given = {name: tensor for name, tensor in state_dict.items() if name in own}
        missing = [name for name in own if name not in given]
        # Tied weights have several names, and the program one of them.
        held = {_address(tensor) for tensor in given.values()}
        unknown = [name for name, tensor in state_dict.items() if name not in given and _address(tensor) not in held]
        if strict and (missing or unknown):
            parts = {"missing": missing, "unknown": unknown}
            listed = "; ".join(f"{what}: {', '.join(names[:_SHOWN])}" for what, names in parts.items() if names)
            message = f"The state dict has other names than the model ({listed})."
            raise WeightsError(message, hint="Pass names as in the checkpoint, or strict=False.", **parts)
        kept = {name: tensor for name, tensor in self.named_parameters() if name in missing} if missing else {}
        self.replace_weights({**given, **kept})
        return LoadedKeys(missing, unknown)


def _address(tensor: Any) -> Any:
    return tensor.data_ptr() if torch.is_tensor(tensor) else None
