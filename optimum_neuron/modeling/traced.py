"""`NeuronTracedModel`: a compiled single-pass model behind transformers' interface.

It pads inputs up to compiled shapes, runs the graphs and gives transformers' results back. Tasks differ only in names,
so `tasks.py` has a line for each; compiling is in `exporters`.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
import transformers
from transformers.utils import ModelOutput

from ..base.core import Choice
from ..engine import Forward, Signature
from ..errors import ConfigError, ShapeError
from ..exporters import Prepared
from ..kinds import unflatten
from ..runtime import Copies, load_copies, num_usable
from ..sources import TASKS
from .checks import refuse_layers
from .loading import NeuronModel, require_one_core_each

if TYPE_CHECKING:
    from ..kinds.encoder import NeuronEncoderConfig


class NeuronTracedModel(NeuronModel):
    """A single-pass model compiled for a simulated NeuronCore; the base of one class for each task.

    Inputs have the names of the reference model. Rows and lengths are padded up to the smallest compiled bucket that
    holds them, more rows than compiled are split, and results are cut back.

    `from_pretrained` and `from_model` take `data_parallel_mode`, with the names of Optimum Neuron: "all" loads a copy
    on every core that the process may use, and splits batches over them; NEURON_RT_NUM_CORES and
    NEURON_RT_VISIBLE_CORES say which cores these are. "none", the default, loads one copy. With "all", they raise
    `CoreBusyError` where other processes hold some of the cores.
    """

    neuron_config: NeuronEncoderConfig

    kind = "encoder"
    base_model_prefix = "model"
    output_modalities = ("text",)
    load_options = {"data_parallel_mode": ("none", "all")}

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.signature = Signature.from_dict(prepared.metadata["signature"])["forward"]
        self._forward = Forward(self.copies, "forward", self.signature)
        self.main_input_name = self.signature.inputs[0].name
        self._output_type = _output_type(self.signature.output_type, self.task)

    def _placed(self, data_parallel_mode: str = "none") -> Self:
        return self._parallel() if data_parallel_mode == "all" else self

    def _parallel(self) -> Self:
        """Load a replica on every core that the process may use, in place of the loaded one."""
        bound = self.prepared.bound
        assert bound is not None
        require_one_core_each(bound.artifact.num_cores.value)
        cores = range(num_usable(bound.instance, os.environ))
        self.loaded.close()
        self.copies = Copies(load_copies(cores, bound.load, model=bound.model_name))
        self.loaded = self.copies.loaded[0]
        self.prepared = dataclasses.replace(self.prepared, loaded=self.loaded)
        self._forward = Forward(self.copies, "forward", self.signature)
        return self

    def forward(
        self,
        *args: torch.Tensor,
        return_dict: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **inputs: torch.Tensor | None,
    ) -> Any:
        """Run the compiled program; arguments and result are the original model's.

        Args:
            *args: inputs in the order of `signature.inputs`.
            return_dict: False returns a tuple.
            output_attentions: possible where the model was exported with it, and then always returned.
            output_hidden_states: likewise.
            **inputs: inputs by name; those with a default may be left out.

        Raises:
            ShapeError: an input is unknown, missing, empty, of another kind, or fits no bucket.
            ConfigError: an output is requested that the graph does not return.
        """
        tensors = self._named(args, inputs)
        refuse_layers(self.neuron_config, output_attentions, output_hidden_states)
        output = self._output_type(**unflatten(self._forward(tensors)))
        return output.to_tuple() if return_dict is False else output

    def _named(
        self, args: tuple[torch.Tensor, ...], inputs: Mapping[str, torch.Tensor | None]
    ) -> dict[str, torch.Tensor]:
        """Inputs by name, without those that are None; unknown inputs are refused with a reason."""
        names = list(self.signature.names)
        if len(args) > len(names) or any(name in inputs for name in names[: len(args)]):
            given = f"{len(args)} positional inputs and {', '.join(inputs) or 'no others'}"
            message = f"The call has {given}, but the model takes {', '.join(names)}, each once."
            raise ShapeError(message, hint="Pass inputs by name.", inputs=names)
        tensors = dict(zip(names, args, strict=False))
        tensors |= {k: v for k, v in inputs.items() if v is not None and k not in self.signature.ignored}
        if "labels" in tensors:
            message = "labels is not supported: the compiled graph computes no loss."
            raise ConfigError(message, hint="Remove labels and compute the loss from the results.", option="labels")
        return tensors

    def describe(self) -> dict[str, Any]:
        """Every automatic choice with its reason, the cores, memory, validation and timings, as plain data."""
        reason = self.loaded.claim.choice.reason
        if len(self.copies.loaded) > 1:
            reason = "data_parallel_mode='all': a copy on every core that the process may use"
        return {**super().describe(), "cores": {"value": list(self.copies.core_ids), "reason": reason}}

    def choose_bucket(self, axis: str, size: int) -> Choice[int]:
        """Say which bucket of an axis holds an input of a size, and why.

        Raises:
            ShapeError: none does.
        """
        return self._forward.choose_bucket(axis, size)

    @property
    def input_modalities(self) -> tuple[str, ...]:
        """Kinds of input, as transformers names them."""
        kinds = {"input_ids": "text", "pixel_values": "image", "input_values": "audio", "input_features": "audio"}
        return tuple(kinds[spec.name] for spec in self.signature.inputs if spec.name in kinds)

    def can_generate(self) -> bool:
        """It cannot."""
        return False


def _output_type(path: str, task: str) -> Any:
    """transformers' class of results: the original's own, or where that came with a checkpoint, the task's."""
    module, _, name = path.rpartition(".")
    if module.startswith("transformers."):
        output_type = getattr(importlib.import_module(module), name, None)
        if isinstance(output_type, type) and issubclass(output_type, ModelOutput):
            return output_type
    return getattr(transformers.modeling_outputs, TASKS[task].output_type or "ModelOutput", ModelOutput)
