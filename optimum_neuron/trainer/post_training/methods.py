"""The methods of post-training: one table, and one function that makes the configuration and the trainer of a method.

Both are TRL's classes with Neuron's mix-ins before them, so `isinstance` with TRL's own class holds. A method's module
of TRL is imported on first use: other versions may not have it, and ORPO's warns that it is experimental.

    NeuronDPOConfig, NeuronDPOTrainer = make_classes("DPO")
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from accelerate.utils import set_seed

from ...base.foreign import module_facts
from ...base.transformers_types import TrainingArguments
from ...checkpoints import resolve_model
from ...errors import ConfigError
from ..arguments import NeuronArgumentsMixin
from ..mixin import NeuronTrainerMixin

if TYPE_CHECKING:
    from torch import nn


class PostTrainingMixin(NeuronTrainerMixin):
    """A trainer of TRL that takes a model's name, and makes its configuration if there is none."""

    configuration_class: type
    leading: tuple[str, ...]
    """TRL's first positional arguments, up to `args`."""

    def __init__(self, *positional: object, **keywords: object) -> None:
        keywords |= dict(zip(self.leading, positional, strict=False))
        model = keywords.get("model")
        keywords["args"] = configuration_for(type(self), keywords.get("args"), model)
        keywords["model"] = str(resolve_model(model).value) if isinstance(model, str) else model
        leading = [keywords.pop(name, None) for name in self.leading]
        super().__init__(*leading, *positional[len(leading) :], **keywords)


@dataclasses.dataclass(kw_only=True)
class SFTArguments(NeuronArgumentsMixin):
    """TRL's old name of an option, next to the fields of Neuron."""

    max_seq_length: int | None = dataclasses.field(default=None, metadata={"help": "Sets max_length."})

    def __post_init__(self) -> None:
        if self.max_seq_length is not None:  # TRL's name before 0.20
            self.max_length = self.max_seq_length
        super().__post_init__()


@dataclasses.dataclass(kw_only=True)
class GRPOArguments(NeuronArgumentsMixin):
    """Batches of completions; cores that share layers sample the same ones. One option is TRL's before 1.0."""

    max_prompt_length: int | None = dataclasses.field(
        default=None, metadata={"help": "Read only so many tokens of a prompt, from its end."}
    )

    def __post_init__(self) -> None:
        if self.max_prompt_length is not None and self.max_prompt_length < 1:
            message = f"max_prompt_length is {self.max_prompt_length}, but must be at least 1."
            raise ConfigError(message, hint="Leave it out for whole prompts.", option="max_prompt_length")
        # TRL counts the answers of every process, so it would wait for a larger batch than there is.
        upstream: Any = self
        num_same = max(self.tensor_parallel_size, 1)
        batch_size: Any = upstream.generation_batch_size
        if batch_size is not None:
            upstream.generation_batch_size = batch_size * num_same
        super().__post_init__()
        upstream.generation_batch_size //= num_same
        size, number = upstream.generation_batch_size, upstream.num_generations
        if size % number:
            message = f"num_generations={number} does not divide the batch of {size} answers."
            hint = "Pass per_device_train_batch_size or gradient_accumulation_steps that it divides."
            raise ConfigError(message, hint=hint, option="num_generations", value=number, batch_size=size)


