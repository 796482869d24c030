"""Run an exported diffusion pipeline for its profile: a picture, from its text encoders to its decoder.

The stock pipeline calls the compiled programs on their cores, as a user's call does. Its arguments are examples: their
values change no time on a core.

    profile_pipeline("sd_neuron", num_steps=20).rows()[0]
"""

from __future__ import annotations

from pathlib import Path

from ..simulator import Constants
from .profile import Profile
from .recorder import record


def profile_pipeline(folder: Path, *, num_steps: int, constants: str | Path | Constants | None = None) -> Profile:
    """Load an exported pipeline, make one batch of pictures of its largest size, and profile the run.

    Args:
        folder: written by `optimum-cli export neuron`.
        num_steps: denoising steps.
        constants: as for `profile_folder`.
    """
    from ..exporters.diffusion import load_pipeline, place
    from ..kinds.diffusion import example_arguments, in_place
    from ..sources import load_source

    prepared = load_pipeline(load_source(folder), {}, host_code="stored")
    try:
        copies = place(prepared)
    except BaseException:
        prepared.close()
        raise
    try:
        config, pipe = prepared.config, prepared.stock
        height, width = max(config.resolutions(), key=lambda size: (size[0] or 0) * (size[1] or 0))
        arguments = example_arguments(
            pipe, config, batch_size=config.batch_size, height=height, width=width, num_steps=num_steps
        )
        with in_place(pipe, prepared.connected(copies)), record(folder.name, constants=constants) as recorder:
            pipe(**arguments)
    finally:
        for each in copies.values():
            each.close()
    what = f"{config.batch_size} x {height} x {width} pixels" if height else f"{config.batch_size} pictures"
    return recorder.profile(assumptions=(f"ran the {type(pipe).__name__} once: {what}, num_steps={num_steps}",))
