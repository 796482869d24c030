"""A context in which the libraries' models are built without weights.

with without_weights():
    model = AutoModelForCausalLM.from_config(config)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

_LARGE = 2**28
"""Elements of a tensor that no memory is taken for; no buffer is as large."""


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """Inside the block, parameters have shapes and no values, and buffers are computed; nothing is initialized.

    Constructors that draw random numbers leave those of the user alone.
    """
    import torch
    from accelerate import init_empty_weights
    from torch.overrides import TorchFunctionMode
    from transformers.initialization import no_init_weights

    class LargeOnMeta(TorchFunctionMode):
        """A parameter is made before it is moved to the meta device: one of a large mixture is larger than memory."""

        def __torch_function__(
            self,
            function: Any,
            types: Sequence[type],
            arguments: tuple[Any, ...] = (),
            options: dict[str, Any] | None = None,
        ) -> Any:
            options = options or {}
            if function is torch.empty and options.get("device") is None and _num_elements(arguments) > _LARGE:
                options = options | {"device": "meta"}
            return function(*arguments, **options)

    own_numbers = torch.random.fork_rng(devices=[])
    with own_numbers, init_empty_weights(include_buffers=False), no_init_weights(), LargeOnMeta():
        yield


def _num_elements(sizes: Any) -> int:
    """Elements of a tensor, from the arguments of `torch.empty`: sizes, or one tuple of them."""
    return math.prod(sizes[0] if sizes and isinstance(sizes[0], (tuple, list)) else sizes)
