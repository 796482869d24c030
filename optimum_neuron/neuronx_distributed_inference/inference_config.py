"""`InferenceConfig`: the configuration of a checkpoint with a `NeuronConfig`, saved as `neuron_config.json`.

config = InferenceConfig(NeuronConfig(tp_degree=2), load_config=load_pretrained_config("tiny_llama"))
config.save("compiled")
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from transformers import AutoConfig, PretrainedConfig

from ..base.model_facts import facts_of
from ..errors import ArtifactError, AssertedConfigError, ConfigError, NotExportedError
from ..sources import find_folder
from .config import MoENeuronConfig, MultimodalVisionNeuronConfig, NeuronConfig, to_dict
from .parts import FusedSpecNeuronConfig, to_torch_dtype

CONFIG_FILE = "neuron_config.json"
"""File of a saved configuration."""
PACKAGE = "neuronx_distributed_inference"
"""Import name of the classes that a saved configuration may name."""

_DTYPES = ("dtype", "torch_dtype")
_NOT_WITH_CHUNKS = {
    **dict.fromkeys(("flash_decoding_enabled", "is_prefix_caching", "is_chunked_prefill"), False),
    "padding_side": "right",
    "attention_dp_degree": 1,
}
"""What options must be for a model whose layers attend in chunks."""


class InferenceConfig:
    """Attributes of a checkpoint's configuration, and `neuron_config`.

    Args:
        neuron_config: options of the compile.
        fused_spec_config: the draft.
        load_config: function that sets attributes, as `load_pretrained_config` returns.
        metadata: anything, saved as it is.
        **attributes: attributes that replace those of `load_config`.
    """

    attribute_map: ClassVar[Mapping[str, str]] = {}
    """Other names of attributes."""

    def __init__(
        self,
        neuron_config: NeuronConfig | None = None,
        fused_spec_config: FusedSpecNeuronConfig | None = None,
        load_config: Callable[[Any], None] | None = None,
        metadata: dict[str, Any] | None = None,
        **attributes: object,
    ) -> None:
        if images := [name for name in ("text_neuron_config", "vision_neuron_config") if name in attributes]:
            message = f"{images[0]} is for models with images, and these models read text."
            hint = "Pass neuron_config for text, or use NeuronModelForImageTextToText of optimum_neuron."
            raise ConfigError(message, hint=hint, options=images)
        if neuron_config is None or isinstance(neuron_config, dict):
            message = f"neuron_config={neuron_config!r} is no NeuronConfig."
            raise ConfigError(message, hint="Pass NeuronConfig(...).", option="neuron_config")
        self.neuron_config, self.fused_spec_config = neuron_config, fused_spec_config
        if load_config is not None:
            load_config(self)
        else:
            self.load_config()
        self.metadata = metadata
        for name, value in attributes.items():
            setattr(self, name, value)
        self.add_derived_config()
        self.validate_config()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(self._plain(name), value)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name == "attribute_map":
            return super().__getattribute__(name)
        return super().__getattribute__(self._plain(name))

    def _plain(self, name: str) -> str:
        names = super().__getattribute__("attribute_map")
        return str(names.get(name, name)) if name != "attribute_map" else name

    def load_config(self) -> None:
        """Set attributes; a subclass may."""

    def add_derived_config(self) -> None:
        """Set attributes that follow from others; a subclass may."""
        self.num_cores_per_group = 1

    def get_required_attributes(self) -> list[str]:
        """Return attributes that must be there; a subclass may name some."""
        return []

    def validate_config(self) -> None:
        """Check that all required attributes are there, and that they go with `neuron_config`."""
        missing = [name for name in self.get_required_attributes() if not hasattr(self, name)]
        if missing:
            raise AssertedConfigError(
                f"Config must define {missing}.",
                hint="Pass load_config=load_pretrained_config(folder), or the attributes.",
                missing=missing,
            )
        self._validate_chunked_attention_support()
        self._validate_windowed_context_encoding_support()

    def _validate_chunked_attention_support(self) -> None:
        chunk, config = facts_of(self).attention_chunk_size, self.neuron_config
        if chunk is None or chunk >= config.seq_len:
            return
        for name, value in _NOT_WITH_CHUNKS.items():
            if (given := getattr(config, name)) != value:
                message = f"The Neuron config {name}: {given} is not yet supported with chunked attention."
                raise ConfigError(message, hint=f"Pass {value!r}.", option=name, value=given)
        if chunk % config.cp_degree:
            message = f"attention_chunk_size: {chunk} must be divisible by cp_degree: {config.cp_degree}."
            raise AssertedConfigError(message, hint="Pass another cp_degree.", option="cp_degree")
        if config.seq_len % chunk % config.cp_degree:
            message = f"The last chunk must be divisible by cp_degree: {config.cp_degree}."
            raise AssertedConfigError(message, hint="Pass another seq_len.", option="seq_len")

    def _validate_windowed_context_encoding_support(self) -> None:
        size, window = self.neuron_config.windowed_context_encoding_size, facts_of(self).sliding_window
        if size is not None and window is not None and size != window:
            raise AssertedConfigError(
                "Windowed context encoding size must equal sliding window size, if using both. Got "
                f"windowed_context_encoding_size = {size}, sliding_window = {window}.",
                hint=f"Pass {window}.",
                option="windowed_context_encoding_size",
            )

    def get_text_config(self, **options: object) -> Any:
        """Return the configuration of the language model."""
        text = facts_of(self).text_config
        return self if text is None else text

    # Files.

    def save(self, model_path: str | Path) -> None:
        """Write `neuron_config.json` into a folder."""
        Path(model_path).mkdir(parents=True, exist_ok=True)
        self.to_json_file(Path(model_path) / CONFIG_FILE)

    def to_json_file(self, json_file: str | Path) -> None:
        """Write the configuration as JSON."""
        Path(json_file).write_text(self.to_json_string() + "\n", encoding="utf-8")

    def to_json_string(self) -> str:
        """Return the configuration as JSON text."""
        return json.dumps(to_dict(self), indent=2, sort_keys=True)

    @classmethod
    def load(cls, model_path: str | Path, **attributes: object) -> Self:
        """Read `neuron_config.json` of a folder.

        Args:
            model_path: the folder.
            **attributes: values that replace those of the file.
        """
        file = Path(model_path) / CONFIG_FILE
        if not file.is_file():
            message = f"{model_path} has no {CONFIG_FILE}."
            hint = "Pass the folder that compile() wrote, or a config."
            raise NotExportedError(message, hint=hint, folder=str(model_path))
        return cls.from_json_file(file, **attributes)

    @classmethod
    def from_json_file(cls, json_file: str | Path, **attributes: object) -> Self:
        """Read a configuration file."""
        try:
            return cls.from_json_string(Path(json_file).read_text(encoding="utf-8"), **attributes)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            message = f"{json_file} is not JSON: {error}."
            raise ArtifactError(message, hint="Compile again.", file=str(json_file)) from error

    @classmethod
    def from_json_string(cls, json_string: str, **attributes: object) -> Self:
        """Read a configuration from JSON text."""
        content = json.loads(json_string)
        if not isinstance(content, dict):
            message = f"The configuration is a {type(content).__name__}, and no JSON object."
            raise ArtifactError(message, hint="Compile again.", type=type(content).__name__)
        data = {**content, **attributes}
        if isinstance(data.get("neuron_config"), dict):
            data["neuron_config"] = cls.get_neuron_config_cls()(**data["neuron_config"])
        if isinstance(data.get("fused_spec_config"), dict):
            data["fused_spec_config"] = cls._draft_of(data["fused_spec_config"])
        return cls(**data)

    @classmethod
    def _draft_of(cls, data: dict[str, Any]) -> FusedSpecNeuronConfig:
        draft_class = cls.get_draft_neuron_class(data)
        config_class = cls if draft_class is None else draft_class.get_config_cls()
        if isinstance(draft := data.get("draft_config"), dict):
            data["draft_config"] = config_class.from_json_string(json.dumps(draft))
        worker = data["worker_cls"]
        return FusedSpecNeuronConfig(**{**data, "worker_cls": _class_of(worker), "draft_model_cls": draft_class})

    @staticmethod
    def get_draft_neuron_class(fused_spec_config_dict: Mapping[str, Any]) -> Any:
        """Return the class of the draft that a saved configuration names, or None."""
        named = fused_spec_config_dict.get("draft_model_cls")
        return _class_of(named) if named else None

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        """Return the class of `neuron_config`."""
        return NeuronConfig


class MoEInferenceConfig(InferenceConfig):
    """A model with experts."""

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        """Return the class of `neuron_config`."""
        return MoENeuronConfig


class ImageToTextInferenceConfig(InferenceConfig):
    """A model with images: `text_config` and `vision_config` are configurations too."""

    def add_derived_config(self) -> None:
        """Make configurations of the parts."""
        super().add_derived_config()
        for name in ("text_config", "vision_config"):
            part = getattr(self, name, None)
            if part is None or isinstance(part, InferenceConfig):
                continue
            fields = dict(part) if isinstance(part, dict) else vars(part)
            known = ("neuron_config", "fused_spec_config", "metadata", *_DTYPES)
            fields = {key: value for key, value in fields.items() if key not in known}
            setattr(self, name, InferenceConfig(self.neuron_config, **fields))

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        """Return the class of `neuron_config`."""
        return MultimodalVisionNeuronConfig


def _class_of(named: object) -> Any:
    """The class that a saved configuration names, of the import names of this package only."""
    if not isinstance(named, dict):
        return named
    module, name = named["__module__"], named["__name__"]
    own = __name__.rpartition(".")[0]
    try:
        if module.partition(".")[0] != PACKAGE and not module.startswith(f"{own}."):
            raise ModuleNotFoundError(module)
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ModuleNotFoundError(
            f"The configuration names the class {name} of {module}, which is not here."
        ) from error


def load_pretrained_config(
    model_path_or_name: str | Path | None = None, hf_config: PretrainedConfig | None = None
) -> Callable[[InferenceConfig], None]:
    """Return a `load_config` of `InferenceConfig` that reads the configuration of a checkpoint.

    Args:
        model_path_or_name: folder, or Hub model ID.
        hf_config: a configuration of transformers, in place of a folder.
    """

    def load_config(config: InferenceConfig) -> None:
        if (model_path_or_name is None) == (hf_config is None):
            message = 'Please provide only one of "model_path_or_name" or "hf_config".'
            raise ConfigError(message, options=["model_path_or_name", "hf_config"])
        source = hf_config
        if source is None:
            source = AutoConfig.from_pretrained(find_folder(str(model_path_or_name), with_weights=False))
        fields = _fields(source)
        dtype = next((fields[name] for name in _DTYPES if fields.get(name) is not None), None)
        if dtype is not None and not config.neuron_config.overrides_torch_dtype:
            config.neuron_config.torch_dtype = to_torch_dtype(dtype)
        config.__dict__.update({name: value for name, value in fields.items() if name not in _DTYPES})
        config.attribute_map = source.attribute_map  # type: ignore[misc]  # of this object

    return load_config


def _fields(config: PretrainedConfig) -> dict[str, Any]:
    """Attributes of a configuration; those of a part are a namespace."""
    fields = config.to_dict()
    if config.transformers_version is not None:
        fields["transformers_version"] = config.transformers_version  # not the one that is installed
    for name in fields:
        if isinstance(part := getattr(config, name, None), PretrainedConfig):
            fields[name] = SimpleNamespace(**_fields(part))
    return fields
