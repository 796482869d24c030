"""Run a NEFF for its profile: each of its graphs once, on inputs of zeros, which take as long as others.

It takes the NEFFs of `neuronx-cc compile` and of `torch_neuronx.trace` with their weights inside. The NEFF of an
exported folder is profiled with its folder: see `folder.py`.

    profile_neff("model.neff").rows()[0]
"""

from __future__ import annotations

from pathlib import Path

from ..errors import ConfigError, refusal
from .folder import profile_folder
from .profile import Profile
from .recorder import record


def profile_compiled(path: str | Path) -> Profile:
    """Profile an exported folder, or a NEFF with its weights.

    Raises:
        ConfigError: there is neither; further errors are those of `profile_folder` and `profile_neff`.

    Example:
        ```python no-run
        profile_compiled("smollm2_neuron")
        ```
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(
            refusal(
                asked=f"a profile of {path}",
                found="no such file or folder",
                why="a compiled program is profiled",
                do="name a NEFF or an exported folder",
            )
        )
    return profile_folder(path) if path.is_dir() else profile_neff(path)


def profile_neff(path: str | Path) -> Profile:
    """Load a NEFF on a simulated core, run its graphs, and profile the run.

    Raises:
        ArtifactError: the file is no NEFF of a traced model, or is damaged.
        ConfigError: the weights are not in the file.
        TargetMismatchError: the simulated instance has other cores.
        CoreBusyError, DeviceMemoryError: there is no room for it.

    Example:
        ```python no-run
        profile = profile_neff("model.neff")
        print(profile.device_us, "us, simulated")
        ```
    """
    import torch

    from ..compiler.neff import open_neff
    from ..tracing.contexts import Placement
    from ..tracing.session import Session

    path = Path(path)
    session = Session(open_neff(path), [], placement=Placement())
    if session.separate_weights:
        raise ConfigError(
            refusal(
                asked=f"a profile of {path}",
                found="a NEFF without its weights",
                why="what is profiled has to run",
                do="trace the model with inline_weights_to_neff=True, or compile it with neuronx-cc",
            )
        )
    graphs = session.metadata["entries"]
    try:
        session.load()
        with record(path.name) as recorder:
            for entry, graph in enumerate(graphs):
                inputs = session.program.graphs[graph].inputs.values()
                zeros = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in inputs]
                session.run(zeros, entry, batches=False)
        ran = f"ran {', '.join(graphs)} on inputs of zeros: what a graph computes does not change its time"
        return recorder.profile(assumptions=(ran,))
    finally:
        session.unload()
