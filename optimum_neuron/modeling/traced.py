"""`NeuronTracedModel`: a compiled single-pass model behind transformers' interface.

It pads inputs up to compiled shapes, runs the graphs and gives transformers' results back. What differs between tasks
is names, so `tasks.py` has a line for each; compiling is in `exporters`.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch
import transformers
from transformers.utils import ModelOutput

from ..core import Choice
from ..engine import Forward, Signature
from ..errors import ConfigError, ShapeError, invalid_choice
from ..exporters.encoders.entry import unflatten
from ..exporters.prepare import Prepared
from ..exporters.tasks import TASKS
from ..runtime.copies import Copies, load_copies
from ..runtime.core_choice import num_usable
from .checks import refuse_outputs
from .loading import NeuronModel

DataParallelMode = Literal["none", "all"]
"""Replicas of a model: one, or one on every core that the process may use. The names are those of Optimum Neuron."""


class NeuronTracedModel(NeuronModel):
    """A single-pass model compiled for a simulated NeuronCore; the base of one class for each task.

    Inputs are those of the original model. Rows and lengths are padded up to the smallest compiled bucket that holds
    them, more rows than compiled are split, and results are cut back.
    """

    kind = "encoder"
    base_model_prefix = "model"
    output_modalities = ("text",)
    load_options = ("data_parallel_mode",)

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.signature = Signature.from_dict(prepared.metadata["signature"])["forward"]
        self._forward = Forward(self.copies, "forward", self.signature)
        self.main_input_name = self.signature.inputs[0].name
        self._output_type = _output_type(self.signature.output_type, self.task)

    @classmethod
    def from_pretrained(
        cls,
        model_id: str | Path,
        config: Any = None,
        export: bool | None = None,
        *,
        data_parallel_mode: DataParallelMode = "none",
        **options: Any,
    ) -> Self:
        """Load an exported folder, or export a checkpoint.

        Args:
            model_id: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
            config: a transformers configuration to use instead of the checkpoint's.
            export: True exports a checkpoint, False requires an exported folder, None does what fits.
            data_parallel_mode: "all" loads a copy on every core that the process may use, and splits batches over them;
                NEURON_RT_NUM_CORES and NEURON_RT_VISIBLE_CORES say which cores these are. "none" loads one copy.
            **options: see `NeuronModel.from_pretrained`.

        Raises:
            CoreBusyError: with "all", other processes hold some of the cores.
            NeuronError: see `optimum_neuron/errors.py`.
        """
        _check_mode(data_parallel_mode)
        return super().from_pretrained(model_id, config, export, data_parallel_mode=data_parallel_mode, **options)

    @classmethod
    def from_model(
        cls, module: transformers.PreTrainedModel, *, data_parallel_mode: DataParallelMode = "none", **options: Any
    ) -> Self:
        """Compile a transformers model that is in memory.

        Args:
            module: the model; it is not changed. Later changes of its weights do not reach the compiled model.
            data_parallel_mode: as `from_pretrained`.
            **options: as `from_pretrained`, without those that say where a checkpoint is.

        Raises:
            ConfigError: an option is unknown or out of range.
            NeuronError: the model cannot be compiled, see `optimum_neuron/errors.py`.

        Example:
            ```python no-run
            model = NeuronModelForSequenceClassification.from_model(module, batch_size=1, sequence_length=128)
            ```
        """
        _check_mode(data_parallel_mode)
        return super().from_model(module, data_parallel_mode=data_parallel_mode, **options)

    def _placed(self, data_parallel_mode: DataParallelMode = "none") -> Self:
        return self._parallel() if data_parallel_mode == "all" else self

    def _parallel(self) -> Self:
        """Load a copy on every core that the process may use, in place of the one that is loaded.

        Raises:
            CoreBusyError: other processes hold some of them.
            DeviceMemoryError: there is no room on one of them.
        """
        bound = self.prepared.bound
        assert bound is not None
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
        config = self.neuron_config
        refuse_outputs(
            output_attentions and not config.output_attentions,
            output_hidden_states and not config.output_hidden_states,
            exportable=("output_attentions", "output_hidden_states"),
        )
        output = self._output_type(**unflatten(self._forward(tensors)))
        return output.to_tuple() if return_dict is False else output

    def _named(
        self, args: tuple[torch.Tensor, ...], inputs: Mapping[str, torch.Tensor | None]
    ) -> dict[str, torch.Tensor]:
        """Inputs by name, without those that are None; whatever is no input is refused with a reason."""
        names = [spec.name for spec in self.signature.inputs]
        if len(args) > len(names) or any(name in inputs for name in names[: len(args)]):
            raise ShapeError(
                f"The call has {len(args)} positional inputs and {', '.join(inputs) or 'no others'}, but the model "
                f"takes {', '.join(names)}, each once.",
                hint="Pass inputs by name.",
                inputs=names,
            )
        tensors = dict(zip(names, args, strict=False))
        tensors |= {k: v for k, v in inputs.items() if v is not None and k not in self.signature.ignored}
        if "labels" in tensors:
            raise ConfigError(
                "labels is not supported: the compiled graph computes no loss.",
                hint="Remove labels and compute the loss from the results.",
                option="labels",
            )
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


def _check_mode(mode: Any) -> None:
    """Refuse another mode before anything is compiled.

    Raises:
        ConfigError: it is not one of those of `DataParallelMode`.
    """
    if mode not in get_args(DataParallelMode):
        raise invalid_choice("data_parallel_mode", mode, get_args(DataParallelMode))


def _output_type(path: str, task: str) -> Any:
    """transformers' class of results: the original's own, or where that came with a checkpoint, the task's."""
    module, _, name = path.rpartition(".")
    if module.startswith("transformers."):
        output_type = getattr(importlib.import_module(module), name, None)
        if isinstance(output_type, type) and issubclass(output_type, ModelOutput):
            return output_type
    return getattr(transformers.modeling_outputs, TASKS[task].output_type or "ModelOutput", ModelOutput)
