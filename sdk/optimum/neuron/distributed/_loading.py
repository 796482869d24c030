"""The context in which scripts of Optimum Neuron up to 0.2 load the model that they train."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from optimum_neuron.errors import ConfigError


@contextlib.contextmanager
def lazy_load_for_parallelism(tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1) -> Iterator[None]:
    """Load models inside as they are: transformers maps weights from their files, and `NeuronTrainer` shards them.

    Args:
        tensor_parallel_size: as in `NeuronTrainingArguments`, which decides.
        pipeline_parallel_size: as in `NeuronTrainingArguments`, which decides.

    Raises:
        ConfigError: a size is not positive.
    """
    sizes = {"tensor_parallel_size": tensor_parallel_size, "pipeline_parallel_size": pipeline_parallel_size}
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"{name} is {size}.", hint="Pass a number of cores, or leave it out.", option=name)
    yield
