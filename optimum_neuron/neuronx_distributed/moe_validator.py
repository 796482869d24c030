"""Checks the options of experts in a configuration of NxD Training: dropped tokens need a capacity, others gated SiLU.

MoeConfigValidator(config).validate_moe_config()
"""

from __future__ import annotations

import logging
from typing import Any

from ..base.foreign import Facts
from ..errors import ConfigError, UnsupportedAttributeError
from .platforms import get_dict_from_json

_logger = logging.getLogger(__name__)
_HINT = "Set dropless to False, or change the model."


class _Options(Facts):
    """Options of a model that a configuration can leave out."""

    activation: str | None
    dropless: bool | None
    glu_mlp: bool | None
    moe: Any


class MoeConfigValidator:
    """The check.

    Args:
        cfg: the configuration, with `model_source` and `model.moe`.
    """

    def __init__(self, cfg: Any) -> None:
        self.cfg = cfg

    def validate_moe_config(self) -> None:
        """Check the options; without dropped tokens a capacity becomes 0, with a warning.

        Raises:
            UnsupportedAttributeError: the configuration has no options of experts.
            ConfigError: the options contradict each other.
        """
        moe = _Options(self.cfg.model).moe
        if moe is None:
            message = "MoE configuration is missing in model config."
            raise UnsupportedAttributeError(message, hint="Set model.moe.", attribute="moe")
        capacity = moe.capacity_factor
        if not _Options(moe).dropless:
            if capacity is not None and capacity <= 0:
                message = f"Dropping requires a capacity factor greater than 0.0, and it is {capacity}."
                raise ConfigError(message, hint="Raise it, or pass None to keep all tokens.", capacity_factor=capacity)
            return
        self._require_silu()
        if _Options(moe).glu_mlp is False:
            raise ConfigError("Dropless mode requires GLU_MLP to be True.", hint=_HINT, option="glu_mlp")
        if capacity is None or capacity > 0:
            _logger.warning(
                "Dropless mode expects a capacity_factor set to 0.0. Current value: %s. "
                "Setting capacity_factor to 0.0.",
                capacity,
            )
            moe.capacity_factor = 0.0

    def _require_silu(self) -> None:
        is_megatron = self.cfg.model_source == "megatron"
        if is_megatron:
            found: Any = _Options(self.cfg.model).activation
            allowed = ["silu", "swiglu"]
            which = "For Megatron models, dropless mode is only supported with SiLU or SwiGLU activation functions"
        else:
            found, allowed = self._activation(self._load_hf_config()), ["silu"]
            which = "Dropless mode is only supported with SiLU activation function"
        if found not in allowed:
            raise ConfigError(f"{which}, and this one is {found}.", hint=_HINT, activation=found)

    def _load_hf_config(self) -> dict[str, Any]:
        """The configuration of the model in transformers."""
        return get_dict_from_json(self.cfg.model.model_config)

    def _activation(self, config: dict[str, Any]) -> Any:
        of_dbrx = config.get("ffn_config", {}).get("ffn_act_fn", {}).get("name")
        return of_dbrx if config.get("model_type") == "dbrx" else config.get("hidden_act")
