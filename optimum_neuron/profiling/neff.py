"""Run a NEFF for its profile: its graphs on inputs of zeros, which take as long as others.

Weights that are not in the file are zeros too: a profile needs their shapes, which the program has. The NEFF of an
exported folder is profiled with its folder, see `folder.py`.

    profile_neff("model.neff").rows()[0]
"""

from __future__ import annotations

from pathlib import Path

from ..errors import ConfigError
from ..options.configuration import CONFIG_FILE, NEFF_FILE
from ..simulator import Constants
from .folder import calls_of, profile_folder, profile_graphs, zeros
from .profile import Profile

_NO_AUTO_CAST = "auto-cast none: the file does not say, and the configuration of its export is not beside it"


def profile_compiled(
    path: str | Path,
    *,
    prompt_length: int | None = None,
    num_steps: int | None = None,
    constants: str | Path | Constants | None = None,
) -> Profile:
    """Profile an exported folder or a NEFF; the NEFF of an exported folder is profiled with the folder.

    Arguments are those of `profile_folder`.

    Example:
        ```python no-run
        profile_compiled("smollm2_neuron")
        ```
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"{path} does not exist.", hint="Pass a NEFF or an exported folder.", path=str(path))
    folder = path if path.is_dir() else path.absolute().parent
    if path.is_dir() or (path.name == NEFF_FILE and (folder / CONFIG_FILE).is_file()):
        return profile_folder(folder, prompt_length=prompt_length, num_steps=num_steps, constants=constants)
    return profile_neff(path, prompt_length=prompt_length, num_steps=num_steps, constants=constants)


def profile_neff(
    path: str | Path,
    *,
    prompt_length: int | None = None,
    num_steps: int | None = None,
    constants: str | Path | Constants | None = None,
) -> Profile:
    """Load a NEFF on a simulated core, run its graphs, and profile the run.

    Args:
        path: written by a trace, by neuronx-cc, or for an exported folder.
        prompt_length: as for `profile_folder`.
        num_steps: likewise.
        constants: likewise.

    Example:
        ```python no-run
        profile = profile_neff("model.neff")
        print(profile.device_us, "us, simulated")
        ```
    """
    from ..compiler import read_program
    from ..compiler.lower import lower
    from ..compiler.neff import check_target, open_neff
    from ..compiler.passes import without_sends
    from ..hardware import TARGETS, resolve_instance
    from ..runtime import load_program

    path = Path(path)
    with open_neff(path) as neff:
        instance = resolve_instance().value
        check_target(neff, instance.family, instance.chip.core.generation)
        program, metadata = read_program(neff), dict(neff.metadata)
    traced = metadata.get("entries")
    if traced is None or prompt_length is not None or num_steps is not None:
        graphs = calls_of(program, prompt_length=prompt_length, num_steps=num_steps)
    else:
        graphs = list(traced)
    whole = without_sends(program)
    loaded = load_program(
        program,
        {name: zeros(spec) for name, spec in program.weights.items()},
        lower(whole, optlevel=metadata.get("optlevel", "1"), mode="stored"),
        host_program=whole,
        num_cores=program.num_stages,
        instance=instance,
        target=TARGETS[instance.family],
        model_name=path.name,
        auto_cast=metadata.get("auto_cast", "none"),
    )
    try:
        unknown = () if "auto_cast" in metadata else (_NO_AUTO_CAST,)
        return profile_graphs(loaded, graphs, name=path.name, assumptions=unknown, constants=constants)
    finally:
        loaded.close()
