"""LoRA adapters of a compiled decoder: loaded, chosen by row, and deleted without compiling.

The decoder was exported with `max_loras`. Methods have the names of transformers and PEFT.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Sequence
from pathlib import Path

from ..base.wording import listed
from ..batching import Adapter
from ..errors import ConfigError, ShapeError, WeightsError, invalid_choice
from ..exporters import Prepared
from ..models import STACK_NAMES, AdapterPlan
from ..sources import Lora, read_lora
from ..weights import LowRankStack, low_rank_stack, plain_names
from .weights import refuse_other_base

BASE_NAME = "__base__"
"""Name of the base model among those of adapters, as in PEFT."""

_SHOWN = 4


class AdapterSlots:
    """The adapters of one model, each at an index of the program's stacks."""

    def __init__(self, prepared: Prepared) -> None:
        self.plan = AdapterPlan.from_dict(prepared.metadata["adapters"])
        self.active = BASE_NAME
        """Adapter of rows for which none is named."""
        self.is_enabled = True
        """Whether `active` is used."""
        self._index_of: dict[str, int] = {BASE_NAME: 0}
        # A program has no stacks for layers that take no adapters.
        paths = [path for path in self.plan.layers if f"{path}.{STACK_NAMES[0]}" in prepared.program.weights]
        self._stacks = {path: _stack(prepared, self.plan, path) for path in paths}
        self._lock = threading.Lock()
        self._num_loaded = 0
        self._number_of: dict[int, int] = {}
        self._num_users: collections.Counter[int] = collections.Counter()

    @property
    def names(self) -> list[str]:
        """Loaded adapters, in the order in which they were loaded."""
        return [name for name in self._index_of if name != BASE_NAME]

    def index_of(self, name: str) -> int:
        """Return the index of an adapter in the program's stacks; that of the base model is 0."""
        index = self._index_of.get(name)
        if index is None:
            raise invalid_choice("adapter_name", name, list(self._index_of))
        return index

    def indices(self, names: Sequence[str] | None, num_rows: int) -> list[int]:
        """Return the index of each row's adapter.

        Args:
            names: adapter of each row, or `BASE_NAME`; None: the active one.
            num_rows: rows of the batch.
        """
        if names is None:
            return [self.index_of(self.active if self.is_enabled else BASE_NAME)] * num_rows
        check_names(names, num_rows)
        return [self.index_of(name) for name in names]

    def load(self, name: str, lora: Lora) -> None:
        """Write an adapter to a free index."""
        self._check(lora)
        with self._lock:
            self._require_free(name)
            index = min(set(range(1, self.plan.max_loras + 1)) - set(self._index_of.values()))
            for stack in self._stacks.values():
                stack.write(index, lora.matrices)
            self._index_of[name] = index
            self._num_loaded += 1
            self._number_of[index] = self._num_loaded
            if len(self.names) == 1:
                self.active = name

    def delete(self, name: str) -> None:
        """Free the index of an adapter; if it was active, the base model is."""
        with self._lock:
            index = self.index_of(name)
            if index == 0:
                message = f"{BASE_NAME!r} is the base model, which cannot be deleted."
                raise ConfigError(message, hint="Pass the name of an adapter.", option="adapter_name", value=name)
            if num_users := self._num_users[index]:
                message = f"{num_users} requests that are not over use the adapter {name!r}."
                hint = "Cancel them, or delete it when they are answered."
                raise ConfigError(message, hint=hint, option="adapter_name", value=name, num_requests=num_users)
            del self._index_of[name]
            if self.active == name:
                self.active = BASE_NAME
            for stack in self._stacks.values():
                stack.write(index, {})

    def hold(self, name: str | None) -> Adapter:
        """Return an adapter that cannot be deleted until it is released; None for the active one."""
        with self._lock:
            index = self.indices(None if name is None else [name], 1)[0]
            self._num_users[index] += 1
            key = self._number_of.get(index, 0).to_bytes(8, "little")
            return Adapter(index=index, key=key, release=functools.partial(self._release, index))

    def _release(self, index: int) -> None:
        with self._lock:
            self._num_users[index] -= 1

    def _require_free(self, name: str) -> None:
        if name in self._index_of:
            hint = "Choose another name, or call delete_adapter first."
            raise ConfigError(f"An adapter is named {name!r} already.", hint=hint, option="adapter_name", value=name)
        if len(self.names) == self.plan.max_loras:
            message = f"{self.plan.max_loras} adapters are loaded, for which the model was compiled: "
            message += f"{', '.join(self.names)}."
            hint = "Call delete_adapter, or export with a larger max_loras."
            raise ConfigError(message, hint=hint, option="max_loras", value=self.plan.max_loras, names=self.names)

    def _check(self, lora: Lora) -> None:
        if lora.rank > self.plan.max_rank:
            message = f"The adapter {lora.folder} has rank {lora.rank}, but the model was compiled for ranks up to "
            hint = f"Export with max_lora_rank={lora.rank}."
            raise ConfigError(
                f"{message}{self.plan.max_rank}.", hint=hint, option="max_lora_rank", value=self.plan.max_rank
            )
        stacks = self._stacks.values()
        compiled = {name for stack in stacks for name in stack.targets}
        if others := sorted(lora.matrices.keys() - compiled):
            ends = sorted({name.rpartition(".")[2] for name in compiled})
            shown = listed(others, _SHOWN)
            message = f"The adapter {lora.folder} changes modules that were not compiled for adapters: {shown}."
            hint = f"Load an adapter of this model for {', '.join(ends)}, or export with other lora_target_modules."
            raise WeightsError(message, hint=hint, adapter=str(lora.folder), modules=others, compiled=ends)
        if problems := [problem for stack in stacks for problem in stack.problems(lora.matrices)]:
            message = f"The adapter {lora.folder} was trained on another model: {listed(problems, _SHOWN)}."
            hint = "Pass an adapter whose base_model_name_or_path is the compiled model."
            raise WeightsError(message, hint=hint, adapter=str(lora.folder), problems=problems)


