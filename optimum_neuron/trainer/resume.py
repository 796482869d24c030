"""Whether the weights of a checkpoint are those of a model: names and shapes, read from the headers of its files.

Upstream loads what fits and warns of the rest; a run that goes on from other weights than it thinks is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError, refusal

_SHOWN = 4


def require_weights_of(model: Any, folder: str | Path) -> None:
    """Refuse a checkpoint of another model.

    Args:
        model: the one that is trained, not wrapped.
        folder: the checkpoint; one without safetensors is left to the loader.

    Raises:
        ModelError: names or shapes differ, or one has an adapter and the other has not.
    """
    folder = Path(folder)
    adapts, adapter = hasattr(model, "peft_config"), (folder / "adapter_model.safetensors").is_file()
    whole = (folder / "model.safetensors").is_file() or (folder / "model.safetensors.index.json").is_file()
    if adapter != adapts and (whole or adapter):
        have, want = ("an adapter", "a whole model") if adapter else ("a whole model", "an adapter")
        raise ModelError(
            refusal(
                asked=f"resume from {folder}",
                found=f"{have}, where {want} is trained",
                why="weights are restored under their names",
                do="pass peft_config as in the run that saved it" if adapter else "leave peft_config out",
            )
        )
    if adapter:
        from peft import get_peft_model_state_dict

        state = get_peft_model_state_dict(model)
        files = [folder / "adapter_model.safetensors"]
    elif whole and not adapts:
        state, files = model.state_dict(), sorted(folder.glob("model*.safetensors"))
    else:
        return
    saved = _shapes(files)
    wanted = {name: tuple(tensor.shape) for name, tensor in state.items()}
    optional = _shared_or_ignored(model, state, saved)
    missing = [name for name in wanted if name not in saved and name not in optional]
    differing = [name for name in wanted if name in saved and saved[name] != wanted[name]]
    unknown = [name for name in saved if name not in wanted]
    problems = {
        "missing": missing,
        "not in the model": unknown,
        "of another shape": [f"{name} {saved[name]}, not {wanted[name]}" for name in differing],
    }
    if not any(problems.values()):
        return
    told = "; ".join(f"{len(names)} {what}: {_first(names)}" for what, names in problems.items() if names)
    raise ModelError(
        refusal(
            asked=f"resume from {folder}",
            found=f"weights of another model: {told}",
            why=f"a {type(model).__name__} of this configuration is trained",
            do="pass the model that the checkpoint was made of, or a fresh output_dir",
        )
    )


def _first(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _shapes(files: list[Path]) -> dict[str, tuple[int, ...]]:
    from safetensors import safe_open

    found: dict[str, tuple[int, ...]] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            found.update({name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
    return found


def _shared_or_ignored(model: Any, state: Mapping[str, Any], saved: Mapping[str, Any]) -> set[str]:
    """Names that a checkpoint need not have: other names of a tensor that it has, and what the model never saves."""
    kept = {state[name].data_ptr() for name in saved if name in state}
    shared = {name for name, tensor in state.items() if tensor.data_ptr() in kept}
    return shared | set(getattr(model, "_keys_to_ignore_on_save", None) or ())
