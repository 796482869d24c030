"""Run an exported folder for its profile: the graphs that a request takes, on dummy inputs of their shapes.

The values of a graph do not change its time on the core, so inputs are zeros.

    profile_folder("smollm2_neuron", num_steps=16).rows()[0]
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine import smallest_bucket
from ..errors import ConfigError
from ..simulator import Constants, chunk_graphs, generates, is_paged
from .pipeline import profile_pipeline
from .profile import Profile
from .recorder import record

if TYPE_CHECKING:
    import torch

    from ..base.core import TensorSpec
    from ..compiler import Program
    from ..runtime import LoadedProgram

DEFAULT_STEPS = 8
"""Steps after the prompt."""


def profile_folder(
    folder: str | Path,
    *,
    prompt_length: int | None = None,
    num_steps: int | None = None,
    constants: str | Path | Constants | None = None,
) -> Profile:
    """Load an exported folder, run it on dummy inputs, and profile the run.

    Args:
        folder: written by `optimum-cli export neuron`.
        prompt_length: tokens of each prompt of a decoder; None for half of the longest sequence.
        num_steps: steps after the prompt, each of which gives every row a token, or denoising steps of a pipeline;
            None for `DEFAULT_STEPS`.
        constants: a file of `optimum-cli neuron calibrate`, or its content; None for those of this version.

    Raises:
        ArtifactError: it is no exported folder, or is broken.
        ConfigError: a length that was not compiled, or of a model that has none.
        CoreBusyError, DeviceMemoryError: there is no room for it.
    """
    from ..exporters import load_exported
    from ..sources import is_exported_pipeline

    folder = Path(folder)
    if is_exported_pipeline(folder):
        if prompt_length is not None:
            message = "A diffusion pipeline has one length of prompts, so prompt_length cannot apply."
            raise ConfigError(message, hint="Remove it.", options=["prompt_length"])
        steps = DEFAULT_STEPS if num_steps is None else num_steps
        return profile_pipeline(folder, num_steps=steps, constants=constants)
    prepared = load_exported(folder, {}, name=folder.name, host_code="stored")
    loaded = prepared.loaded
    assert loaded is not None
    try:
        graphs = calls_of(loaded.program, prompt_length=prompt_length, num_steps=num_steps)
        return profile_graphs(loaded, graphs, name=folder.name, constants=constants)
    finally:
        loaded.close()


def profile_graphs(
    loaded: LoadedProgram,
    graphs: Sequence[str],
    *,
    name: str,
    assumptions: Sequence[str] = (),
    constants: str | Path | Constants | None = None,
) -> Profile:
    """Run graphs of a loaded program on inputs of zeros, and profile the run."""
    state = loaded.take_state() if loaded.program.states else []
    with record(name, constants=constants) as recorder:
        for graph in graphs:
            loaded.run(graph, [zeros(spec) for spec in loaded.program.graphs[graph].inputs.values()], state)
    counts = collections.Counter(graphs)
    ran = ", ".join(graph if count == 1 else f"{count} x {graph}" for graph, count in counts.items())
    return recorder.profile(
        assumptions=(f"ran {ran} on inputs of zeros: what a graph computes does not change its time", *assumptions)
    )


def calls_of(program: Program, *, prompt_length: int | None = None, num_steps: int | None = None) -> list[str]:
    """Return the graphs that a request runs, in order.

    A decoder takes a prompt and steps, an encoder-decoder reads first, a model of one forward runs its largest graph.
    """
    if not generates(program):
        lengths = {"prompt_length": prompt_length, "num_steps": num_steps}
        if names := [name for name, value in lengths.items() if value is not None]:
            message = f"The model does not generate, so {' and '.join(names)} cannot apply."
            raise ConfigError(message, hint="Remove the lengths: the largest graph runs once.", options=names)
        return [list(program.graphs)[-1]]
    num_steps = DEFAULT_STEPS if num_steps is None else num_steps
    encode, prefill, decode = (program.by_size(role) for role in ("encode", "prefill", "decode"))
    if encode:
        source = max(encode) if prompt_length is None else _bucket("prompt_length", prompt_length, encode)
        return [encode[source], prefill[max(prefill)], *[decode[max(decode)]] * num_steps]
    prompt = max(max(decode) // 2, 1) if prompt_length is None else prompt_length
    first = prefill[_bucket("prompt_length", prompt, prefill)]
    _bucket("prompt_length + num_steps", prompt + num_steps, decode)
    steps = [decode[_bucket("tokens", prompt + step + 1, decode)] for step in range(num_steps)]
    reads = chunk_graphs(program, prompt) if is_paged(program) else [first]
    encoders = [*program.by_size("encode_image").values(), *program.by_size("encode_audio").values()]
    return [*encoders, *reads, *steps]


def _bucket(name: str, tokens: int, sizes: Mapping[int, object]) -> int:
    """Return the smallest compiled size that fits the tokens."""
    bucket = smallest_bucket(tokens, sizes)
    if tokens < 1 or bucket is None:
        compiled = ", ".join(map(str, sorted(sizes)))
        message = f"{name} is {tokens}, but the model is compiled for {compiled} tokens."
        hint = f"Pass 1 to {max(sizes)}, or export with other buckets."
        raise ConfigError(message, hint=hint, option=name, value=tokens, buckets=sorted(sizes))
    return bucket


def zeros(spec: TensorSpec) -> torch.Tensor:
    """Return a tensor of a shape and dtype."""
    import torch

    return torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype))