def _stack(prepared: Prepared, plan: AdapterPlan, path: str) -> LowRankStack:
    """The stacks of the linear layer at a path."""
    assert prepared.bound is not None and prepared.tensors is not None, "a model has weights"
    sources = prepared.weight_sources[f"{path}.weight"]
    # Only weights that are joined have their results in dimension 0 for certain.
    num_outputs = prepared.program.weights[f"{path}.{STACK_NAMES[1]}"].shape[1]
    specs = prepared.tensors.value.specs
    sizes = [specs[source].shape[0] for source in sources] if len(sources) > 1 else [num_outputs]
    return low_rank_stack(
        path,
        prepared.bound.weights.tensors,
        names=STACK_NAMES,
        sizes=dict(zip((name.removesuffix(".weight") for name in plain_names(sources)), sizes, strict=True)),
        targets=plan.layers[path],
        max_rank=plan.max_rank,
        shards=prepared.artifact.shards,
    )


def check_names(names: Sequence[str], num_rows: int) -> None:
    """Check that there is a name for each row."""
    if isinstance(names, str) or len(names) != num_rows:
        message = f"adapter_names={names!r} has no adapter for each of {num_rows} prompts."
        hint = f"Pass a list of {num_rows} names; {BASE_NAME!r} is the base model."
        raise ShapeError(message, hint=hint, names=names, num_rows=num_rows)


class AdapterMethods:
    """The adapter methods of transformers' models."""

    prepared: Prepared
    _adapters: AdapterSlots | None

    @property
    def adapters(self) -> AdapterSlots:
        """Adapters that are loaded, and their indices in the program."""
        if self._adapters is None:
            message = "This model was compiled without adapters."
            raise ConfigError(message, hint="Export it with max_loras=4, or merge the adapter.", option="max_loras")
        return self._adapters

    def hold_adapter(self, name: str | None) -> Adapter:
        """Return the adapter of a request, which cannot be deleted until it is released; None for the active one."""
        return Adapter() if name is None and self._adapters is None else self.adapters.hold(name)

    def load_adapter(self, peft_model_id: str | Path, adapter_name: str = "default", **where: object) -> None:
        """Load a LoRA adapter, without compiling; the only adapter that is loaded becomes the active one.

        Args:
            peft_model_id: folder that PEFT saved, or Hub model ID.
            adapter_name: name for `set_adapter` and `adapter_names`.
            **where: where the adapter is, fields of `SourceOptions`.

        Example:
            ```python no-run
            model = NeuronModelForCausalLM.from_pretrained("smollm2", export=True, max_loras=4, max_lora_rank=8)
            model.load_adapter("out/checkpoint-50", adapter_name="stories")
            model.generate(**inputs, adapter_names=["stories", "__base__"])
            ```
        """
        slots, lora = self.adapters, read_lora(peft_model_id, **where)
        refuse_other_base(lora.base_model, self.prepared, str(peft_model_id))
        slots.load(adapter_name, lora)

    def delete_adapter(self, adapter_names: str | Sequence[str]) -> None:
        """Delete adapters, which makes room for others; if one was active, the base model is."""
        slots = self.adapters
        names = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)
        for name in names:
            slots.index_of(name)
        for name in names:
            slots.delete(name)

    def set_adapter(self, adapter_name: str | Sequence[str]) -> None:
        """Use an adapter for prompts of which none is named; `"__base__"` is the base model."""
        if not isinstance(adapter_name, str):
            message = f"set_adapter({adapter_name!r}) is not supported: a prompt has one adapter."
            raise ConfigError(message, hint="Pass one name.", option="adapter_name", value=adapter_name)
        self.adapters.index_of(adapter_name)
        self.adapters.active = adapter_name

    def active_adapters(self) -> list[str]:
        """Return the name of the active adapter, in a list as transformers does; empty for the base model."""
        slots = self.adapters
        return [slots.active] if slots.is_enabled and slots.active != BASE_NAME else []

    def disable_adapters(self) -> None:
        """Use the base model for prompts of which no adapter is named."""
        self.adapters.is_enabled = False

    def enable_adapters(self) -> None:
        """Use the active adapter again."""
        self.adapters.is_enabled = True
