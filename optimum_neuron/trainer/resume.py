"""Weights of a checkpoint for the model that is trained: names and shapes are compared, from the headers of its files.

Upstream loads the tensors that fit and warns of the others; here a checkpoint of another model is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.foreign import module_facts
from ..distributed import describe_differences, other_model, read_converted, shapes_of
from ..errors import ModelError

if TYPE_CHECKING:
    from torch import nn


def restore(model: nn.Module, folder: str | Path) -> bool:
    """Check a checkpoint's weights for a model that is not wrapped, and load them where only `from_pretrained` can.

    Returns:
        Whether they are loaded. Most are not: upstream's loader comes after, also for files without safetensors.
    """
    folder = Path(folder)
    _require_same_kind(model, folder)
    differing = _differences(model, folder)
    if not differing:
        return False
    weights = read_converted(model, folder, dtype=model.dtype) if hasattr(type(model), "from_pretrained") else None
    if weights is None:
        raise other_model(folder, model, differing)
    model.load_state_dict(weights)
    return True


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_model.safetensors").is_file()


def _is_whole(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))


def _require_same_kind(model: nn.Module, folder: Path) -> None:
    adapts, adapter = hasattr(model, "peft_config"), _is_adapter(folder)
    if adapter == adapts or not (adapter or _is_whole(folder)):
        return
    saved, trained = ("an adapter", "a whole model") if adapter else ("a whole model", "an adapter")
    message = f"{folder} has the weights of {saved}, but {trained} is trained."
    hint = "Pass peft_config as in the run that saved it." if adapter else "Remove peft_config."
    raise ModelError(message, hint=hint, option="peft_config", folder=str(folder))


def _differences(model: nn.Module, folder: Path) -> str:
    """Describe how the tensors of a checkpoint and a model differ; empty if they do not."""
    if _is_adapter(folder):
        from peft import get_peft_model_state_dict

        state, files = get_peft_model_state_dict(model), [folder / "adapter_model.safetensors"]
    elif _is_whole(folder):
        state, files = model.state_dict(), sorted(folder.glob("model*.safetensors"))
    else:
        return ""
    saved = _shapes(files)
    return describe_differences(shapes_of(state), saved, optional=_shared_or_ignored(model, state, saved))


def _shapes(files: list[Path]) -> dict[str, tuple[int, ...]]:
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            shapes.update({name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
    return shapes


def _shared_or_ignored(model: nn.Module, state: Mapping[str, Any], saved: Mapping[str, Any]) -> set[str]:
    """Return names that may be missing in a checkpoint: aliases of a saved tensor, and names never saved."""
    pointers = {state[name].data_ptr() for name in saved if name in state}
    shared = {name for name, tensor in state.items() if tensor.data_ptr() in pointers}
    return shared | set(module_facts(model)._keys_to_ignore_on_save or ())
