"""The additions of the chip and of a simulated core to `Trainer`, as a mix-in that overrides only upstream's hooks.

The training loop, evaluation, the hub, and the callbacks are upstream's. The mix-in goes before any class that is
derived from `Trainer`:

    class NeuronSFTTrainer(NeuronTrainerMixin, trl.SFTTrainer): ...

`NeuronTrainerMixin` has the only `__init__`. Its bases `DistributedSteps` (`steps.py`) and `WholeCheckpoints`
(`saving.py`) override other hooks than each other, and share these attributes of the trainer:

    attribute      set by                        read by            holds
    _distributed   __init__, _start_layout       steps, saving      stages, sequences, and names of a distributed model
    _masters       create_optimizer              saving             float32 weights, if the model is not distributed
    _is_staging    saving._save_checkpoint       saving             whether a checkpoint is being written
    _limits        _require_usable               mixin              token IDs, positions, and labels of the model
    _widened       create_optimizer              mixin              the optimizer that has its float32 weights already
    _batches       training_step                 mixin              batches of this step, to search for NaN in
    _log_metrics   __init__                      mixin              entries of the log
    _recompiles    __init__                      mixin              steps that compiled again
    _rounding      __init__                      mixin              stochastic rounding, on during a step
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..base.transformers_types import PreTrainedTokenizerBase
from ..distributed import plain_optimizer, require_agreement
from .construction import lay_out, require_neuron_arguments, upstream_leaves_alone, with_processing_class
from .estimates import require_whole_model
from .guard import gradient_error, loss_error
from .inputs import Limits, main_input, require_loss, require_usable
from .memory import require_fit
from .metrics import Metrics
from .optimizer import MasterWeights, accumulate_in_float32, keep_master_weights, require_one_process, round_gradients
from .recompiles import RecompileWatch
from .rounding import StochasticRounding, require_narrow
from .saving import WholeCheckpoints
from .steps import DistributedSteps

if TYPE_CHECKING:
    from torch import nn

logger = logging.getLogger(__name__)

PADDING_MULTIPLE = 64
"""Lengths that the default collator pads to when graphs are compiled."""


class NeuronTrainerMixin(DistributedSteps, WholeCheckpoints):
    """The additions of `NeuronTrainer` to `Trainer`; put it before a class that is derived from `Trainer`.

    Its arguments are those of the class behind it; `args` has the fields of `NeuronArgumentsMixin`. `tokenizer` is
    transformers' old name of `processing_class`.

    Raises:
        ConfigError: arguments of another class, stochastic rounding of a float32 model, both names of the tokenizer, or
            a layout that the model does not support.
    """

    def __init__(
        self, *positional: object, tokenizer: PreTrainedTokenizerBase | None = None, **keywords: object
    ) -> None:
        keywords = with_processing_class(keywords, tokenizer)
        arguments = require_neuron_arguments(type(self).__name__, positional, keywords)
        positional, keywords, self._distributed = lay_out(positional, keywords, arguments)
        with upstream_leaves_alone(self._distributed, arguments):
            super().__init__(*positional, **keywords)
        if self._distributed.whole is not None and hasattr(self, "_tp_size"):
            # TRL divides the tokens that it gathers by the cores of a batch; `_gather_once` has counted them once.
            self._tp_size = 1
        self._start_layout()
        self._start_training_aids()

    def _start_training_aids(self) -> None:
        arguments = self.args
        self._limits: tuple[Any, Limits] | None = None
        self._widened: Any = None
        self._batches: list[tuple[Any, Any]] = []
        self._recompiles = RecompileWatch(arguments.max_recompiles)
        self._log_metrics = Metrics()
        self.add_callback(self._log_metrics.throughput)
        self._rounding = StochasticRounding()
        if arguments.stochastic_rounding_enabled:
            whole = self._distributed.whole
            require_narrow(self.model if whole is None else whole.empty, arguments)
            self.add_callback(self._rounding)
        if arguments.enable_mfu_metrics:
            require_whole_model(self.model)
        if arguments.torch_compile and getattr(self.data_collator, "pad_to_multiple_of", 1) is None:
            logger.warning(
                "torch_compile with a %s that pads each batch to its own length: every new length compiles again. "
                "Pass pad_to_multiple_of=%d to it.",
                type(self.data_collator).__name__,
                PADDING_MULTIPLE,
            )

    # Training

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: object = None,
        ignore_keys_for_eval: object = None,
    ) -> Any:
        """Train, as upstream does.

        Args:
            resume_from_checkpoint: a checkpoint; True: the newest of `output_dir` that is whole.
            trial: of a hyperparameter search.
            ignore_keys_for_eval: outputs that evaluation leaves out.

        Raises:
            ArtifactError: the checkpoint is not whole, or of another layout.
            ModelError: it is of another model, or a batch cannot be used.
            NumericsError: a loss or gradient is not finite.
            ShapeError: more steps than `max_recompiles` compiled again.
            DeviceMemoryError: gradients and optimizer do not fit the core.
        """
        checkpoint = self._checkpoint_to_resume(resume_from_checkpoint)
        if self.args.world_size > 1:
            rows = len(self.train_dataset) if isinstance(self.train_dataset, Sized) else None
            name = None if checkpoint is None else Path(checkpoint).name
            require_agreement({"rows of the training data set": rows, "resume_from_checkpoint": name})
        with contextlib.ExitStack() as stack:
            stack.callback(self._rounding.close)
            if self.args.torch_compile:
                stack.enter_context(self._recompiles.running())
            return super().train(
                resume_from_checkpoint=checkpoint, trial=trial, ignore_keys_for_eval=ignore_keys_for_eval
            )

    def training_step(
        self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Run forward and backward of one batch, as upstream, between checks of the batch and of the loss."""
        step = self.state.global_step + 1
        self._require_usable(inputs, where=f"training step {step}", trains=True)
        if isinstance(inputs, Mapping):
            self._log_metrics.throughput.count(inputs, main_input(self.model))
        watch = self._recompiles.step(step) if self.args.torch_compile else contextlib.nullcontext()
        # Backward passes on this thread: a separate thread would have its own heap, which keeps a third more of the
        # host's memory. A process trains on one core, so a second thread would not help.
        with watch, torch.autograd.set_multithreading_enabled(False):
            loss = self._train_batch(model, inputs, num_items_in_batch)
        if not math.isfinite(float(loss)):
            raise self._loss_error(model, inputs, num_items_in_batch, step)
        self._batches.append((inputs, num_items_in_batch))
        return loss

    def prediction_step(self, model: nn.Module, inputs: Mapping[str, Any], *positional: Any, **keywords: Any) -> Any:
        """Evaluate one batch, as upstream, after a check of the batch."""
        self._require_usable(inputs, where="evaluation")
        return self._predict_batch(model, inputs, *positional, **keywords)

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        super()._move_model_to_device(model, device)
        if device.type == "neuron":
            # Each parameter was copied and its original freed: that many holes are in the host's heap.
            torch.accelerator.empty_cache()

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        """Create upstream's optimizer; with master weights and float32 gradients for 16-bit parameters."""
        trained = self.model if model is None else model
        if self.optimizer is None and self.args.device.type == "neuron" and not self.is_fsdp_enabled:
            kind, options = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, trained)
            require_fit(trained, self.args, optimizer=kind, momentum=options.get("momentum", 0.0))
        optimizer = super().create_optimizer(model)
        # A second `train()` has the one of the first, in accelerate's wrapper.
        plain = plain_optimizer(optimizer)
        if plain is not self._widened:
            self._widened = plain
            self._masters = self._widen(trained, plain)
        return optimizer

    def _widen(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> MasterWeights | None:
        """Add float32 gradients and master weights of 16-bit parameters; a distributed model has them already."""
        if self._distributed.whole is not None:
            return None
        if self.args.optimizer_use_fp32_grad_acc:
            require_one_process(model, self.args.world_size)
            accumulate_in_float32(model.parameters())
        if self.args.optimizer_use_master_weights:
            return keep_master_weights(optimizer)
        if self.args.optimizer_use_fp32_grad_acc:
            round_gradients(optimizer)
        return None

    def _get_grad_norm(self, model: nn.Module, grad_norm: object = None) -> Any:
        if grad_norm is None and self._distributed.pipeline is not None:
            grad_norm = self._distributed.pipeline.clip(float("inf"))
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        batches, self._batches = self._batches, []
        if not math.isfinite(float(norm)):
            raise self._gradient_error(model, batches)
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, as upstream; with tokens per second of this host, how many steps compiled again, and estimates."""
        if "loss" in logs:
            logs.update(self._log_metrics.entries(self))
            if self.args.torch_compile:
                logs["neuron/recompiles"] = self._recompiles.num_recompiles
        super().log(logs, start_time)

    # Checks

    def _require_usable(self, inputs: object, *, where: str, trains: bool = False) -> None:
        if not isinstance(inputs, Mapping):
            return
        if self._limits is None or self._limits[0] is not self.model:
            self._limits = self.model, Limits.of(self.model)
        require_usable(inputs, self._limits[1], where=where)
        computes_loss = self.compute_loss_func is not None or bool(self._other_losses()) or self.can_return_loss
        if trains and not computes_loss:
            require_loss(inputs, self.label_names, where=where)

    def _loss_error(
        self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: torch.Tensor | int | None, step: int
    ) -> Exception:
        plain = self._unwrapped(model)
        labels = inputs.get("labels") if isinstance(inputs, Mapping) else None

        def forward() -> None:
            self._once_more(plain, inputs, num_items_in_batch)

        return loss_error(plain, forward, step=step, labels=labels, first=self._first_of_processes)

    def _gradient_error(self, model: nn.Module, batches: list[tuple[Any, Any]]) -> Exception:
        plain = self._unwrapped(model)

        def backward() -> None:
            for inputs, num_items_in_batch in batches:
                self._once_more(plain, inputs, num_items_in_batch, backward=True)

        return gradient_error(plain, backward, step=self.state.global_step + 1, first=self._first_of_processes)

    def _unwrapped(self, model: nn.Module) -> Any:
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)
