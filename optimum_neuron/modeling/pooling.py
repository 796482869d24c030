"""Pooling of hidden states into sentence embeddings, as the folder of a sentence-transformers model configures it.

It reads `modules.json`, the configuration of the pooling module, `sentence_bert_config.json`, and
`config_sentence_transformers.json`, and does not depend on compiled models. Legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from ..base.core import Choice
from ..errors import ConfigError, ModelError, invalid_choice
from ..sources import SENTENCE_FACTS, SENTENCE_LIMITS, SENTENCE_VECTORS, read_modules, read_typed
from .sentence_modules import VECTOR_MODULES, read_settings

_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Switch in the pooling module's configuration to the mode, in the order in which vectors are concatenated."""

LIMITS_FILE = "sentence_bert_config.json"
"""Configuration of the transformer in a folder of sentence-transformers."""

_EMPTY_PROMPTS = {"query": "", "document": ""}
"""Prompts that a folder of sentence-transformers has before it names others."""

_TRANSFORMERS = ("Transformer", "CLIPModel")
"""Types of modules that are transformers models."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The steps before and after the transformer."""

    pooling: tuple[str, ...]
    """Modes; vectors of several are concatenated."""
    modules: tuple[tuple[str, str], ...] = ()
    """Type and path of the modules after pooling, in order."""
    truncate_dim: int | None = None
    """Length to which vectors are truncated if a call names none."""
    max_seq_length: int | None = None
    """Longest sentence, in tokens."""
    do_lower_case: bool = False
    include_prompt: bool = True
    """Pool the tokens of the prompt too."""
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    """Texts to put before a sentence, by name."""
    default_prompt_name: str | None = None
    """Prompt to use if a call names none."""
    similarity: str = "cosine"
    """Measure of `similarity`: cosine, dot, euclidean, or manhattan."""
    choice: Choice[str]
    """Pooling, with its source."""

    @property
    def normalize(self) -> bool:
        """Whether vectors are scaled to length 1 at the end."""
        return bool(self.modules) and self.modules[-1][0] == "Normalize"

    def text_before(self, name: str | None, prompt: str | None) -> str:
        """Return the text to put before each sentence, by name or as it is.

        Args:
            name: one of `prompts`; None takes the default.
            prompt: the text itself, instead of a name.
        """
        return self._named(name) if prompt is None else prompt

    def _named(self, name: str | None) -> str:
        name = self.default_prompt_name if name is None else name
        if name is not None and name not in self.prompts:
            if any(self.prompts.values()):
                raise invalid_choice("prompt_name", name, self.prompts)
            message = f"prompt_name={name!r} is not supported: the model has no prompts."
            raise ConfigError(message, hint="Pass the text as prompt=.", option="prompt_name", value=name)
        return "" if name is None else self.prompts[name]


def read_recipe(folder: Path) -> Recipe:
    """Read the recipe of a folder; the default is the mean of the tokens."""
    modules = _modules(folder / "modules.json")
    kinds = dict(reversed(modules))
    unknown = sorted(set(kinds) - {*_TRANSFORMERS, "Pooling", *VECTOR_MODULES})
    later = [kind for kind, _ in modules if kind not in _TRANSFORMERS]
    if unknown or "Pooling" in later[1:]:
        message = f"{folder} has modules that are not supported: {', '.join(unknown) or ', '.join(later)}."
        hint = "Compile the transformer with NeuronModelForFeatureExtraction and apply the other modules yourself."
        raise ModelError(message, hint=hint, modules=unknown or later)
    for kind, path in modules:
        if kind in VECTOR_MODULES:
            read_settings(folder, kind, path)
    pooling = _read(folder / kinds["Pooling"] / "config.json", SENTENCE_VECTORS) if "Pooling" in kinds else {}
    if "Pooling" in kinds:
        choice = _pooling(pooling, kinds["Pooling"])
    else:
        choice = Choice(value="mean", reason="the folder has no pooling module: mean of the tokens")
    limits = _read(folder / LIMITS_FILE, SENTENCE_LIMITS)
    _refuse_messages(folder, limits)
    facts = _read(folder / "config_sentence_transformers.json", SENTENCE_FACTS)
    return Recipe(
        pooling=tuple(choice.value.split("+")),
        modules=tuple(one for one in modules if one[0] in VECTOR_MODULES),
        truncate_dim=facts.get("truncate_dim"),
        max_seq_length=limits.get("max_seq_length"),
        do_lower_case=bool(limits.get("do_lower_case")),
        include_prompt=pooling.get("include_prompt", True),
        prompts=_EMPTY_PROMPTS | {name: text or "" for name, text in (facts.get("prompts") or {}).items()},
        default_prompt_name=facts.get("default_prompt_name"),
        similarity=facts.get("similarity_fn_name") or "cosine",
        choice=choice,
    )


