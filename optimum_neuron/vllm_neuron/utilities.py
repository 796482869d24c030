"""Helpers of vLLM that scripts call beside its classes."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import uuid
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, TypeVar

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..base.core import Choice
from ..hardware import resolve_instance
from ..sources import find_folder
from .adapters import LoRARequest

Item = TypeVar("Item")
AnyTokenizer: TypeAlias = PreTrainedTokenizerBase


class Counter:
    """Counts up from a number."""

    def __init__(self, start: int = 0) -> None:
        self.counter = start

    def __next__(self) -> int:
        number, self.counter = self.counter, self.counter + 1
        return number

    def reset(self) -> None:
        """Begin at 0 again."""
        self.counter = 0


def random_uuid() -> str:
    """Return a random name."""
    return uuid.uuid4().hex


def init_logger(name: str) -> logging.Logger:
    """Return a logger."""
    return logging.getLogger(name)


def get_tokenizer(tokenizer_name: str, *args: object, tokenizer_mode: str = "auto", **options: object) -> AnyTokenizer:
    """Return the tokenizer of a folder or of a model on the Hub.

    Args:
        tokenizer_name: folder or Hub model ID.
        *args: arguments of transformers' `from_pretrained`.
        tokenizer_mode: "auto", or "slow" for one in Python.
        **options: keywords of transformers' `from_pretrained`.
    """
    tokenizer: AnyTokenizer = AutoTokenizer.from_pretrained(
        tokenizer_name, *args, use_fast=tokenizer_mode != "slow", **options
    )
    return tokenizer


def get_lora_tokenizer(lora_request: LoRARequest | None, **options: Any) -> AnyTokenizer | None:
    """Return the tokenizer in the folder of an adapter; None if it has none, as most have that of the model.

    Args:
        lora_request: the adapter.
        **options: keywords of transformers' `from_pretrained`.
    """
    if lora_request is None:
        return None
    folder = find_folder(lora_request.lora_path)
    has_one = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    return get_tokenizer(str(folder), **options) if has_one else None


def get_adapter_absolute_path(lora_path: str) -> str:
    """Return the folder of an adapter, which may be the ID of one on the Hub."""
    return str(find_folder(lora_path).absolute())


def get_ip() -> str:
    """Return this machine's address."""
    return socket.gethostbyname(socket.gethostname())


def get_open_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """Free the memory of engines that nobody has any more; there are no process groups.

    Args:
        shutdown_ray: no effect.
    """
    gc.collect()


async def merge_async_iterators(*iterators: AsyncIterator[Item]) -> AsyncIterator[tuple[int, Item]]:
    """Yield the items of all iterators as they come, each with the number of its iterator.

    Args:
        *iterators: iterators.
    """
    queue: asyncio.Queue[tuple[int, Any, bool]] = asyncio.Queue()

    async def read(index: int, iterator: AsyncIterator[Item]) -> None:
        async for item in iterator:
            queue.put_nowait((index, item, False))

    tasks = [asyncio.ensure_future(read(index, one)) for index, one in enumerate(iterators)]
    for task in tasks:
        task.add_done_callback(lambda done: queue.put_nowait((0, done, True)))
    left = len(tasks)
    try:
        while left:
            index, item, is_end = await queue.get()
            if is_end:
                left -= 1
                item.result()
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()


class Platform:
    """What scripts ask of the machine."""

    device_name = device_type = "neuron"
    dispatch_key = "CPU"
    supported_quantization = ("neuron_quant", "fp8")

    @property
    def instance(self) -> Choice[Any]:
        """The simulated instance."""
        return resolve_instance()

    def get_device_name(self, device_id: int = 0) -> str:
        """Return the name of the device."""
        return self.device_name

    def is_neuron(self) -> bool:
        """Return True."""
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_"):  # another platform
            return lambda: False
        raise AttributeError(name)

    def seed_everything(self, seed: int | None) -> None:
        """Seed Python's and torch's generators."""
        if seed is not None:
            random.seed(seed)
            torch.manual_seed(seed)


current_platform = Platform()
"""The simulated machine."""
