"""Open the tensors that a compiled model is bound to, and the original model to compare it with.

Most checkpoints are mapped as they are. Some architectures rename or fuse tensors while transformers loads them
(Mixtral's experts, GPT-NeoX's head); these go through transformers' own loader.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core import Choice
from ..errors import ModelError, WeightsError, refusal
from ..weights import Checkpoint, StateDict, TensorSource


def open_tensors(
    folder: Path,
    sources: Mapping[str, tuple[str, ...]],
    *,
    family: str,
    dtype: str,
    config: Any = None,
    trust_remote_code: bool = False,
) -> Choice[TensorSource]:
    """Return the tensors of a checkpoint under the names that `sources` asks for, and how they were opened.

    Raises:
        WeightsError: there are no safetensors in the folder, or tensors are missing in them.
        ModelError: transformers cannot load the checkpoint.
    """
    checkpoint = Checkpoint.open(folder)
    names = {name for group in sources.values() for name in group}
    missing = sorted(names - checkpoint.specs.keys())
    if not missing or family != "generic":
        return Choice(value=checkpoint, reason="mapped from the checkpoint's safetensors")
    model = load_original(folder, dtype=dtype, config=config, trust_remote_code=trust_remote_code)
    tensors = StateDict(tensors=model.state_dict(), origin=f"{folder}, converted by transformers")
    return Choice(
        value=tensors,
        reason=f"loaded by transformers, which converts this architecture's tensors ({missing[0]} is not in the files)",
    )


def load_original(folder: Path, *, dtype: str, config: Any = None, trust_remote_code: bool = False) -> Any:
    """The original transformers model on the CPU, in evaluation mode.

    Args:
        folder: the checkpoint.
        dtype: torch's name of the dtype to load it in.
        config: a transformers configuration to use instead of the folder's.
        trust_remote_code: let the checkpoint's own code run.

    Raises:
        ModelError: transformers cannot load it.
        WeightsError: tensors are missing, which transformers would fill with random numbers.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        model, told = AutoModelForCausalLM.from_pretrained(
            folder,
            config=copy.deepcopy(config),
            dtype=getattr(torch, dtype),
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(
            refusal(
                asked=f"the original model in {folder}",
                found=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
                why="transformers cannot load it",
                do="repair the checkpoint; to compare nothing, pass --disable-validation",
            )
        ) from error
    if missing := sorted(told["missing_keys"]):
        raise WeightsError(
            refusal(
                asked=f"the original model in {folder}",
                found=f"{len(missing)} tensors are missing: {', '.join(missing[:12])}",
                why="transformers would fill them with random numbers",
                do="download the checkpoint again, or save it with save_pretrained()",
            ),
            details={"problems": missing},
        )
    return model.eval()
