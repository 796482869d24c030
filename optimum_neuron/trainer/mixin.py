"""What the chip and a simulated core add to `Trainer`, as a mix-in that overrides only steps that upstream names.

The training loop, evaluation, the hub and the callbacks are upstream's. It goes before any class that is derived from
`Trainer`:

    class NeuronSFTTrainer(NeuronTrainerMixin, trl.SFTTrainer): ...
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any

import torch

from ..distributed.mesh import require_agreement
from ..distributed.training import DistributedTraining
from ..errors import ConfigError, refusal
from .arguments import NeuronArgumentsMixin
from .estimates import StepRequest, log_entries, require_whole_model
from .guard import gradient_error, loss_error
from .inputs import Limits, require_usable
from .memory import require_fit
from .optimizer import MasterWeights, accumulate_in_float32, keep_master_weights, narrow, round_gradients
from .recompiles import RecompileWatch
from .rounding import StochasticRounding
from .saving import WholeCheckpoints
from .throughput import Throughput

logger = logging.getLogger(__name__)

PADDING_MULTIPLE = 64
"""Lengths that the default collator pads to when graphs are compiled."""


class NeuronTrainerMixin(DistributedTraining, WholeCheckpoints):
    """What `NeuronTrainer` adds to `Trainer`; put it before a class that is derived from `Trainer`.

    Its arguments are those of the class behind it; `args` has the fields of `NeuronArgumentsMixin`. `tokenizer` is
    `processing_class` by the name that transformers had for it.

    Raises:
        ConfigError: arguments of another class, stochastic rounding where nothing has 16 bits, or both names of the
            tokenizer.
    """

    def __init__(self, *positional: Any, tokenizer: Any = None, **keywords: Any) -> None:
        if tokenizer is not None:
            if keywords.get("processing_class") is not None:
                raise ConfigError(
                    "tokenizer and processing_class name the same argument. Pass processing_class only.",
                    details={"arguments": ["tokenizer", "processing_class"]},
                )
            keywords["processing_class"] = tokenizer
        super().__init__(*positional, **keywords)
        arguments = self.args
        require_neuron_arguments(arguments, type(self).__name__)
        self._limits: tuple[Any, Limits] | None = None
        self._widened: Any = None
        self._batches: list[tuple[Any, Any]] = []
        self._estimates: dict[StepRequest, dict[str, float]] = {}
        self._recompiles = RecompileWatch(arguments.max_recompiles)
        self._throughput = Throughput()
        self.add_callback(self._throughput)
        self._rounding = StochasticRounding()
        if arguments.stochastic_rounding_enabled:
            _require_narrow(self.model if self._whole is None else self._whole.empty, arguments)
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
        self, resume_from_checkpoint: str | bool | None = None, trial: Any = None, ignore_keys_for_eval: Any = None
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

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward of one batch, as upstream, between checks of what goes in and what comes out."""
        step = self.state.global_step + 1
        self._require_usable(inputs, where=f"training step {step}", trains=True)
        if isinstance(inputs, Mapping):
            self._throughput.count(inputs, main_input(self.model))
        watch = self._recompiles.step(step) if self.args.torch_compile else contextlib.nullcontext()
        # Backward passes on this thread: in one of their own they have a heap of their own, which keeps a third more of
        # the host's memory. A process trains on one core, so nothing would run beside it.
        with watch, torch.autograd.set_multithreading_enabled(False):
            loss = super().training_step(model, inputs, num_items_in_batch)
        if not math.isfinite(float(loss)):
            raise self._loss_error(model, inputs, num_items_in_batch, step)
        self._batches.append((inputs, num_items_in_batch))
        return loss

    def prediction_step(self, model: Any, inputs: Any, *positional: Any, **keywords: Any) -> Any:
        """One batch of an evaluation, as upstream, after a check of what goes in."""
        self._require_usable(inputs, where="evaluation")
        return super().prediction_step(model, inputs, *positional, **keywords)

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        super()._move_model_to_device(model, device)
        if device.type == "neuron":
            # Each parameter was copied and its original freed: that many holes are in the host's heap.
            torch.accelerator.empty_cache()

    def create_optimizer(self, model: Any = None) -> Any:
        """Upstream's optimizer; with master weights and float32 gradients for parameters of 16 bits."""
        own = self.model if model is None else model
        if self.optimizer is None and self.args.device.type == "neuron" and not self.is_fsdp_enabled:
            kind, options = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, own)
            require_fit(own, self.args, optimizer=kind, momentum=options.get("momentum", 0.0))
        optimizer = super().create_optimizer(model)
        # A second `train()` finds the one of the first, in accelerate's wrapper.
        plain = getattr(optimizer, "optimizer", optimizer)
        if plain is not self._widened:
            self._widened = plain
            self._masters = self._widen(own, plain)
        return optimizer

    def _widen(self, model: Any, optimizer: torch.optim.Optimizer) -> MasterWeights | None:
        """Float32 gradients and master weights of 16-bit parameters; of a model in parts, its sharding has them."""
        if self._whole is not None:
            return None
        if self.args.optimizer_use_fp32_grad_acc:
            _require_one_process(model, self.args)
            accumulate_in_float32(model.parameters())
        if self.args.optimizer_use_master_weights:
            return keep_master_weights(optimizer)
        if self.args.optimizer_use_fp32_grad_acc:
            round_gradients(optimizer)
        return None

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        batches, self._batches = self._batches, []
        if not math.isfinite(float(norm)):
            raise self._gradient_error(model, batches)
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, as upstream; with tokens per second of this host, how many steps compiled again, and estimates."""
        if "loss" in logs and self.args.enable_throughput_metrics:
            num_tokens, seconds = self._throughput.take()
            if num_tokens and seconds:
                mine = torch.tensor(float(num_tokens), device=self.args.device)
                # Cores that share layers, or are stages of one pipeline, count the same tokens.
                total = float(self.accelerator.reduce(mine)) / self.get_tp_size()
                logs["neuron/host_tokens_per_s"] = round(total / seconds, 1)
        if "loss" in logs and self.args.torch_compile:
            logs["neuron/recompiles"] = self._recompiles.num_recompiles
        if "loss" in logs and self.args.enable_mfu_metrics and self._throughput.length:
            request = self._step_request()
            if request not in self._estimates:
                self._estimates[request] = log_entries(self.model.config, request)
            logs.update(self._estimates[request])
        super().log(logs, start_time)

    def _step_request(self) -> StepRequest:
        from ..device import placement

        layout = self.args.trn_config
        return StepRequest(
            instance=placement.instance().name,
            batch_size=self.get_total_train_batch_size(self.args),
            num_tokens=self._throughput.length,
            micro_batch_size=self.args.per_device_train_batch_size,
            tensor_parallel_size=layout.tensor_parallel_size,
            pipeline_parallel_size=layout.pipeline_parallel_size,
            zero_1=layout.pipeline_parallel_use_zero1_optimizer,
            gradient_checkpointing=layout.gradient_checkpointing,
            optimizer_use_master_weights=self.args.optimizer_use_master_weights,
        )

    def _require_usable(self, inputs: Any, *, where: str, trains: bool = False) -> None:
        if not isinstance(inputs, Mapping):
            return
        if self._limits is None or self._limits[0] is not self.model:
            self._limits = self.model, Limits.of(self.model)
        require_usable(inputs, self._limits[1], where=where)
        if trains and not self._computes_loss_from(inputs):
            raise ConfigError(
                refusal(
                    asked=f"a loss in {where}",
                    found=f"a batch with {', '.join(inputs) or 'no columns'}",
                    why=f"the model computes it from {' or '.join(self.label_names)}",
                    do="add the column to the data set, or pass a data_collator that makes it, or compute_loss_func",
                )
            )

    def _computes_loss_from(self, inputs: Mapping[str, Any]) -> bool:
        overridden = self.compute_loss_func is not None or bool(self._other_losses())
        labelled = not self.label_names or any(name in inputs for name in self.label_names)
        return overridden or labelled or self.can_return_loss

    def _loss_error(self, model: Any, inputs: Any, num_items_in_batch: Any, step: int) -> Exception:
        plain = self._unwrapped(model)
        labels = inputs.get("labels") if isinstance(inputs, Mapping) else None
        return loss_error(
            plain,
            lambda: self._once_more(plain, inputs, num_items_in_batch),
            step=step,
            labels=labels,
            first=self._first_found,
        )

    def _gradient_error(self, model: Any, batches: list[tuple[Any, Any]]) -> Exception:
        plain = self._unwrapped(model)

        def backward() -> None:
            for inputs, num_items_in_batch in batches:
                self._once_more(plain, inputs, num_items_in_batch, backward=True)

        return gradient_error(plain, backward, step=self.state.global_step + 1, first=self._first_found)

    def _unwrapped(self, model: Any) -> Any:
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)


def main_input(model: Any) -> str:
    """The column that a model cannot do without."""
    return getattr(model, "main_input_name", "input_ids")


def require_neuron_arguments(arguments: Any, trainer: str) -> None:
    """Refuse arguments without the fields of `NeuronArgumentsMixin`.

    Raises:
        ConfigError: they are of another class.
    """
    if isinstance(arguments, NeuronArgumentsMixin):
        return
    raise ConfigError(
        refusal(
            asked=f"{trainer}(args={type(arguments).__name__}(...))",
            found="arguments without the fields that Neuron adds",
            why="the trainer would have to guess them",
            do="use NeuronTrainingArguments, which takes the same keywords",
        )
    )


def _require_one_process(model: torch.nn.Module, arguments: Any) -> None:
    if arguments.world_size == 1 or not narrow(model.parameters()):
        return
    raise ConfigError(
        refusal(
            asked=f"optimizer_use_fp32_grad_acc with {arguments.world_size} processes and 16-bit parameters",
            found="gradients that are reduced in the dtype of their parameters",
            why="DistributedDataParallel would leave float32 gradients unreduced",
            do="pass the loaded model in place of its name or of model_init, or optimizer_use_fp32_grad_acc=False",
        )
    )


def _require_narrow(model: torch.nn.Module, arguments: Any) -> None:
    if arguments.bf16 or narrow(model.parameters()):
        return
    raise ConfigError(
        refusal(
            asked="stochastic_rounding_enabled",
            found="a model in float32",
            why="only what is written to 16-bit floats is rounded",
            do="pass bf16=True, or load the model with dtype=torch.bfloat16",
        )
    )
