"""LoRA adapters of requests: loaded at their first use, and replaced, the least recently used first.

It runs in one event loop; `AdapterCache` needs no lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError


@dataclasses.dataclass
class LoRARequest:
    """The adapter of a request; two are the same if their names are."""

    lora_name: str
    lora_int_id: int
    """A number of its own, at least 1."""
    lora_path: str = ""
    """Folder that PEFT saved, or Hub model ID."""
    lora_local_path: str | None = None
    """The name of `lora_path` in older scripts."""
    long_lora_max_len: int | None = None
    base_model_name: str | None = None
    tensorizer_config_dict: dict[str, Any] | None = None
    load_inplace: bool = False

    def __post_init__(self) -> None:
        self.lora_path = str(self.lora_path or self.lora_local_path or "")
        if not isinstance(self.lora_int_id, int) or self.lora_int_id < 1:
            raise ConfigError(
                f"lora_int_id must be a whole number, at least 1, not {self.lora_int_id!r}.",
                option="lora_int_id",
                value=self.lora_int_id,
            )
        if not self.lora_path:
            raise ConfigError("lora_path is empty.", hint="Pass the folder of the adapter.", option="lora_path")
        for name in ("long_lora_max_len", "tensorizer_config_dict", "load_inplace"):
            if value := getattr(self, name):
                raise ConfigError(f"{name}={value!r} is not supported.", hint="Leave it out.", option=name)

    @property
    def adapter_id(self) -> int:
        """Its number."""
        return self.lora_int_id

    @property
    def name(self) -> str:
        """Its name."""
        return self.lora_name

    @property
    def path(self) -> str:
        """Its folder."""
        return self.lora_path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoRARequest) and self.lora_name == other.lora_name

    def __hash__(self) -> int:
        return hash(self.lora_name)


class AdapterCache:
    """The adapters of one model: as many as its program has places for."""

    def __init__(self, generator: Any, num_places: int, folders: Mapping[str, str]) -> None:
        self._generator, self._num_places = generator, num_places
        self._folders = folders
        """Folders of adapters that requests may name without one."""
        self._users: dict[str, int] = {}
        """Requests that use each loaded adapter; the least recently used first."""
        self._changed: asyncio.Condition | None = None

    def check(self, request: LoRARequest | None) -> None:
        """Check that the model takes adapters, and that the folder is there."""
        if request is None:
            return
        if not self._num_places:
            raise ConfigError(
                f"The request has the adapter {request.lora_name!r}, but the model was loaded without adapters.",
                hint="Pass enable_lora=True.",
                option="enable_lora",
                adapter=request.lora_name,
            )
        folder = self._folder(request)
        if not folder or (folder.startswith((".", "/", "~")) and not Path(folder).expanduser().is_dir()):
            raise ConfigError(
                f"There is no folder {folder or request.lora_path!r} of the adapter {request.lora_name!r}.",
                hint="Pass the folder of the adapter.",
                option="lora_path",
                value=request.lora_path,
            )

    def _folder(self, request: LoRARequest) -> str:
        return self._folders.get(request.lora_name) or request.lora_path.strip()

    @contextlib.asynccontextmanager
    async def held(self, request: LoRARequest | None) -> AsyncIterator[str | None]:
        """Yield the name by which the engine knows an adapter, which stays loaded inside."""
        if not self._num_places:
            yield None
            return
        if request is None:
            yield "__base__"
            return
        name = request.lora_name
        self._changed = self._changed or asyncio.Condition()
        async with self._changed:
            await self._changed.wait_for(lambda: name in self._users or self._has_room())
            if name not in self._users:
                await self._generator.run(self._load, name, self._folder(request))
            self._users[name] = self._users.pop(name, 0) + 1
        try:
            yield name
        finally:
            async with self._changed:
                self._users[name] -= 1
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._users) < self._num_places or 0 in self._users.values()

    def _load(self, name: str, folder: str) -> None:
        """Load an adapter between two steps."""
        generator = self._generator
        with generator.manager.pause():
            if len(self._users) == self._num_places:
                oldest = next(one for one, number in self._users.items() if not number)
                generator.model.delete_adapter(oldest)
                del self._users[oldest]
            generator.model.load_adapter(folder, adapter_name=name)
            generator.model.set_adapter("__base__")
