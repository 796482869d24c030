"""A context in which the libraries' models are built without weights.

with without_weights():
    model = AutoModelForCausalLM.from_config(config)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """Inside the block, parameters have shapes and no values, and buffers are computed; nothing is initialized."""
    from accelerate import init_empty_weights
    from transformers.initialization import no_init_weights

    with init_empty_weights(include_buffers=False), no_init_weights():
        yield