class GRPOMixin(PostTrainingMixin):
    """A trainer whose cores that share layers sample the same answers, and that can cut long prompts."""

    def __init__(self, *positional: object, **keywords: object) -> None:
        super().__init__(*positional, **keywords)
        if self.args.max_prompt_length is not None and not hasattr(super(), "_tokenize_prompts"):
            message = "This version of TRL reads prompts in another way, so max_prompt_length would have no effect."
            raise ConfigError(message, hint="Shorten the prompts of the data set.", option="max_prompt_length")
        if self.get_tp_size() > 1:
            # TRL seeds each process on its own; cores that share layers draw the same answers, in the same order.
            set_seed(self.args.seed + self.args.process_index // self.get_tp_size())

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[Any, ...]:
        """Return the tokens of prompts, their images, and other fields, as TRL's method of this name."""
        prompt_ids, images, *fields = super()._tokenize_prompts(prompts)
        most = self.args.max_prompt_length
        if most is None:
            return prompt_ids, images, *fields
        if images is not None:
            message = "max_prompt_length would cut the tokens of images."
            raise ConfigError(message, hint="Leave it out.", option="max_prompt_length", value=most)
        return [ids[-most:] for ids in prompt_ids], images, *fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """One method of TRL."""

    summary: str
    row: Mapping[str, Any]
    """Example of the data set, with its columns."""
    module: str = "trl"
    """Module of TRL's classes."""
    leading: tuple[str, ...] = ("model", "args")
    """TRL's first positional arguments, up to `args`."""
    arguments: type = NeuronArgumentsMixin
    """Mix-in of the configuration."""
    trainer: type = PostTrainingMixin
    sums_tokens: bool = False
    """Whether the loss is a sum over tokens, so that `context_parallel_size` can split it."""


_PREFERENCE = {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}

METHODS: Mapping[str, Method] = {
    "SFT": Method(
        summary="supervised fine-tuning on texts (`text`), chats (`messages`), or prompts with completions",
        row={"prompt": "tree:", "completion": " a tall plant with a trunk"},
        arguments=SFTArguments,
        sums_tokens=True,
    ),
    "DPO": Method(
        summary="direct preference optimization against a frozen reference (arXiv:2305.18290)",
        row=_PREFERENCE,
        leading=("model", "ref_model", "args"),
    ),
    "ORPO": Method(
        summary="odds ratio preference optimization, without a reference (arXiv:2403.07691)",
        row=_PREFERENCE,
        module="trl.experimental.orpo",
    ),
    "Reward": Method(summary="a model with one label that scores answers", row=_PREFERENCE),
    "GRPO": Method(
        summary="group relative policy optimization: rewards (`reward_funcs`) for answers that the model samples "
        "(arXiv:2402.03300)",
        row={"prompt": "2 + 2 ="},
        leading=("model", "reward_funcs", "args"),
        arguments=GRPOArguments,
        trainer=GRPOMixin,
    ),
}

_CONFIG_DOC = """TRL's `{name}Config`, nothing removed, and the fields of `NeuronArgumentsMixin`.

Raises:
    ConfigError: values out of range, or options that exclude each other; all of them are named.
"""

_TRAINER_DOC = """TRL's `{name}Trainer`, nothing removed, on simulated cores: {summary}.

Args:
    model: a model, an ID, a folder, or a name that `neuron fetch` knows.
    args: `Neuron{name}Config`; None takes TRL's defaults.
    others: as TRL: `train_dataset`, `processing_class`, `peft_config`.

Raises:
    ConfigError: a configuration of another class.

Example:
    ```python no-run
    from optimum_neuron import Neuron{name}Config, Neuron{name}Trainer

    rows = Dataset.from_list([{row}])
    Neuron{name}Trainer(model, args=Neuron{name}Config(output_dir="out"), train_dataset=rows).train()
    ```
"""


@functools.cache
def make_classes(name: str) -> tuple[type, type]:
    """Return the configuration and the trainer of a method of `METHODS`."""
    method, package = METHODS[name], __name__.rpartition(".")[0]
    their_config, their_trainer = require_trl(method.module, f"{name}Config", f"{name}Trainer")
    members: dict[str, Any] = {"__module__": package, "__doc__": _CONFIG_DOC.format(name=name)}
    config: type = dataclasses.dataclass(type(f"Neuron{name}Config", (method.arguments, their_config), members))
    members = {
        "__module__": package,
        "__doc__": _TRAINER_DOC.format(name=name, summary=method.summary, row=dict(method.row)),
        "__signature__": inspect.signature(their_trainer),
        "configuration_class": config,
        "leading": method.leading,
        "losses_of_tokens": (their_trainer,) if method.sums_tokens else (),
    }
    return config, type(f"Neuron{name}Trainer", (method.trainer, their_trainer), members)


def require_trl(module: str, *names: str) -> list[type]:
    """Import classes of TRL."""
    try:
        version = importlib.metadata.version("trl")
        return [getattr(importlib.import_module(module), name) for name in names]
    except importlib.metadata.PackageNotFoundError as problem:
        hint = "Run `pip install trl peft datasets`."
        raise ConfigError(f"{names[-1]} needs TRL, which is not installed.", hint=hint, module="trl") from problem
    except (ImportError, AttributeError) as problem:
        message = f"TRL {version} has no {names[-1]} in {module}: {problem}."
        hint = "Install a version of TRL that has it."
        raise ConfigError(message, hint=hint, module=module, name=names[-1], version=version) from problem


def configuration_for(trainer: type[PostTrainingMixin], arguments: TrainingArguments, model: nn.Module) -> Any:
    """Return the configuration of a trainer, or for None the one that TRL would make."""
    kind = trainer.configuration_class
    if isinstance(arguments, kind):
        return arguments
    if arguments is None:
        name = model if isinstance(model, str) else module_facts(model).name_or_path or ""
        method = kind.__name__.removeprefix("Neuron").removesuffix("Config")
        return kind(output_dir=f"{name.rstrip('/').rpartition('/')[2] or 'model'}-{method}")
    message = f"{trainer.__name__} needs a {kind.__name__}, not {type(arguments).__name__}."
    hint = f"Use {kind.__name__}, which takes the same keywords."
    raise ConfigError(message, hint=hint, option="args", type=type(arguments).__name__, expected=kind.__name__)