def _refuse_messages(folder: Path, limits: dict[str, Any]) -> None:
    """Reject a folder whose texts sentence-transformers (6 and later) renders by the tokenizer's chat template."""
    if "message" in (limits.get("modality_config") or {}):
        message = f"{folder / LIMITS_FILE} renders texts as chat messages, which is not supported."
        hint = "Remove 'message' from its modality_config to embed plain texts."
        raise ModelError(message, hint=hint, file=str(folder / LIMITS_FILE), option="modality_config")


def transformer_subfolder(folder: Path) -> dict[str, str]:
    """Return `{"subfolder": ...}` of the transformer, empty if it is in the folder itself."""
    if (folder / "config.json").is_file():
        return {}
    paths = [path for kind, path in _modules(folder / "modules.json") if kind in _TRANSFORMERS and path]
    return {"subfolder": paths[0]} if paths else {}


def _pooling(config: dict[str, Any], path: str) -> Choice[str]:
    name = config.get("pooling_mode")
    modes = [name] if isinstance(name, str) else [mode for switch, mode in _MODES.items() if config.get(switch)]
    unknown = [mode for mode in modes if mode not in _MODES.values()]
    if unknown or not modes:
        message = f"{path}/config.json sets the pooling mode {', '.join(unknown) or None}."
        raise ModelError(message, hint=f"Set one of {', '.join(_MODES.values())}.", modes=unknown)
    return Choice(value="+".join(modes), reason=f"set in {path}/config.json")


def _modules(path: Path) -> list[tuple[str, str]]:
    """Return type and folder of each module in order, empty if the file is missing."""
    return read_modules(path) if path.is_file() else []


def _read(path: Path, types: dict[str, Any]) -> dict[str, Any]:
    return read_typed(path, types) if path.is_file() else {}


def pooled(
    hidden_BTD: torch.Tensor, mask_BT: torch.Tensor, modes: tuple[str, ...], num_skipped: int = 0
) -> torch.Tensor:
    """Return vectors [B, modes * D] of hidden states, without padding and without so many first tokens."""
    positions_BT = mask_BT.cumsum(dim=1)
    mask_BT = mask_BT * (positions_BT > num_skipped)
    mask_BT1, positions_BT1 = (tensor.unsqueeze(-1).to(hidden_BTD.dtype) for tensor in (mask_BT, positions_BT))
    return torch.cat([_pooled(hidden_BTD, mask_BT1, positions_BT1, mode) for mode in modes], dim=-1)


def _pooled(hidden_BTD: torch.Tensor, mask_BT1: torch.Tensor, positions_BT1: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "max":
        return hidden_BTD.masked_fill(mask_BT1 == 0, -torch.inf).amax(dim=1)
    if mode in ("cls", "lasttoken"):
        real_BT = mask_BT1.squeeze(-1)
        # The first or last real token, on either side of padding.
        places_B = real_BT.argmax(1) if mode == "cls" else real_BT.shape[1] - 1 - real_BT.flip(1).argmax(1)
        return hidden_BTD[torch.arange(len(hidden_BTD)), places_B]
    weights_BT1 = mask_BT1
    if mode == "weightedmean":
        weights_BT1 = mask_BT1 * positions_BT1
    total_B1 = weights_BT1.sum(dim=1).clamp(min=1e-9)
    return (hidden_BTD * weights_BT1).sum(dim=1) / (total_B1.sqrt() if mode == "mean_sqrt_len_tokens" else total_B1)
