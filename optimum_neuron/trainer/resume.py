"""Weights of a checkpoint for the model that is trained: names and shapes are compared, from the headers of its files.

Upstream loads what fits and warns of the rest; a run that goes on from other weights than it thinks is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError, refusal

_SHOWN = 4


def restore(model: Any, folder: str | Path) -> bool:
    """Check a checkpoint's weights, and load them where only `from_pretrained` can.

    Args:
        model: the one that is trained, not wrapped.
        folder: the checkpoint; one without safetensors is left to upstream's loader.

    Returns:
        Whether they are loaded. Most are not: upstream's loader comes after. It knows names of the model only, and some
        architectures (experts in one tensor, for example) save under others.

    Raises:
        ModelError: names or shapes differ, or one has an adapter and the other has not.
    """
    folder = Path(folder)
    _require_same_kind(model, folder)
    differing = _differences(model, folder)
    if not differing:
        return False
    if hasattr(type(model), "from_pretrained") and not hasattr(model, "peft_config"):
        loaded, report = type(model).from_pretrained(
            folder, config=model.config, dtype=model.dtype, ignore_mismatched_sizes=True, output_loading_info=True
        )
        if not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")):
            model.load_state_dict(loaded.state_dict())
            return True
    raise ModelError(
        refusal(
            asked=f"weights of {folder}",
            found=f"those of another model: {differing}",
            why=f"a {type(model).__name__} of this configuration is trained",
            do="pass the model that the checkpoint was made of, or a fresh output_dir",
        )
    )


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_model.safetensors").is_file()


def _is_whole(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))


def _require_same_kind(model: Any, folder: Path) -> None:
    adapts, adapter = hasattr(model, "peft_config"), _is_adapter(folder)
    if adapter == adapts or not (adapter or _is_whole(folder)):
        return
    have, want = ("an adapter", "a whole model") if adapter else ("a whole model", "an adapter")
    raise ModelError(
        refusal(
            asked=f"weights of {folder}",
            found=f"{have}, where {want} is trained",
            why="weights are restored under their names",
            do="pass peft_config as in the run that saved it" if adapter else "leave peft_config out",
        )
    )


def _differences(model: Any, folder: Path) -> str:
    """What differs between the tensors of a checkpoint and those of a model; empty where nothing does."""
    if _is_adapter(folder):
        from peft import get_peft_model_state_dict

        state, files = get_peft_model_state_dict(model), [folder / "adapter_model.safetensors"]
    elif _is_whole(folder):
        state, files = model.state_dict(), sorted(folder.glob("model*.safetensors"))
    else:
        return ""
    saved = _shapes(files)
    wanted = {name: tuple(tensor.shape) for name, tensor in state.items()}
    optional = _shared_or_ignored(model, state, saved)
    problems = {
        "missing": [name for name in wanted if name not in saved and name not in optional],
        "not in the model": [name for name in saved if name not in wanted],
        "of another shape": [
            f"{name} {saved[name]}, not {wanted[name]}"
            for name in wanted
            if name in saved and saved[name] != wanted[name]
        ],
    }
    return "; ".join(f"{len(names)} {what}: {_first(names)}" for what, names in problems.items() if names)


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
